//go:build linux

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

package guest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/internal/worker/guest"
	"github.com/caisson-dev/caisson/internal/worker/inside"
)

// The tests run the real roles: the test program is the worker, process 1 of a pid
// namespace, with a stream and nothing else. No engine is needed for that.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case inside.RoleGuest, inside.RoleGuestCall:
			os.Exit(inside.Main(os.Args, inside.Hooks{}))
		}
	}
	os.Exit(m.Run())
}

const (
	toolUser = 64321
	patience = 30 * time.Second
)

// stream is the host's end: no descriptors go over.
type stream struct{ net.Conn }

func (stream) Multiplexed() task.Assurance { return task.UIDSplit }

// allow is a system call filter that refuses nothing but user namespaces: what else
// one refuses is tried elsewhere.
func allow() []byte {
	const k = 4 + 4
	ins := func(code uint16, jt, jf byte, v uint32) []byte {
		return []byte{byte(code), byte(code >> 8), jt, jf, byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}
	}
	var p []byte
	p = append(p, ins(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, 0)...)
	p = append(p, ins(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, unix.SYS_UNSHARE)...)
	p = append(p, ins(unix.BPF_RET|unix.BPF_K, 0, 0, unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM))...)
	return append(p, ins(unix.BPF_RET|unix.BPF_K, 0, 0, unix.SECCOMP_RET_ALLOW)...)[:4*k]
}

// start starts a worker under prefix, for example one that takes rights away, and
// returns its answer to p.
func start(t *testing.T, p guest.Plan, prefix ...string) (net.Conn, guest.Report) {
	t.Helper()
	if withCgo {
		t.Skip("built with cgo (the race detector): no system call on all threads")
	}
	if os.Getuid() != 0 {
		t.Skip("to have more than one user id needs root")
	}
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skipf("no unshare here: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// As a backend has it: everybody may run it, and nobody read it.
	own := filepath.Join(public(t), "worker")
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(own, data, 0o700)
	}
	if err == nil {
		err = os.Chmod(own, 0o111)
	}
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	f := os.NewFile(uintptr(pair[0]), "ours")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	argv := append([]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, append(prefix, own, inside.RoleGuest)...)
	cmd := exec.Command("unshare", argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() {
		conn.Close()
		done := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer done.Stop()
		_ = cmd.Wait()
	})
	_ = conn.SetDeadline(time.Now().Add(patience))
	var r guest.Report
	err = guest.Send(conn, p)
	if err == nil {
		err = guest.Receive(conn, &r)
	}
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, r
}

func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "guest-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// plan is one with a folder of the tools' user.
func plan(t *testing.T) guest.Plan {
	t.Helper()
	dir := filepath.Join(public(t), "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, toolUser, toolUser); err != nil {
			t.Fatal(err)
		}
	}
	return guest.Plan{UID: toolUser, GID: toolUser, Owned: []string{dir}, Workdir: dir, Env: []string{"PATH=/usr/bin:/bin"}, Filter: allow()}
}

