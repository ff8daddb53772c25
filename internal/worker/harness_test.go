//go:build linux

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/internal/worker/frame"
	"github.com/caisson-dev/caisson/internal/worker/inside"
)

// The tests run the real roles as real processes in real namespaces. The test
// program itself is the worker: the host side starts it with the role "init".
// Only the stage is smaller than the backend's: no mounts but a fresh /proc,
// no seccomp, no Landlock. What holds here holds without those layers.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == inside.RoleRelay {
		os.Exit(inside.Main(os.Args, testHooks()))
	}
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case roleBomb:
			bomb()
		case roleStop:
			stopStarts()
		case roleAttack:
			attack()
			os.Exit(0)
		case inside.RoleInit, inside.RoleSpace, inside.RoleTools, inside.RoleCall, inside.RoleProbe:
			os.Exit(inside.Main(os.Args, testHooks()))
		}
	}
	// Whoever runs the tests may have left descriptors open that do not close
	// on exec; the worker refuses to start with any.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	os.Exit(m.Run())
}

func freshProc() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// dropAll takes every capability from the calling thread.
func dropAll() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capset(&head, &data[0])
}

func testHooks() inside.Hooks {
	return inside.Hooks{
		Build: func(int) (inside.Built, error) {
			id := []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 1000, Size: 1}}
			return inside.Built{
				Attr: &syscall.SysProcAttr{
					Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
					UidMappings: id, GidMappings: id, Setsid: true,
					AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
				},
				Tell: func(fd int) error { _, err := unix.Write(fd, []byte("pr")); return err },
				File: -1,
			}, freshProc()
		},
		DropWorker: dropAll,
		SealWorker: func(int) (string, error) { return "/tmp", nil },
		Report: func(fd, _, _ int, err error) error {
			msg := "k"
			if err != nil {
				msg = err.Error()
			}
			_, werr := unix.Write(fd, []byte(msg))
			return werr
		},
		DropSpace: func(fd int) (inside.Scores, error) {
			none := inside.Scores{Own: -1, Tree: -1}
			if !told(fd, 'p') {
				return none, unix.EPROTO
			}
			if err := freshProc(); err != nil {
				return none, err
			}
			return none, dropAll()
		},
		SealSpace: func(fd int) (inside.Space, error) {
			if !told(fd, 'r') {
				return inside.Space{}, unix.EPROTO
			}
			return inside.Space{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "PLAN=yes", "BOTH=plan"}, Dir: "/tmp"}, nil
		},
		Probe: func(spec []byte) ([]byte, error) { return append([]byte("probed "), spec...), nil },
	}
}

// told reads one byte of what Tell sent.
func told(fd int, want byte) bool {
	var b [1]byte
	n, err := unix.Read(fd, b[:])
	return err == nil && n == 1 && b[0] == want
}

// program is the mode of the worker's file. Nobody may read it, not even its
// owner, whose uid the inside shares when an ordinary user runs caisson: the
// kernel then makes each of its processes non-dumpable before the first
// instruction. With a readable file a tool could enter a guardian between its
// exec and its own prctl.
var program os.FileMode = 0o111

// ownProgram copies this program to where any uid can start it.
func ownProgram(t testing.TB, mode os.FileMode) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "caisson-worker-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// Written under another mode and then closed: a file open for writing
	// cannot be started.
	if err := os.WriteFile(dir+"/tool", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/tool", mode); err != nil {
		t.Fatal(err)
	}
	return dir + "/tool"
}

// box is one running worker.
type box struct {
	t      testing.TB
	cmd    *exec.Cmd
	conn   *net.UnixConn
	client *worker.Client
	poison chan error
	exited chan struct{}
}

