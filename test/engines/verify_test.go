//go:build linux

package engines

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// knownBroken is what an engine's boundary is known not to hold yet.
var knownBroken = map[string][]string{
	"podman": {"P63"}, // its own tmpfs on /run may be written by the tools' user
}

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
				if !slices.Contains(knownBroken[e.Backend], p.ID) {
					t.Errorf("%s is broken: %s %q %q", p.ID, p.Why, p.Broken, p.Seen)
				}
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