func client(t *testing.T, p guest.Plan) *worker.Client {
	t.Helper()
	conn, r := start(t, p)
	if !r.OK || r.Boot == "" || r.Start == 0 || !r.NoNewPrivs {
		t.Fatalf("%+v", r)
	}
	c, err := worker.Start(t.Context(), stream{conn}, worker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// run runs a command and returns what it printed and how it ended.
func run(t *testing.T, c *worker.Client, argv ...string) (string, task.Outcome) {
	t.Helper()
	k, out := begin(t, c, argv...)
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), ended(t, k)
}

func begin(t *testing.T, c *worker.Client, argv ...string) (*worker.Call, *os.File) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	_ = r.SetReadDeadline(time.Now().Add(patience))
	k, err := c.Exec(t.Context(), worker.Command{Argv: argv}, []*os.File{null, w, w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return k, r
}

func ended(t *testing.T, k *worker.Call) task.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o, err := k.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestCommandsOfAGuest(t *testing.T) {
	p := plan(t)
	c := client(t, p)
	out, o := run(t, c, "sh", "-c", "id -u; id -g; pwd; grep -E '^(Cap(Eff|Prm|Inh|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\n\\t'; echo; exit 7")
	want := fmt.Sprintf("%[1]d\n%[1]d\n%[2]s\n", toolUser, p.Workdir)
	if o.Exit != 7 || o.Observed || !strings.HasPrefix(out, want) || strings.Count(out, "0000000000000000") != 4 || !strings.Contains(out, "NoNewPrivs:1") || !strings.Contains(out, "Seccomp:2") {
		t.Errorf("%+v: %s", o, out)
	}
	// What was put out is there when the end is told, however much it is.
	if out, o := run(t, c, "sh", "-c", "seq 1 200000"); o.Exit != 0 || !strings.HasSuffix(out, "\n200000\n") {
		t.Errorf("%+v, %d bytes", o, len(out))
	}
	// The worker is another user, whom tools can neither end nor look into.
	out, _ = run(t, c, "sh", "-c", "kill -9 1 && echo killed; cat /proc/1/environ /proc/1/mem && echo read; ls -l /proc/1/fd && echo listed; cat /proc/1/root/etc/hostname && echo entered; grep ^Uid: /proc/1/status")
	if strings.Contains(out, "killed") || strings.Contains(out, "read\n") || strings.Contains(out, "listed") || strings.Contains(out, "entered") || !strings.Contains(out, "Uid:\t0\t0\t0\t64321") {
		t.Errorf("what a tool can do to the worker: %s", out)
	}
	if out, _ := run(t, c, "echo", "alive"); out != "alive\n" {
		t.Errorf("after that: %q", out)
	}
	// The files of file tools are the tools'.
	r, err := c.Tool(t.Context(), "write_file", []byte(`{"path":"made.txt","content":"by the worker\n"}`), nil)
	if err != nil || r.Failure != nil {
		t.Fatalf("%+v %v", r.Failure, err)
	}
	r.Close()
	st, err := os.Stat(filepath.Join(p.Workdir, "made.txt"))
	if err != nil || st.Sys().(*syscall.Stat_t).Uid != toolUser {
		t.Errorf("made by the worker: %v, %v", st, err)
	}
	// What only user 0 may read, the worker's tools may not either.
	if r, err := c.Tool(t.Context(), "read_file", []byte(`{"path":"/etc/shadow"}`), nil); err != nil || r.Failure == nil {
		t.Errorf("a file of root's: %+v %v", r, err)
	}
}

func TestEndsOfAGuest(t *testing.T) {
	c := client(t, plan(t))
	// Canceled: everything that it started is gone.
	k, _ := begin(t, c, "sh", "-c", "trap '' TERM; sleep 600 & sleep 600")
	if err := k.Cancel(t.Context(), 10*time.Millisecond); err != nil {
		t.Error(err)
	}
	// All are killed, and each call knows how its own ended.
	var calls []*worker.Call
	for range 3 {
		k, _ := begin(t, c, "sh", "-c", "sleep 600 & sleep 600")
		calls = append(calls, k)
	}
	if err := c.KillAll(t.Context(), patience); err != nil {
		t.Error(err)
	}
	for _, k := range calls {
		if o := ended(t, k); o.Signal != int(syscall.SIGKILL) {
			t.Errorf("it ended as %+v", o)
		}
	}
	if out, _ := run(t, c, "sh", "-c", "ls -d /proc/[0-9]* | wc -l"); strings.TrimSpace(out) > "6" || len(strings.TrimSpace(out)) > 1 {
		t.Errorf("%s processes are left", strings.TrimSpace(out))
	}
	// One whose guardian is killed has an unknown outcome.
	k, _ = begin(t, c, "sh", "-c", "sleep 0.5; kill -9 $PPID; sleep 600")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := k.Wait(ctx); task.CodeOf(err) != task.CodeOutcomeUnknown {
		t.Errorf("%v", err)
	}
}

// What is not as planned is said before anything runs.
func TestRefusalsOfAGuest(t *testing.T) {
	mark := filepath.Join(public(t), "mark")
	if err := os.WriteFile(mark, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*guest.Plan)
		prefix []string
		why    guest.Why
		says   string
	}{
		"the owner":     {func(p *guest.Plan) { p.UID = toolUser + 1 }, nil, guest.WhyOwner, "belongs to user 64321"},
		"the mark":      {func(p *guest.Plan) { p.Mark, p.MarkText = mark, "ours" }, nil, guest.WhyMark, "is not what"},
		"no mark":       {func(p *guest.Plan) { p.Mark, p.MarkText = mark+"x", "ours" }, nil, guest.WhyMark, "no such file"},
		"one user":      {func(p *guest.Plan) { p.UID, p.Owned = 0, nil }, nil, guest.WhyCaps, "the user of the tools"},
		"no capability": {func(p *guest.Plan) {}, []string{"setpriv", "--bounding-set=-setuid", "--inh-caps=-all"}, guest.WhyCaps, "not permitted"},
		"no folder":     {func(p *guest.Plan) { p.Owned = []string{"/does/not/exist"} }, nil, "", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.prefix) > 0 {
				if _, err := exec.LookPath(c.prefix[0]); err != nil {
					t.Skipf("no %s here: %v", c.prefix[0], err)
				}
			}
			p := plan(t)
			c.change(&p)
			conn, r := start(t, p, c.prefix...)
			if r.OK || r.Why != c.why || !strings.Contains(r.Error, c.says) {
				t.Errorf("%+v", r)
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Error("the worker goes on")
			}
		})
	}
}

// Where tools are user 0, the worker is another.
func TestToolsOfUser0(t *testing.T) {
	p := plan(t)
	p.UID, p.GID, p.Worker, p.Owned = 0, 0, 4242, nil
	c := client(t, p)
	out, _ := run(t, c, "sh", "-c", "id -u; grep -E '^(Uid|CapEff):' /proc/1/status /proc/self/status | cut -d: -f3; kill -9 1 && echo killed; cat /proc/1/environ && echo read")
	if !strings.Contains(out, "0\n\t4242\t4242\t4242\t0\n") || !strings.Contains(out, "00000000000000e0\n") || !strings.Contains(out, "0000000000000000\n") || strings.Contains(out, "killed") || strings.Contains(out, "read\n") {
		t.Errorf("%s", out)
	}
}
