//go:build linux

package forgery

import (
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

var updateDocs = flag.Bool("update-docs", false, "write the matrix of docs/channel.md anew; needs root, and all tests of this package")

const (
	document = "../../docs/channel.md"
	begin    = "<!-- made by the tests: begin -->\n"
	end      = "<!-- made by the tests: end -->\n"
)

var (
	recordsMu sync.Mutex
	records   = map[string]map[string]report{} // without → identity
)

func record(id *harness.Identity, without string, r report) {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	if records[without] == nil {
		records[without] = map[string]report{}
	}
	records[without][id.Name] = r
}

// TestMatrix runs last: it writes what the others found, or holds the document
// to the tables and to the verdicts of this run.
func TestMatrix(t *testing.T) {
	recordsMu.Lock()
	defer recordsMu.Unlock()
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the matrix", document)
	}
	if *updateDocs {
		if len(records) != len(variants) || len(records["none"]) != 2 {
			t.Fatalf("the matrix needs every protection and both identities: as root, all tests of this package")
		}
		text := matrix()
		if err := os.WriteFile(document, []byte(before+begin+text+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		old = text
	}
	for _, p := range probes {
		if !strings.Contains(old, fmt.Sprintf("| %s | %s |", p.id, p.does)) {
			t.Errorf("%s: %s is not in %s", p.id, p.does, document)
		}
	}
	if n := strings.Count(old, "\n| F"); n != len(probes) {
		t.Errorf("%s lists %d probes, not %d", document, n, len(probes))
	}
	for _, v := range variants {
		line := ""
		for l := range strings.Lines(old) {
			if strings.HasPrefix(l, "| "+v.name+" |") {
				line = l
			}
		}
		if line == "" {
			t.Errorf("%q is not in %s", v.name, document)
			continue
		}
		forged := !strings.Contains(line, "| **0** |")
		if forged != (v.without == "all") {
			t.Errorf("%s says of %q: %s", document, v.name, line)
		}
		for _, r := range records[v.without] {
			n := 0
			for _, x := range r.Results {
				n += x.Forged
			}
			if (n > 0) != forged {
				t.Errorf("%q: this run forged %d messages, %s says %s", v.name, n, document, line)
			}
		}
	}
}

// matrix renders the two tables.
func matrix() string {
	var b strings.Builder
	ship := records["none"]["root"]
	user := records["none"]["user"]
	fmt.Fprintf(&b, "Run of %s on Linux %s, as root and as an unprivileged user: beside the probes %d operations of honest traffic, %d frames sent by the worker, as many taken by the host.\n\n",
		time.Now().UTC().Format("2 January 2006"), ship.Kernel, ship.Honest+user.Honest, ship.Frames+user.Frames)
	b.WriteString("| probe | what it does | attempts | denied by |\n|---|---|---:|---|\n")
	for i, p := range probes {
		n, denied := 0, map[string]int{}
		for _, r := range records["none"] {
			n += r.Results[i].Attempts
			for l, c := range r.Results[i].Denied {
				denied[l] += c
			}
			if r.Results[i].Done > 0 {
				denied["nothing to deny: without effect"] += r.Results[i].Done
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s |\n", p.id, p.does, n, layers(denied))
	}
	b.WriteString("\n| build | attempts that worked | frames a tool could read | messages forged | operations lost |\n|---|---:|---:|---:|---:|\n")
	for _, v := range variants {
		worked, read, forged, lost := 0, 0, 0, 0
		for _, r := range records[v.without] {
			for _, x := range r.Results {
				worked, read, forged, lost = worked+len(x.Possible), read+len(x.Leaked), forged+x.Forged, lost+len(x.Lost)
			}
		}
		f := fmt.Sprint(forged)
		if forged == 0 {
			f = "**0**"
		}
		l := fmt.Sprint(lost)
		if v.without == "all" {
			l = "not counted"
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s |\n", v.name, worked, read, f, l)
	}
	return b.String()
}

func layers(m map[string]int) string {
	var out []string
	for l, n := range m {
		out = append(out, fmt.Sprintf("%s: %d", l, n))
	}
	sort.Strings(out)
	return strings.Join(out, "; ")
}
