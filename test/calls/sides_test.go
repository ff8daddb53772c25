//go:build linux

package calls

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestSides has exec and the record tell apart what the host saw of a command
// and what the worker told of it: a status is on one side only.
func TestSides(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "sides", os.Getuid())
	c := newCaller(t, id)
	r := c.Caisson(t, c.repo, "exec", "--json", c.task, "--", "sh", "-c", "echo out; exit 5")
	var res struct{ Outcome task.Outcome }
	line := r.Stderr[strings.LastIndex(strings.TrimSuffix(r.Stderr, "\n"), "\n")+1:]
	if err := json.Unmarshal([]byte(line), &res); err != nil {
		t.Fatal(err, r)
	}
	o := res.Outcome
	if o.Exit != 5 || o.ByHost == nil || o.ByHost.StdoutBytes != 4 || o.ByHost.Begun.IsZero() {
		t.Fatalf("%+v", o)
	}
	switch {
	case o.Observed && (o.ByHost.Exit == nil || *o.ByHost.Exit != 5 || o.ByWorker != nil):
		t.Errorf("the kernel told it: %+v, %+v", o.ByHost, o.ByWorker)
	case !o.Observed && (o.ByHost.Exit != nil || o.ByWorker == nil || *o.ByWorker.Exit != 5):
		t.Errorf("the worker told it: %+v, %+v", o.ByHost, o.ByWorker)
	}
	log := id.OK(t, c.repo, "log", "--json", c.task)
	for e := range strings.Lines(log) {
		if strings.Contains(e, `"call.outcome"`) {
			var ev struct {
				Body struct {
					ByHost   map[string]any `json:"by_host"`
					ByWorker map[string]any `json:"by_worker"`
				}
			}
			if err := json.Unmarshal([]byte(e), &ev); err != nil || (ev.Body.ByHost["exit"] == nil) == (ev.Body.ByWorker["exit"] == nil) {
				t.Errorf("%v: %s", err, e)
			}
		}
	}
}
