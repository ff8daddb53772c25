package linux

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/sys"
)

// Inside, everything is this id.
const insideID = 1000

// mapping says which host id the inside id is.
type mapping struct {
	uid, gid int
	drop     bool // we are root: leave root's groups, become the inside id
}

// forking is held while a child with id maps is started. The standard library
// opens the map files without close-on-exec, and lets several goroutines fork
// at once: one's child would inherit another's map file.
var forking sync.Mutex

// busyTime bounds the wait for the last writer of the worker's file, which was
// closed before anybody could know its name. The kernel counts it as open for as
// long as another process looks at it by /proc/PID/fd at that moment.
const busyTime = 2 * time.Second

// startProcess is os.StartProcess for such a child.
func startProcess(worker *os.File, attr *os.ProcAttr) (*os.Process, error) {
	path := "/proc/self/fd/" + strconv.Itoa(int(worker.Fd()))
	for end := time.Now().Add(busyTime); ; time.Sleep(time.Millisecond) {
		forking.Lock()
		p, err := os.StartProcess(path, []string{"caisson-worker", "init"}, attr)
		forking.Unlock()
		if !errors.Is(err, unix.ETXTBSY) || time.Now().After(end) {
			return p, err
		}
	}
}

// launcher starts W, blocked on its end of a socket pair, in seven new
// namespaces. The plan does not depend on how; today there is one way, the
// plain re-exec of the static worker.
type launcher interface {
	// launch starts W, in as many of the groups as the kernel lets it be born in.
	launch(worker *os.File, m mapping, gs []*group) (*process, error)
}

// process is a started W and the host's end of its socket.
type process struct {
	pid    int
	pidfd  int
	ident  sys.Ident
	sock   int // SOCK_STREAM with SO_PASSCRED; -1 once handed on
	stderr *tail
	born   map[*group]bool // the groups it has been in from the first
	done   chan struct{}   // closed when W was reaped
	state  *os.ProcessState
	parent chan func() // runs on the thread whose end is W's; nil when that is the first one
}

// reexec is the launcher that execs the worker file by its descriptor: W's id
// needs no access to the folders above it.
type reexec struct{ flags uintptr }

const allNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// startError says that W could not even be started.
type startError struct{ err error }

func (e *startError) Error() string { return "start the worker in new namespaces: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

func (r reexec) launch(worker *os.File, m mapping, gs []*group) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	p := &process{sock: pair[0], pidfd: -1, done: make(chan struct{}), stderr: &tail{}, parent: make(chan func())}
	far := pair[1]
	fail := func(err error) (*process, error) {
		unix.Close(pair[0])
		unix.Close(far)
		return nil, err
	}
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return fail(err)
	}
	// The child moves its descriptors to 0–3 by way of numbers above the
	// highest of them; the worker file's must lie below, or it is overwritten
	// before the exec that names it.
	high, err := unix.FcntlInt(uintptr(far), unix.F_DUPFD_CLOEXEC, max(int(worker.Fd()), 4)+1)
	if err != nil {
		return fail(err)
	}
	unix.Close(far)
	far = high
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return fail(err)
	}
	defer null.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer errW.Close()
	farFile := os.NewFile(uintptr(far), "channel")
	if err := sealDescriptors(); err != nil {
		return fail(err)
	}
	attr := &syscall.SysProcAttr{
		Cloneflags:                 r.flags,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: insideID, HostID: m.uid, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: insideID, HostID: m.gid, Size: 1}},
		GidMappingsEnableSetgroups: m.drop,
		AmbientCaps:                stage.SetupCaps,
		Pdeathsig:                  syscall.SIGKILL,
		PidFD:                      &p.pidfd,
	}
	if m.drop {
		attr.Credential = &syscall.Credential{Uid: insideID, Gid: insideID, Groups: []uint32{}}
	}
	var proc *os.Process
	started := make(chan error, 1)
	go func() {
		// The death signal is sent when this thread ends, not the process: the
		// thread stays for as long as W lives.
		runtime.LockOSThread()
		var err error
		p.born, err = inGroups(gs, attr, func() (err error) {
			if p.pidfd >= 0 { // of an attempt that failed
				unix.Close(p.pidfd)
				p.pidfd = -1
			}
			proc, err = startProcess(worker, &os.ProcAttr{
				Env: []string{}, Files: []*os.File{null, null, errW, farFile}, Sys: attr,
			})
			return err
		})
		started <- err
		if err != nil {
			// Not unlocked: the thread ends here, and a W it left behind with it.
			if proc != nil {
				_, _ = proc.Wait()
			}
			return
		}
		go p.await(proc)
		for {
			select {
			case f := <-p.parent:
				f()
			case <-p.done:
				return
			}
		}
	}()
	err = <-started
	farFile.Close()
	if err != nil {
		errR.Close()
		unix.Close(pair[0])
		if p.pidfd >= 0 {
			unix.Close(p.pidfd)
		}
		return nil, &startError{err: err}
	}
	p.pid = proc.Pid
	p.stderr.follow(errR)
	if p.ident, err = sys.Identify(p.pid); err != nil {
		p.kill()
		<-p.done
		p.close()
		return nil, fmt.Errorf("identify the worker: %w", err)
	}
	return p, nil
}

