package sys

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func sleeper(t *testing.T) (*exec.Cmd, Ident) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, id
}

func TestIdentity(t *testing.T) {
	me, err := Self()
	if err != nil || me.PID != os.Getpid() || me.Start == 0 || len(me.BootID) != 36 || me.PIDNS == 0 || !Alive(me) {
		t.Fatalf("%+v %v", me, err)
	}
	cmd, id := sleeper(t)
	if Look(id) != Living || id.PIDNS != me.PIDNS || id.BootID != me.BootID {
		t.Fatalf("%+v", id)
	}
	change := func(f func(*Ident)) Ident { c := id; f(&c); return c }
	for name, c := range map[string]struct {
		id   Ident
		want Liveness
	}{
		"another boot":      {change(func(i *Ident) { i.BootID = "x" }), Dead},
		"a reused pid":      {change(func(i *Ident) { i.Start++ }), Dead},
		"another namespace": {change(func(i *Ident) { i.PIDNS++ }), Unknown},
		"no pid":            {change(func(i *Ident) { i.PID = 0 }), Dead},
		"a negative pid":    {change(func(i *Ident) { i.PID = -1 }), Dead},
		"nothing":           {Ident{}, Dead},
	} {
		if got := Look(c.id); got != c.want || Alive(c.id) != (c.want != Dead) {
			t.Errorf("%s: %v", name, got)
		}
		want := ErrGone
		if c.want == Unknown {
			want = ErrUnknown
		}
		if p, err := OpenProcess(c.id); !errors.Is(err, want) {
			t.Errorf("%s: open gave %v %v", name, p, err)
		}
	}
	// Attack: signal by a stale identity. Control: the right one works.
	p, err := OpenProcess(id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cause := errors.New("not yet")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, cause)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, cause) {
		t.Fatalf("wait for a living process: %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if Look(id) != Dead {
		t.Fatal("a zombie counts as alive")
	}
	if _, err := OpenProcess(id); !errors.Is(err, ErrGone) {
		t.Fatalf("open of a zombie: %v", err)
	}
	_ = cmd.Wait()
	if Look(id) != Dead {
		t.Fatal("a reaped process counts as alive")
	}
	if err := p.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Fatalf("signal after the end: %v", err)
	}
	if _, err := Identify(id.PID); !errors.Is(err, ErrGone) {
		t.Fatalf("identify after the end: %v", err)
	}
}

// A process may call itself anything.
func TestHostileName(t *testing.T) {
	dir := t.TempDir()
	exe := filepath.Join(dir, "x) Z 1 1 (")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "1000")
	cmd.Args[0] = "sleep" // a multi-call binary goes by it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	id, err := Identify(cmd.Process.Pid)
	if err != nil || Look(id) != Living {
		t.Fatalf("%+v %v", id, err)
	}
	kids, err := Children(os.Getpid())
	if err != nil || len(kids) == 0 {
		t.Fatal(kids, err)
	}
}

func TestNetworkFS(t *testing.T) {
	if n, network, err := IsNetworkFS(filepath.Join(t.TempDir(), "not", "there")); err != nil || network {
		t.Fatal(n, network, err)
	}
	// A real one where this machine has one; mounting one needs a server.
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		_, after, _ := strings.Cut(line, " - ")
		typ, _, _ := strings.Cut(after, " ")
		if typ == "9p" || strings.HasPrefix(typ, "nfs") || typ == "cifs" || typ == "fuse.sshfs" {
			if _, network, err := IsNetworkFS(f[4]); err == nil && !network {
				t.Errorf("%s (%s) counts as local", f[4], typ)
			}
			return
		}
	}
	t.Log("no network file system is mounted here: only the local answer was tried")
}
