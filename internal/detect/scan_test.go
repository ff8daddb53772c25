package detect

import (
	"context"
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

// renderFacts is one line for each: RULE value place (subject).
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
	for n, l := range looks() {
		if !seen[l.rule] {
			t.Errorf("%s: no rule %s", n, l.rule)
		}
	}
	for _, r := range libraryRules() {
		if r.rule != "" && !seen[r.rule] {
			t.Errorf("no rule %s", r.rule)
		}
	}
}
