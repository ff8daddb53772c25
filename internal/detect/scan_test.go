package detect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// files is a tree in memory. A content that begins with "-> " is a link.
type files map[string]string

func (t files) Each(_ context.Context, f func(string, uint32) bool) error {
	names := make([]string, 0, len(t))
	for n := range t {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		mode := uint32(0o100644)
		switch {
		case strings.HasPrefix(t[n], "-> "):
			mode = modeLink
		case t[n] == "<commit>":
			mode = modeGitlink
		}
		if !f(n, mode) {
			return nil
		}
	}
	return nil
}

func (t files) Read(_ context.Context, paths []string, limit int64, f func(string, int64, []byte)) error {
	for _, p := range paths {
		if c, ok := t[p]; ok {
			b := []byte(c)
			if int64(len(b)) > limit {
				b = nil
			}
			f(p, int64(len(c)), b)
		}
	}
	return nil
}

func scanOf(t *testing.T, tr files) ([]task.Fact, []Note) {
	t.Helper()
	facts, notes, err := Scan(context.Background(), tr)
	if err != nil {
		t.Fatal(err)
	}
	return facts, notes
}

// renderFacts is one line for each: RULE value place.
func renderFacts(fs []task.Fact) []string {
	var out []string
	for _, f := range fs {
		s := f.Rule + " " + f.Value + " " + f.Evidence
		if f.Subject != "" {
			s += " (" + f.Subject + ")"
		}
		out = append(out, s)
	}
	return out
}

// detectors are, for each rule, trees in which it must find something, as
// "VALUE PLACE", and trees in which it must not.
var detectorCases = []struct {
	rule string
	tree files
	want string // "" : the rule finds nothing
}{
	{"INS-01", files{"web/pnpm-lock.yaml": ""}, "yes web/pnpm-lock.yaml"},
	{"INS-01", files{"vendor/x/go.sum": "", "lock.txt": ""}, ""},
	{"INS-02", files{"package.json": "{\n \"dependencies\": {\"left-pad\": \"1\"}}"}, "yes package.json:2"},
	{"INS-02", files{"package.json": `{"name":"x","dependencies":{}}`}, ""},
	{"INS-02", files{"go.mod": "module x\n\nrequire example.org/y v1.0.0\n"}, "yes go.mod:3"},
	{"INS-02", files{"requirements-dev.txt": "# none\n"}, ""},
	{"INS-03", files{"package.json": "{\"scripts\":{\n\"postinstall\": \"node x.js\"}}"}, "repo-defined package.json:2"},
	{"INS-03", files{"package.json": `{"scripts":{"test":"x"}}`}, ""},
	{"SVC-01", files{"compose.yaml": "services:\n  db:\n    image: postgres:16\n"}, "db compose.yaml:3"},
	{"SVC-01", files{"compose.yaml": "services:\n  web:\n    image: nginx\n"}, ""},
	{"MIG-01", files{"db/migrate/20240101_x.rb": ""}, "schema db/migrate/20240101_x.rb"},
	{"MIG-01", files{"internal/migrate/migrate.go": ""}, ""},
}

func TestDetectors(t *testing.T) {
	for _, c := range detectorCases {
		facts, _ := scanOf(t, c.tree)
		var got []string
		for _, f := range facts {
			if f.Rule == c.rule {
				got = append(got, f.Value+" "+f.Evidence)
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s on %v\n got %q\nwant %q", c.rule, keys(c.tree), text, c.want)
		}
	}
}

func keys(t files) []string {
	var out []string
	for n := range t {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// TestRules holds the list of detectors to its own words.
func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Detectors() {
		if seen[d.ID] || d.Doc == "" || d.Looks == "" {
			t.Errorf("%+v", d)
		}
		seen[d.ID] = true
		for v := range strings.FieldsSeq(d.Value) {
			if v != task.Unknown && !slices.Contains(d.What.Values(), v) {
				t.Errorf("%s: %s has no value %q", d.ID, d.What, v)
			}
		}
	}
	for n, l := range looks {
		if !seen[l.rule] {
			t.Errorf("%s: no rule %s", n, l.rule)
		}
	}
	for _, r := range libraryRules {
		if r.rule != "" && !seen[r.rule] {
			t.Errorf("no rule %s", r.rule)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	tr := files{}
	for i := range 50_000 {
		tr[fmt.Sprintf("src/pkg%d/sub%d/file_%d.go", i%97, i%13, i)] = "package x\n"
	}
	for i := range 40 {
		tr[fmt.Sprintf("apps/a%d/package.json", i)] = `{"scripts":{"dev":"next dev","test":"jest --ci && tsc -p ."},"dependencies":{"pg":"1"}}`
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Scan(context.Background(), tr); err != nil {
			b.Fatal(err)
		}
	}
}