// await reaps W.
func (p *process) await(proc *os.Process) {
	p.state, _ = proc.Wait()
	close(p.done)
}

// sealDescriptors marks every descriptor of this process above stderr as
// close-on-exec: what the shell that started us left open must not reach W.
func sealDescriptors() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors close-on-exec (Linux 5.11 is needed): %w", err)
	}
	return nil
}

// kill sends SIGKILL to exactly this process.
func (p *process) kill() {
	if p.pidfd >= 0 {
		_ = unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
	}
}

// close lets go of what the host holds of a dead W.
func (p *process) close() {
	if p.sock >= 0 {
		unix.Close(p.sock)
		p.sock = -1
	}
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
		p.pidfd = -1
	}
}

// dead reports whether W has ended, reaped or not.
func (p *process) dead() bool {
	select {
	case <-p.done:
		return true
	default:
	}
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// setDeadline bounds each blocking read and write of the set-up dialogue.
func (p *process) setDeadline(d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return errors.Join(unix.SetsockoptTimeval(p.sock, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv), unix.SetsockoptTimeval(p.sock, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv))
}

// tail keeps the last of what W wrote to stderr: a panic of the worker before
// it can report is otherwise invisible.
type tail struct {
	mu   sync.Mutex
	buf  []byte
	r    *os.File // nil once W has no such end any more
	done chan struct{}
}

const tailSize = 4 << 10

func (t *tail) follow(r *os.File) {
	t.done, t.r = make(chan struct{}), r
	sys.MirrorStream(1)
	go func() {
		defer close(t.done)
		defer sys.MirrorStream(-1)
		defer func() {
			t.mu.Lock()
			t.r = nil
			t.mu.Unlock()
			_ = r.Close()
		}()
		b := make([]byte, 1024)
		var line []byte
		for {
			n, err := r.Read(b)
			if sys.Canary {
				// Lines of several boundaries go to one book: only whole ones may.
				line = append(line, b[:n]...)
				if i := bytes.LastIndexByte(line, '\n'); i >= 0 {
					sys.Mirrored(line[:i+1])
					line = line[i+1:]
				}
			}
			t.mu.Lock()
			t.buf = append(t.buf, b[:n]...)
			if len(t.buf) > tailSize {
				t.buf = append([]byte(nil), t.buf[len(t.buf)-tailSize:]...)
			}
			t.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// text returns the last line, after W has ended.
func (t *tail) text() string {
	if t.done != nil {
		select {
		case <-t.done:
		case <-time.After(time.Second):
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(string(t.buf))
	if i := strings.IndexByte(s, '\n'); i > 0 && len(s) > 400 {
		s = s[:400]
	}
	return s
}
