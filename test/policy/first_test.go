//go:build linux

package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestFirstRun: with nothing set, an ordinary repository needs row R3 and gets it,
// with and without a terminal, and over MCP.
func TestFirstRun(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		p := newPlace(t, id, map[string]string{"go.mod": "module example.org/x\n\ngo 1.24\n", "Makefile": "test:\n\tgo test ./...\n"})
		t.Run("no terminal", func(t *testing.T) {
			got := p.planned("--", "true")
			if !slices.Equal(got.Rows, []string{"base", "R2", "R3"}) || len(got.Missing) > 0 || got.required("KRN") != 1 {
				t.Errorf("rows %v, missing %v", got.Rows, got.Missing)
			}
			if !got.has("supervision", "asynchronous") || got.has("supervision", "broad-unsupervised") {
				t.Errorf("%v", got.Facts)
			}
			if r := p.run("run", "--", "true"); r.Exit != 0 || r.Stderr != "" {
				t.Error(r)
			}
		})
		t.Run("terminal", func(t *testing.T) {
			s := harness.OnTerminal(t, p.Command(t.Context(), p.repo, harness.Bin(), "plan", "--", "true"), p.UID)
			s.Expect("base, R3 of matrix/1")
			if code := s.Wait(); code != 0 {
				t.Errorf("plan: %d", code)
			}
			if code := p.atTerminal("run", "--", "true"); code != 0 {
				t.Errorf("run: %d", code)
			}
		})
		t.Run("mcp", func(t *testing.T) {
			m := startMCP(p)
			if text := m.call("shell", `{"command":"echo it-ran"}`); !strings.Contains(text, "it-ran") {
				t.Fatal(text)
			}
			m.end()
			var list struct{ Tasks []struct{ ID string } }
			out := p.OK(t, p.repo, "ls", "--all", "--json")
			if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Tasks) == 0 {
				t.Fatal(err, out)
			}
			rows := ""
			for _, x := range list.Tasks {
				if text := p.OK(t, p.repo, "log", "--json", x.ID); strings.Contains(text, "it-ran") || strings.Contains(text, `"mcp"`) {
					rows += text
				}
			}
			if strings.Contains(rows, "broad-unsupervised") || strings.Contains(rows, `"R5"`) || !strings.Contains(rows, "asynchronous") {
				t.Errorf("what is on record of the task: %s", rows)
			}
		})
	})
}
