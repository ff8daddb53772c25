//go:build linux && canary

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/linux"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

// limit bounds everything that is waited for. Only a fault reaches it, or, with
// no protection at all, what a forgery broke.
var limit = func() time.Duration {
	if sys.Without("mac") && sys.Without("sender") {
		return 15 * time.Second
	}
	return 90 * time.Second
}()

type rig struct {
	o      order
	worker string
	book   *book
	box    *box
	honest int
	serial int
}

func kernel() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}

func newRig(o order) (*rig, error) {
	if o.Spawns > 2000 { // the forker beside them runs as long as they do
		limit = 30 * time.Minute
	}
	r := &rig{o: o, book: newBook(time.Duration(o.LateMS) * time.Millisecond), worker: filepath.Join(o.Dir, "worker")}
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	mode := os.FileMode(0o111)
	if sys.Without("unreadable") {
		mode = 0o755
	}
	if err := errors.Join(os.WriteFile(r.worker, data, 0o600), os.Chmod(r.worker, mode)); err != nil {
		return nil, err
	}
	return r, nil
}

// box is one boundary with its channel and the traffic beside the probe.
type box struct {
	r      *rig
	in     backend.Instance
	c      *worker.Client
	src    string
	poison chan error
	gate   sync.RWMutex // held for writing: no traffic
	stop   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	lost    []string
	unknown int
	honest  int
	victim  string // operation and digest of a call that runs
}

// open makes a boundary. relay may stand between the host and W.
func (r *rig) open(relay func(net.Conn) (net.Conn, int, error)) (*box, error) {
	return r.openRoot("", relay)
}

// openRoot is open with a root folder of its own.
func (r *rig) openRoot(root string, relay func(net.Conn) (net.Conn, int, error)) (*box, error) {
	r.serial++
	dir := filepath.Join(r.o.Dir, fmt.Sprint("b", r.serial))
	b := &box{r: r, src: dir + "/src", poison: make(chan error, 1), stop: make(chan struct{})}
	for _, d := range []string{dir, b.src, dir + "/out"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, err
		}
	}
	data, err := os.ReadFile(r.o.Attacker)
	if err == nil {
		err = errors.Join(os.WriteFile(b.src+"/attacker", data, 0o755), os.Chmod(b.src+"/attacker", 0o755))
	}
	if err != nil {
		return nil, err
	}
	d := linux.New(linux.Config{Worker: func() (string, error) { return r.worker, nil }})
	b.in, err = d.Create(background, backend.Spec{
		Task: task.NewID(), Instance: "forgerys", Token: task.NewToken(),
		Identity: task.Identity{UID: os.Getuid(), GID: os.Getgid(), Login: "tester", Home: "/home/tester"},
		Source:   backend.Mount{Source: b.src, Target: "/home/tester/src", Writable: true},
		Out:      backend.Mount{Source: dir + "/out", Target: backend.OutDir, Writable: true},
		Rootfs:   root,
		Home:     "/home/tester", WorkerPath: r.worker, Hostname: "box",
		Env:    []string{"HOME=/home/tester", "PATH=/usr/local/bin:/usr/bin:/bin", "GOMAXPROCS=2"},
		Limits: task.Limits{MemoryBytes: 320 << 20, Pids: 256},
		Ptrace: r.o.Grants, Userns: r.o.Grants,
	})
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, task.HintOf(err))
	}
	conn, err := b.in.Dial(background)
	if err != nil {
		return nil, err
	}
	obs, err := b.in.Observe(background)
	if err != nil {
		return nil, err
	}
	pid := obs.WorkerPID
	if relay != nil {
		if conn, pid, err = relay(conn); err != nil {
			return nil, err
		}
	}
	b.c, err = worker.Start(background, conn, worker.Options{WorkerPID: pid, OnPoison: func(e error) { b.poison <- e }, Heartbeat: time.Hour, HeartbeatLost: 2 * time.Hour})
	if err != nil {
		_ = b.in.Destroy(background)
		return nil, err
	}
	return b, nil
}

// traffic runs honest calls until the box is closed, and holds each to its
// outcome.
func (b *box) traffic(lanes int) {
	for lane := range lanes {
		b.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-b.stop:
					return
				case <-b.c.Done():
					return
				default:
				}
				b.gate.RLock()
				id, exit := fmt.Sprintf("%d.%d", lane, i), (lane+i)%7
				out, o, err := b.plain(fmt.Sprintf("echo %s; exit %d", id, exit))
				b.gate.RUnlock()
				b.judge(id, out, id+"\n", o, exit, err)
			}
		})
	}
}

// judge holds an operation to what it must have come to, or to a typed error.
func (b *box) judge(what, out, want string, o task.Outcome, exit int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.honest++
	switch task.CodeOf(err) {
	case "":
		if o.Observed && o.Signal == int(unix.SIGKILL) && b.ending() {
			break // the kernel ended it with its boundary, and the host was told so
		}
		if out != want || o.Exit != exit {
			b.lost = append(b.lost, fmt.Sprintf("%s: %q %+v", what, out, o))
		}
	case task.CodeOutcomeUnknown:
		b.unknown++
	case task.CodeLimit, task.CodeChannel: // not started, and said so
	default:
		b.lost = append(b.lost, fmt.Sprintf("%s: %v", what, err))
	}
}

