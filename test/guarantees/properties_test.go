//go:build linux

package guarantees

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/verify/attack"
)

var (
	propertyRow = regexp.MustCompile(`(?m)^\| (P\d\d) \| [^|]+ \| ([^|]+) \|$`)
	testsOf     = regexp.MustCompile(`((?:Test\w+(?:, )?)+) \(([\w/]+)\)`)
)

// TestPropertyTable holds the table of properties to the attacks of `verify` and to
// the tests that it names.
func TestPropertyTable(t *testing.T) {
	text, err := os.ReadFile(docs + "review-checklist.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range propertyRow.FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = m[2]
		if _, is := attack.Find(m[1]); is != strings.Contains(m[2], "verify") {
			t.Errorf("%s: verify attacks it: %v, and the table says %q", m[1], is, m[2])
		}
		named := testsOf.FindAllStringSubmatch(m[2], -1)
		if len(named) == 0 {
			t.Errorf("%s: no test is named: %q", m[1], m[2])
		}
		for _, n := range named {
			for name := range strings.SplitSeq(n[1], ", ") {
				if !defined(t, "../../"+n[2], name) {
					t.Errorf("%s: there is no %s in %s", m[1], name, n[2])
				}
			}
		}
	}
	for _, p := range attack.Properties {
		if p.ID[0] == 'P' && rows[p.ID] == "" {
			t.Errorf("%s is in no row", p.ID)
		}
	}
	if len(rows) < 55 {
		t.Errorf("only %d rows", len(rows))
	}
}

func defined(t *testing.T, dir, name string) bool {
	files, _ := filepath.Glob(dir + "/*_test.go")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
