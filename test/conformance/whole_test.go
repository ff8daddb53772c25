//go:build linux

package conformance

import (
	"encoding/json"
	"flag"
	"slices"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// triedBy are the tests of this package that try what an axis promises. All of them
// must have run for every backend that promises anything on it.
var triedBy = map[task.Axis][]string{
	task.SRC: {"TestGitMask", "TestChildTasks", "TestHostileFileNames"},
	task.PRC: {"TestProperties", "TestInventory", "TestSignals", "TestSetID"},
	task.FS:  {"TestProperties", "TestInventory"},
	task.NET: {"TestProperties", "TestInventory", "TestWayOut"},
	task.RES: {"TestLimits"},
	task.KRN: {"TestProperties", "TestTerminal"},
	task.CPL: {"TestProperties", "TestControlSocketReach"},
	task.CHN: {"TestNoAuthorityInside", "TestControlSocketReach", "TestCallsShareASpace"},
	task.CRD: {"TestProperties", "TestInventory"},
	task.EVD: {"TestEvidence"},
	task.CLN: {"TestVerify"}, // which looks for what is left; Each does after every test
}

// featuresTriedBy are the tests that try what doctor lists as there.
var featuresTriedBy = map[string]string{
	"namespaces": "TestInventory", "root": "TestInventory", "tool-space": "TestInventory", "landlock": "TestProperties", "seccomp": "TestProperties",
	"cgroup": "TestLimits", "limits": "TestLimits", "engine": "TestProperties", "boundary": "TestProperties", "container": "TestProperties", "runtime": "TestProperties",
	"kernel": "TestProperties", "id-mapped-mounts": "TestInventory", "grant-userns": "TestNestedSandboxes", "mixed-cgroups": "TestLimits", "platform": "TestProperties",
	"egress": "TestWayOut",
}

// TestClaims runs last: what doctor says of the backend under test must have been
// tried by a test that ran, as every identity. A backend may not skip what it claims.
func TestClaims(t *testing.T) {
	if f := flag.Lookup("test.run"); f != nil && f.Value.String() != "" {
		t.Skip("only a part of the suite runs")
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		var d struct{ Backends []task.BackendReport }
		if err := json.Unmarshal([]byte(id.OK(t, id.Dir, "doctor", "--json")), &d); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(d.Backends, func(b task.BackendReport) bool { return b.Name == harness.Product() })
		if i < 0 || !d.Backends[i].Usable {
			t.Fatalf("doctor has no usable %s: %+v", harness.Product(), d)
		}
		ran := func(what, test string) {
			if !harness.Ran(test + "/" + id.Name) {
				t.Errorf("%s is claimed, and %s did not run", what, test)
			}
		}
		n := 0
		for _, l := range d.Backends[i].Levels {
			if l.Promised <= 0 {
				continue
			}
			n++
			if len(triedBy[l.Axis]) == 0 {
				t.Errorf("nobody says which test tries %s", l.Axis)
			}
			for _, test := range triedBy[l.Axis] {
				ran(string(l.Axis), test)
			}
		}
		for _, f := range d.Backends[i].Features {
			test, known := featuresTriedBy[f.Name]
			switch {
			case !f.OK:
			case !known:
				t.Errorf("nobody says which test tries the feature %s", f.Name)
			default:
				ran("the feature "+f.Name, test)
			}
		}
		if n < 8 {
			t.Errorf("only %d axes are promised", n)
		}
	})
}