// launchAs starts W as uid and returns the host's end of its channel, before
// hello.
func launchAs(t testing.TB, uid int) *box {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	ours := os.NewFile(uintptr(pair[0]), "ours")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	b := &box{t: t, conn: conn.(*net.UnixConn), poison: make(chan error, 1), exited: make(chan struct{})}
	id := func(host int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 1000, HostID: host, Size: 1}}
	}
	b.cmd = &exec.Cmd{Path: ownProgram(t, program), Args: []string{"caisson-worker", inside.RoleInit}, Env: []string{}, ExtraFiles: []*os.File{theirs}, Stderr: os.Stderr}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		UidMappings: id(uid), GidMappings: id(os.Getgid()), Setsid: true,
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID},
	}
	if uid != os.Getuid() {
		b.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 1000, Gid: 1000, NoSetGroups: true}
	}
	err = b.cmd.Start()
	_ = theirs.Close()
	if err != nil {
		t.Fatalf("a user namespace is needed for this test: %v", err)
	}
	go func() { _ = b.cmd.Wait(); close(b.exited) }()
	t.Cleanup(func() {
		if b.client != nil {
			_ = b.client.Close()
		}
		_ = b.conn.Close()
		select {
		case <-b.exited:
		case <-time.After(20 * time.Second):
			_ = b.cmd.Process.Kill()
			t.Error("the worker outlived its channel")
		}
	})
	var one [256]byte
	n, err := b.conn.Read(one[:1])
	if err != nil || one[0] != 'k' {
		rest, _ := b.conn.Read(one[1:])
		t.Fatalf("worker did not start: %v %q", err, one[:n+rest])
	}
	return b
}

func start(t testing.TB) *box { return startAs(t, os.Getuid()) }

func startAs(t testing.TB, uid int) *box {
	t.Helper()
	b := launchAs(t, uid)
	var err error
	b.client, err = worker.Start(context.Background(), b.conn, worker.Options{WorkerPID: b.cmd.Process.Pid, OnPoison: func(e error) { b.poison <- e }})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// running is a call with its streams collected.
type running struct {
	*worker.Call
	in       *os.File
	out, err chan []byte
}

// exec starts argv; the test closes in.
func (b *box) exec(c worker.Command) (*running, error) {
	b.t.Helper()
	var theirs [3]*os.File
	r := &running{out: make(chan []byte, 1), err: make(chan []byte, 1)}
	drain := func(ch chan []byte) *os.File {
		rd, wr, err := os.Pipe()
		if err != nil {
			b.t.Fatal(err)
		}
		go func() {
			all, _ := io.ReadAll(rd)
			_ = rd.Close()
			ch <- all
		}()
		return wr
	}
	rd, wr, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	r.in = wr
	theirs[0], theirs[1], theirs[2] = rd, drain(r.out), drain(r.err)
	r.Call, err = b.client.Exec(context.Background(), c, theirs[:])
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		_ = r.in.Close()
	}
	return r, err
}

// sh runs a shell line to its end with empty input.
func (b *box) sh(line string, env ...string) (exit int, out, errout string) {
	b.t.Helper()
	r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", line}, Env: env})
	if err != nil {
		b.t.Fatalf("%s: %v", line, err)
	}
	_ = r.in.Close()
	o, err := r.Wait(deadline(b.t, 60*time.Second))
	if err != nil {
		b.t.Fatalf("%s: %v", line, err)
	}
	if !o.Observed && observes() {
		b.t.Errorf("%s: the kernel's own word was not used", line)
	}
	return o.Exit, string(<-r.out), string(<-r.err)
}

// observes reports whether this kernel tells exits to pidfd holders (6.15).
func observes() bool {
	var u unix.Utsname
	_ = unix.Uname(&u)
	major, rest, _ := strings.Cut(string(bytes.TrimRight(u.Release[:], "\x00")), ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	i, _ := strconv.Atoi(minor)
	return a > 6 || a == 6 && i >= 15
}

func deadline(t testing.TB, d time.Duration) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), d)
	t.Cleanup(stop)
	return ctx
}

func rlimits(res int, n uint64) []frame.Rlimit {
	return []frame.Rlimit{{Resource: res, Soft: n, Hard: n}}
}

func devNull(t testing.TB) []*os.File {
	t.Helper()
	var fs []*os.File
	for range 3 {
		f, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		fs = append(fs, f)
	}
	return fs
}

// space returns I's pid; it is W's only child, of any of its threads.
func (b *box) space() int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", b.cmd.Process.Pid))
	for _, l := range lists {
		kids, _ := os.ReadFile(l)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(kids))); err == nil {
			return pid
		}
	}
	b.t.Fatal("the tool space is not there")
	return 0
}