// ending reports whether the channel is given up, or is within a moment: the
// boundary's processes end before the host reads that their channel did.
func (b *box) ending() bool {
	select {
	case <-b.c.Done():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// plain runs a shell line whose output goes to memory of the host, so that no
// descriptor left with another program keeps its end from being seen.
func (b *box) plain(script string) (string, task.Outcome, error) {
	fd, err := unix.MemfdCreate("out", unix.MFD_CLOEXEC)
	if err != nil {
		return "", task.Outcome{}, err
	}
	f := os.NewFile(uintptr(fd), "out")
	defer f.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		return "", task.Outcome{}, err
	}
	defer null.Close()
	ctx, stop := context.WithTimeout(background, limit)
	defer stop()
	call, err := b.c.Exec(ctx, worker.Command{Argv: []string{"/bin/sh", "-c", script}}, []*os.File{null, f, f})
	if err != nil {
		return "", task.Outcome{}, err
	}
	o, err := call.Wait(ctx)
	data := make([]byte, 4096)
	n, _ := f.ReadAt(data, 0)
	return string(data[:n]), o, err
}

// run runs a program to its end. talk answers its questions.
func (b *box) run(talk func(q string) string, argv ...string) (string, task.Outcome, error) {
	ctx, stop := context.WithTimeout(background, limit)
	defer stop()
	outR, outW, err := os.Pipe()
	if err != nil {
		return "", task.Outcome{}, err
	}
	defer outR.Close()
	inR, inW, err := os.Pipe()
	if err != nil {
		return "", task.Outcome{}, err
	}
	defer inW.Close()
	call, err := b.c.Exec(ctx, worker.Command{Argv: argv}, []*os.File{inR, outW, outW})
	inR.Close()
	outW.Close()
	if err != nil {
		return "", task.Outcome{}, err
	}
	if talk == nil {
		inW.Close()
	}
	read := make(chan string, 1)
	go func() {
		var all strings.Builder
		s := bufio.NewReader(outR)
		for {
			l, err := s.ReadString('\n')
			var q attempt
			if strings.HasPrefix(l, `{"What":"","Did":"","Ask":"end"}`) {
				read <- all.String()
				return
			}
			if talk != nil && json.Unmarshal([]byte(l), &q) == nil && q.Ask != "" {
				_, _ = io.WriteString(inW, talk(q.Ask)+"\n")
			} else {
				all.WriteString(l)
			}
			if err != nil {
				read <- all.String()
				return
			}
		}
	}()
	o, err := call.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		kill, done := context.WithTimeout(background, limit)
		err = errors.Join(err, call.Cancel(kill, 0))
		done()
	}
	_ = outR.SetReadDeadline(time.Now().Add(5 * time.Second)) // of what a program left behind that keeps the pipe
	return <-read, o, err
}

// attempt is a line of the hostile program.
type attempt struct{ What, Did, Errno, Layer, Leak, Ask string }

// attack runs one probe of the hostile program and enters what it says.
func (b *box) attack(res *result, args ...string) (task.Outcome, error) {
	return b.attackAs(res, append([]string{"/home/tester/src/attacker"}, args...)...)
}

// attackAs is attack with a program that is told what it is by its name.
func (b *box) attackAs(res *result, argv ...string) (task.Outcome, error) {
	for try := 0; ; try++ {
		a := asker{b: b}
		out, o, err := b.run(a.answer, argv...)
		a.done()
		res.enter(b.r, out)
		// What an earlier probe left behind may have ended the guardian before the
		// program could say a word; the host then rightly knows nothing of it.
		if out != "" || task.CodeOf(err) != task.CodeOutcomeUnknown || try == 3 {
			return o, err
		}
		res.Unknown++
	}
}

func (res *result) enter(r *rig, out string) {
	for l := range strings.Lines(out) {
		var a attempt
		if json.Unmarshal([]byte(l), &a) != nil || a.What == "" {
			continue
		}
		res.Attempts++
		switch a.Did {
		case "possible":
			res.Possible = append(res.Possible, a.What)
		case "done":
			res.Done++
		default:
			res.Denied[a.Layer]++
		}
		if r.book.leaked(a.Leak) {
			res.Leaked = append(res.Leaked, a.What)
		}
	}
}

// asker answers one hostile program.
type asker struct {
	b     *box
	mu    sync.Mutex
	quiet bool // it holds the gate
}

// done lets the traffic go on when the program ended without saying so.
func (a *asker) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quiet {
		a.b.gate.Unlock()
		a.quiet = false
	}
}

// answer tells the hostile program what is no secret: the numbers of the frame
// that the worker would send next. There is no other traffic meanwhile.
func (a *asker) answer(q string) string {
	b := a.b
	switch q {
	case "quiet":
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.quiet {
			b.gate.Lock()
			a.quiet = true
		}
	case "next":
		b.mu.Lock()
		defer b.mu.Unlock()
		return fmt.Sprint(b.r.book.nextSeq(), " ", b.victim)
	case "ping":
		ctx, stop := context.WithTimeout(background, time.Second)
		defer stop()
		for range 40 {
			_ = b.c.Ping(ctx)
		}
	case "spoken":
		time.Sleep(20 * time.Millisecond) // for what was said to be heard
		a.done()
	case "exhausted":
		for i := range 4 {
			out, o, err := b.plain(fmt.Sprintf("echo while %d; exit 5", i))
			b.judge("while exhausted", out, fmt.Sprintf("while %d\n", i), o, 5, err)
		}
	}
	return ""
}

// close ends the boundary. poisoned says that the channel was given up before.
func (b *box) close() (poisoned bool, err error) {
	close(b.stop)
	select {
	case <-b.c.Done():
		poisoned = true
	default:
	}
	if !poisoned {
		b.wg.Wait()
	}
	_ = b.c.Close()
	err = b.in.Destroy(background)
	b.wg.Wait()
	return poisoned, err
}
