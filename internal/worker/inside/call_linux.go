package inside

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// Why a program was not started, in record.a of recFailed.
const (
	whyInternal = iota
	whyDir
	whyNotFound
	whyNotExec
	whyTTY
	whyLimit
)

var whyCode = [...]string{frame.FailInternal, frame.FailDir, frame.FailNotFound, frame.FailNotExec, frame.FailTTY, frame.FailLimit}

// runCall is C: it starts one program, reports how it ended and, when told
// to cancel, does not stop before nothing of it is left. It is the subreaper
// of everything the program starts, so "no child left" (ECHILD) is the
// kernel's word for "no descendant left".
func runCall() int {
	runtime.GOMAXPROCS(1)
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil || notDumpable() != nil {
		return ExitInternal
	}
	tree := isProc(treeFD)
	if !sys.Without("cloexec") {
		unix.CloseOnExec(ChannelFD) // it was given its place without; exec closes everything else, and this twice
		unix.CloseOnExec(treeFD)
	}
	unignore()
	prewarm(4) // before the limits, which may leave no room for a thread
	cmd, stdio, err := readCommand()
	if err != nil {
		return ExitInternal
	}
	if !send(record{kind: recTaken}) {
		return ExitInternal
	}
	c := &guard{tty: cmd.tty, stdio: stdio, tree: tree}
	if !c.start(&cmd) {
		return ExitOK
	}
	setSignals(true) // the program may signal its guardian; only SIGKILL and SIGSTOP get through
	return c.watch()
}

// guard is C after the start.
type guard struct {
	stdio      []int // the program's own descriptors, until it has them
	tty        bool
	tree       bool // treeFD is the /proc in which scores can be written
	pid        int
	done       bool // the program was reaped
	canceling  bool
	killAt     time.Time
	giveUpAt   time.Time
	killPeriod time.Duration
}

func send(r record, fds ...int) bool {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	b := r.bytes()
	if sys.Canary {
		sys.Mirror("guardian sent", pidBytes(unix.Getpid()), b)
	}
	for {
		n, err := unix.SendmsgN(ChannelFD, b, oob, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		return err == nil && n == len(b)
	}
}

// start runs the program or reports why not.
func (g *guard) start(cmd *command) bool {
	why, err := g.exec(cmd)
	if err == nil {
		return true
	}
	errno, _ := err.(syscall.Errno)
	send(record{kind: recFailed, a: uint32(why), b: uint64(errno)})
	return false
}

func (g *guard) exec(cmd *command) (why int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.Umask(0o022)
	// Whatever this process holds stays out of the program. Descriptors 0-2 are
	// set by the fork itself; everything else closes on exec, by the kernel.
	if err := closingRange(ChannelFD); err != nil {
		return whyInternal, err
	}
	if err := unix.Chdir(cmd.dir); err != nil {
		return whyDir, err
	}
	path := self
	argv := cmd.argv
	if cmd.builtin != "" {
		argv = []string{"caisson-worker", cmd.builtin}
	} else if path, why, err = lookPath(cmd.argv[0], cmd.env); err != nil {
		return why, err
	}
	for _, l := range cmd.rlimits {
		// syscall.Setrlimit, not the raw call: it also makes the runtime forget
		// the descriptor limit that it would restore in the child.
		if err := syscall.Setrlimit(l.Resource, &syscall.Rlimit{Cur: l.Soft, Max: l.Hard}); err != nil {
			return whyLimit, err
		}
	}
	var none unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil); err != nil {
		return whyInternal, err
	}
	files := make([]uintptr, 3)
	for i := range files {
		files[i] = uintptr(g.stdio[min(i, len(g.stdio)-1)]) // a terminal is all three
	}
	pidfd := -1
	g.pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env: cmd.env, Files: files,
		// A session of its own: no terminal but the given one, and one process
		// group that takes signals as a shell's pipeline would.
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: cmd.tty, Ctty: 0, PidFD: &pidfd},
	})
	if err != nil {
		return startFailure(err, cmd.tty), err
	}
	if g.tree {
		offer(g.pid)
	}
	for _, fd := range g.stdio {
		_ = unix.Close(fd) // else the program's pipes would not end before we do
	}
	ok := false
	if pidfd >= 0 {
		ok = send(record{kind: recStarted, b: uint64(g.pid)}, pidfd)
		_ = unix.Close(pidfd)
	} else {
		ok = send(record{kind: recStarted, b: uint64(g.pid), c: 1})
	}
	if !ok {
		killTree(unix.Getpid())
		return whyInternal, errors.New("nobody to report to")
	}
	return 0, nil
}

