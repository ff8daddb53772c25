//go:build linux

package lifecycle

import (
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestReadRecorded: what a tool read is not told before it is on record that it
// was; the announcement is there before, also when its writer dies.
func TestReadRecorded(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		for _, fault := range []string{"", "error", "kill"} {
			var env []string
			if fault != "" {
				env = []string{"CAISSON_FAULT=tool.before-outcome:" + fault}
			}
			if r := w.do(env, "open", "--name", "reads"); r.Exit != 0 {
				t.Fatal(r)
			}
			task := w.show("reads").ID
			calls := 0
			for _, call := range [][]string{{"read_file", `{"path":"d/b.txt"}`}, {"grep", `{"pattern":"^b"}`}} {
				calls++
				r := w.do(nil, append([]string{"tool", "--json", "reads"}, call...)...)
				told := strings.Contains(r.Stdout, `"result"`)
				if good := fault == ""; told != good || (r.Exit == 0) != good {
					t.Errorf("%q: %s: %v", fault, call[0], r)
				}
				if fault == "kill" {
					break // with the supervisor the task is gone
				}
			}
			seen := map[string]int{}
			for _, e := range w.events(task) {
				seen[e]++
			}
			outcomes := 0
			if fault == "" {
				outcomes = calls
			}
			if seen["tool.intent"] != calls || seen["tool.outcome"] != outcomes {
				t.Errorf("%q: of %d calls %d are announced and %d told", fault, calls, seen["tool.intent"], seen["tool.outcome"])
			}
			w.do(nil, "close", "--discard", "reads")
			w.reap()
		}
		w.clean()
	})
}
