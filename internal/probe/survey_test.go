//go:build linux

package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestSurvey finds what a home folder holds and what listens, and nothing that
// is not there.
func TestSurvey(t *testing.T) {
	home, rt := t.TempDir(), t.TempDir()
	for _, f := range []string{".ssh/id", ".docker/config.json"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, f)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, f), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Plant(rt, task.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	env := map[string]string{"DOCKER_HOST": "tcp://10.1.2.3:2375", "SSH_AUTH_SOCK": p.Socket, "CONTAINER_HOST": "unix:///no/such"}
	s := Survey(SurveyInput{Home: home, RuntimeDir: rt, Getenv: func(k string) string { return env[k] }, Absent: []string{rt, "relative", "/no/such"}})
	for _, want := range []string{filepath.Join(home, ".ssh"), filepath.Join(home, ".docker/config.json"), rt} {
		if !contains(s.Absent, want) || s.Ident[want] == "" {
			t.Errorf("%s is not in %v", want, s.Absent)
		}
	}
	all := strings.Join(append(append(s.Absent, s.Control...), s.Agents...), "\n")
	for _, bad := range []string{"/no/such", "relative", ".aws"} {
		if strings.Contains(all, bad) {
			t.Errorf("%s is not there", bad)
		}
	}
	if !contains(s.Agents, p.Socket) || !contains(s.Abstract, p.Abstract) || !contains(s.Dial, "10.1.2.3:2375") || !contains(s.Dial, "169.254.169.254:80") {
		t.Errorf("agents %v abstract %v dial %v", s.Agents, s.Abstract, s.Dial)
	}
	if s.HostPID != os.Getpid() || s.HostStart == 0 || s.HostNS["pid"] == 0 {
		t.Errorf("host %d %d %v", s.HostPID, s.HostStart, s.HostNS)
	}
	if _, err := s.Encode(); err != nil {
		t.Error(err)
	}
}

// TestPlants: untouched until somebody connects, and gone after Close, also
// below a path that does not fit a socket address.
func TestPlants(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := Plant(dir, task.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Touched(); len(got) != 0 {
		t.Errorf("touched by nobody: %v", got)
	}
	if r := connectUnix(p.Socket); r.Outcome != Allowed {
		t.Errorf("a long path: %+v", r)
	}
	if got := p.Touched(); strings.Join(got, " ") != "unix socket" {
		t.Errorf("touched: %v", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if es, _ := os.ReadDir(dir); len(es) != 0 {
		t.Errorf("left behind: %v", es)
	}
	if _, err := Plant(filepath.Join(dir, "none"), "x"); task.CodeOf(err) != task.CodeStateStore {
		t.Errorf("no folder: %v", err)
	}
}

// TestSourceNames: a repository may track a name that is a secret's on the
// host; the host's own file below the source still counts.
func TestSourceNames(t *testing.T) {
	dir := t.TempDir()
	f := filepath.Join(dir, ".netrc")
	if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		source, ident string
		want          Outcome
	}{{dir, "1:2", Denied}, {"/elsewhere", "1:2", Allowed}, {dir, "", Allowed}, {"", "1:2", Allowed}} {
		in := &inside{spec: &Spec{Source: c.source, Ident: map[string]string{f: c.ident}}}
		if r := in.absent("", f); r.Outcome != c.want {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}
