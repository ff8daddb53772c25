//go:build linux

package linux

import (
	"bufio"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

var scopeLimits = task.Limits{MemoryBytes: 1 << 30, Pids: 99, CPUs: 1.5}

// fitsSocket skips where the kernel takes no socket of that name.
func fitsSocket(t *testing.T, path string) {
	t.Helper()
	if len(path) > 107 {
		t.Skipf("%s is too long for the address of a socket: set a shorter TMPDIR", path)
	}
}

// A real bus daemon checks every message against its signature and drops the
// connection of a sender of bad ones. Ours arrives: the answer is that no
// systemd is there. This machine has none to make a scope with.
func TestScopeRequestIsWellFormed(t *testing.T) {
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed")
	}
	// Not below TMPDIR: the daemon refuses names of more than 99 bytes, which the
	// kernel still takes.
	dir, err := os.MkdirTemp("/tmp", "bus")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "bus")
	conf := filepath.Join(dir, "conf")
	must(t, os.WriteFile(conf, []byte(`<busconfig><listen>unix:path=`+path+`</listen><auth>EXTERNAL</auth><policy context="default"><allow send_destination="*" eavesdrop="true"/><allow own="*"/><allow receive_type="method_return"/><allow receive_type="error"/><allow receive_type="signal"/><allow user="*"/></policy></busconfig>`), 0o644))
	cmd := exec.Command(daemon, "--nofork", "--config-file="+conf, "--print-address")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	err = userManager{path: path, bus: true}.start(t.Context(), "caisson-x.scope", os.Getpid(), scopeLimits)
	if err == nil || !strings.Contains(err.Error(), "ServiceUnknown") {
		t.Errorf("answer: %v", err)
	}
}

// A stand-in for systemd's private socket: it answers as systemd does.
func TestScopeOverPrivateSocket(t *testing.T) {
	dir := publicTemp(t)
	base := filepath.Join(dir, strconv.Itoa(os.Getuid()), "systemd")
	fitsSocket(t, filepath.Join(base, "private"))
	must(t, os.MkdirAll(base, 0o755))
	if _, ok := findUserManager(dir, os.Getuid()); ok {
		t.Fatal("found a manager where there is none")
	}
	l := listenUnix(t, filepath.Join(base, "private"))
	defer l.Close()
	m, ok := findUserManager(dir, os.Getuid())
	if !ok || m.bus {
		t.Fatalf("%+v", m)
	}
	if _, ok := findUserManager(dir, os.Getuid()+1); ok {
		t.Error("found another user's manager")
	}
	for _, refuse := range []bool{false, true} {
		done := make(chan string, 1)
		go func() { done <- serveOne(l, refuse) }()
		err := m.start(t.Context(), "caisson-x.scope", 4242, scopeLimits)
		got := <-done
		if !strings.Contains(got, "StartTransientUnit") || !strings.Contains(got, "caisson-x.scope") || !strings.Contains(got, "MemoryMax") {
			t.Errorf("request %q", got)
		}
		if refuse != (err != nil) || refuse && !strings.Contains(err.Error(), "no.No: because") {
			t.Errorf("refused %v: %v", refuse, err)
		}
	}
}

// TestWhomToAsk: a scope is asked for where our own groups leave a limit out, of
// root's systemd only where they bound the rest: it is in one tree with them.
func TestWhomToAsk(t *testing.T) {
	dir := publicTemp(t)
	base := filepath.Join(dir, strconv.Itoa(os.Getuid()), "systemd")
	fitsSocket(t, filepath.Join(base, "private"))
	must(t, os.MkdirAll(base, 0o755))
	l := listenUnix(t, filepath.Join(base, "private"))
	defer l.Close()
	few, all := task.Limits{CPUs: 0.5}, task.Limits{CPUs: 1 << 20}
	for _, c := range []struct {
		ctl  string
		root bool
		l    task.Limits
		want bool
	}{
		{"", false, all, true}, {"memory pids", false, all, false}, {"memory pids", false, few, true}, {"memory pids cpu", false, few, false}, {"memory", false, all, true},
		{"", true, all, false}, {"", true, few, false}, {"memory pids", true, all, false}, {"memory pids cpu", true, few, false}, {"memory pids", true, few, os.Getuid() == 0},
	} {
		d := &Driver{run: dir, system: filepath.Join(base, "private"), roots: cgroupRoots{root: c.root}}
		g := &group{hierarchy: hierarchy{v2: true, ctl: map[string]bool{}}}
		for _, x := range strings.Fields(c.ctl) {
			g.ctl[x] = true
		}
		if _, got := d.manager([]*group{g}, c.l); got != c.want {
			t.Errorf("%+v: asked %v", c, got)
		}
	}
}

// serveOne answers one call, after a signal that is not the answer.
func serveOne(l net.Listener, refuse bool) string {
	c, err := l.Accept()
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(c)
	if s, _ := r.ReadString('\n'); !strings.HasPrefix(s, "\x00AUTH EXTERNAL ") {
		return "no authentication: " + s
	}
	_, _ = c.Write([]byte("OK 0123\r\n"))
	if s, _ := r.ReadString('\n'); s != "BEGIN\r\n" {
		return "no begin: " + s
	}
	head := make([]byte, 16)
	if _, err := r.Read(head); err != nil {
		return err.Error()
	}
	rest := make([]byte, (int(binary.LittleEndian.Uint32(head[12:]))+7)&^7+int(binary.LittleEndian.Uint32(head[4:])))
	for n := 0; n < len(rest); {
		k, err := r.Read(rest[n:])
		if err != nil {
			return err.Error()
		}
		n += k
	}
	message := func(typ byte, fields func(*marshal), body []byte) {
		m := &marshal{b: []byte{'l', typ, 1, 1}}
		m.u32(uint32(len(body)))
		m.u32(7)
		m.array(8, func() { fields(m) })
		m.align(8)
		_, _ = c.Write(append(m.b, body...))
	}
	message(4, func(m *marshal) { m.b = append(m.b, 3); m.sig("s"); m.str("JobNew") }, nil)
	reply := func(m *marshal) { m.align(8); m.b = append(m.b, 5); m.sig("u"); m.u32(1) }
	text := &marshal{}
	text.str("because")
	if refuse {
		message(3, func(m *marshal) { m.b = append(m.b, 4); m.sig("s"); m.str("no.No"); reply(m) }, text.b)
	} else {
		message(2, reply, text.b)
	}
	return string(rest)
}