func startFailure(err error, tty bool) int {
	switch err {
	case unix.ENOENT, unix.ENOTDIR:
		return whyNotFound // of the interpreter: the program itself was looked up
	case unix.EACCES, unix.ENOEXEC, unix.EISDIR, unix.ELOOP, unix.EINVAL, unix.ELIBBAD, unix.ETXTBSY, unix.E2BIG, unix.EPERM:
		if err == unix.EPERM && tty {
			return whyTTY
		}
		return whyNotExec
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return whyLimit
	case unix.ENOTTY, unix.EIO:
		return whyTTY
	}
	return whyInternal
}

// lookPath finds a program as a shell does, in the PATH it will have itself.
func lookPath(name string, env []string) (path string, why int, err error) {
	if name == "" {
		return "", whyNotFound, unix.ENOENT
	}
	if strings.Contains(name, "/") {
		why, err := executable(name)
		return name, why, err
	}
	list := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			list = v
		}
	}
	why, err = whyNotFound, unix.ENOENT
	for dir := range strings.SplitSeq(list, ":") {
		if dir == "" {
			dir = "."
		}
		w, e := executable(dir + "/" + name)
		if e == nil {
			return dir + "/" + name, 0, nil
		}
		if w == whyNotExec {
			why, err = w, e
		}
	}
	return "", why, err
}

func executable(path string) (why int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if err == unix.EACCES || err == unix.ELOOP {
			return whyNotExec, err
		}
		return whyNotFound, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return whyNotExec, unix.EISDIR
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return whyNotExec, unix.EACCES
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return whyNotExec, err
	}
	return 0, nil
}

// watch waits for the program, for orders and for time, in one loop, so that
// no process is signalled while another thread reaps it.
func (g *guard) watch() int {
	orders := make(chan record)
	go func() {
		defer close(orders)
		var b [recordSize]byte
		for readFull(ChannelFD, b[:]) == nil {
			orders <- parseRecord(b[:])
		}
	}()
	dead, reaped := make(chan bool), make(chan struct{})
	go func() {
		for {
			err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if err == unix.EINTR {
				continue
			}
			dead <- err == nil
			if err != nil {
				return // no child left
			}
			<-reaped
		}
	}()
	tick := time.NewTimer(time.Hour)
	for {
		select {
		case r, ok := <-orders:
			switch {
			case !ok:
				return ExitOK // I is gone, and soon so are we
			case r.kind == recBye && g.done && !g.canceling:
				return ExitOK
			case r.kind == recSignal && !g.done:
				// The group, as a terminal would, so that a pipeline ends whole.
				_ = unix.Kill(-g.pid, syscall.Signal(r.a))
			case r.kind == recCancel:
				g.cancel(r)
				tick.Reset(0)
			}
		case some := <-dead:
			if !some {
				if g.canceling {
					send(record{kind: recClear})
					return ExitOK
				}
				dead = nil // the program has ended; the goodbye is on its way
				continue
			}
			g.reap()
			reaped <- struct{}{}
		case <-tick.C:
			now := time.Now()
			switch {
			case !g.canceling:
				continue
			case now.After(g.giveUpAt):
				send(record{kind: recNotClear, b: uint64(signalTree(unix.Getpid()))})
				return ExitOK
			case now.Before(g.killAt):
				tick.Reset(g.killAt.Sub(now))
			default:
				killTree(unix.Getpid())
				g.killPeriod = min(g.killPeriod*2+time.Millisecond, 50*time.Millisecond)
				tick.Reset(g.killPeriod)
			}
			if dead == nil {
				// Everything had ended before the cancel came.
				send(record{kind: recClear})
				return ExitOK
			}
		}
	}
}

// cancel begins or shortens the end of the call.
func (g *guard) cancel(r record) {
	killAt := time.Now().Add(time.Duration(r.b) * time.Millisecond)
	if g.canceling {
		if killAt.Before(g.killAt) {
			g.killAt = killAt
			g.giveUpAt = killAt.Add(time.Duration(r.c) * time.Millisecond)
		}
		return
	}
	g.canceling, g.killAt = true, killAt
	g.giveUpAt = killAt.Add(time.Duration(r.c) * time.Millisecond)
	if r.b == 0 {
		return
	}
	if g.tty {
		// An interactive shell ignores SIGTERM; a hang-up ends it and its jobs.
		signalTree(unix.Getpid(), unix.SIGHUP, unix.SIGTERM, unix.SIGCONT)
	} else {
		signalTree(unix.Getpid(), unix.SIGTERM, unix.SIGCONT)
	}
}

// reap takes every child that has ended and reports the program's own end.
func (g *guard) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if pid == g.pid && !g.done {
			g.done = true
			send(record{kind: recExit, a: uint32(ws)})
		}
	}
}
