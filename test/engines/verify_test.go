//go:build linux

package engines

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestVerify attacks a task of each engine with `caisson verify`.
func TestVerify(t *testing.T) {
	each(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "root", 0)
		id.Env = append(id.Env, "TMPDIR="+id.Tmp)
		r := id.Caisson(t, id.Dir, "verify", "--json", "--backend", e.Backend)
		var all task.VerifyAll
		if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || len(all.Reports) != 1 {
			t.Fatalf("%v: %v", err, r)
		}
		rep := all.Reports[0]
		held := 0
		for _, p := range rep.Probes {
			switch p.Result {
			case task.VerifyHeld:
				held++
			case task.VerifyBroken:
				t.Errorf("%s is broken: %s %q %q", p.ID, p.Why, p.Broken, p.Seen)
			default:
				t.Logf("%s is %s: %s", p.ID, p.Result, p.Why)
			}
		}
		if held < 15 || rep.Target.Version == "" || rep.Why != "" {
			t.Errorf("%d held, version %q, %s", held, rep.Target.Version, rep.Why)
		}
		if left := e.Containers(t); len(left) > 0 {
			t.Errorf("containers are left: %v", left)
		}
	})
}

// TestVerifyContainer attacks from inside a container that is nobody's task. What is
// put into it for that goes again.
func TestVerifyContainer(t *testing.T) {
	e := harness.Docker(t)
	image := t.TempDir()
	for _, d := range []string{"tmp", "proc", "dev", "etc"} {
		if err := os.Mkdir(image+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(harness.Bin())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image+"/caisson", program, 0o755); err != nil {
		t.Fatal(err)
	}
	e.Import(t, image, "sleeper")
	id := identity(t, e, "user", harness.UserOf())
	id.Env = append(id.Env, "TMPDIR="+id.Tmp)
	for _, c := range []struct {
		name   string
		flags  []string
		broken string // a property that is, and without the flags is not
	}{
		{"web", []string{"--network", "none"}, ""},
		{"host", []string{"--network", "host"}, "P41"},
		{"pids", []string{"--network", "none", "--pid", "host"}, "P28"},
	} {
		e.Run(t, slices.Concat([]string{"run", "-d", "--name", c.name}, c.flags, []string{"sleeper", "/caisson", "__attack", "sleep", "x"})...)
		r := id.Caisson(t, id.Dir, "verify", "--json", "--container", c.name)
		var all task.VerifyAll
		if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || len(all.Reports) != 1 || r.Exit != 1 {
			t.Fatalf("%v: %v", err, r)
		}
		rep := all.Reports[0]
		if rep.Why != "" || !strings.HasPrefix(rep.Target.Version, "docker ") || rep.Target.Kind != "container" || len(rep.Mounts) == 0 {
			t.Errorf("%s: %s %+v, %d mounts", c.name, rep.Why, rep.Target, len(rep.Mounts))
		}
		for _, p := range rep.Probes {
			if must := p.ID == c.broken; must != (p.Result == task.VerifyBroken) && (must || p.ID == "P41" || p.ID == "P28") {
				t.Errorf("%s: %s is %s: %s %q", c.name, p.ID, p.Result, p.Why, p.Broken)
			}
		}
		if diff := e.Run(t, "diff", c.name); strings.Contains(diff, "caisson-verify") {
			t.Errorf("%s: left in the container:\n%s", c.name, diff)
		}
		e.Run(t, "rm", "--force", c.name)
	}
	if r := id.Caisson(t, id.Dir, "verify", "--container", "none"); r.Exit != 5 || !strings.Contains(r.Stdout, "no running container none") {
		t.Error(r)
	}
}
