//go:build linux

package repos

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) {
	harness.Beside(4)
	os.Exit(harness.Main(m))
}

var long = os.Getenv("CAISSON_TEST_FULL") != ""

// place is one identity with a folder in which a kind of repository is made.
type place struct {
	*harness.Identity
	t      *testing.T
	work   string // everything the kind consists of
	dir    string // where the user stands
	top    string // of the checkout
	marks  string // a file here: something of a repository was executed on the host
	before harness.Picture
}

func newPlace(t *testing.T, id *harness.Identity, dir, top string) *place {
	t.Helper()
	p := &place{Identity: id, t: t, work: id.Dir + "/work", marks: id.Tmp + "/marks"}
	p.dir, p.top = p.work+"/"+dir, p.work+"/"+top
	id.Mkdir(t, p.work)
	id.Mkdir(t, p.marks)
	id.Write(t, id.Home+"/.gitconfig", "[user]\n\tname = Tester\n\temail = t@example.org\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n[advice]\n\tdetachedHead = false\n", 0o644)
	return p
}

// base is at the head of every script that makes a repository: `base DIR`
// makes one of two commits.
const base = `umask 022
export GIT_ADVICE=0 MARKS="$1" LONG="$2"
base() {
	git init -q "$@"
	for d; do :; done
	(cd "$d" && mkdir d && echo a >a.txt && echo b >b.txt && echo c >d/c.txt && printf '#!/bin/sh\n' >x.sh && chmod +x x.sh && printf '*.ignored\n' >.gitignore &&
	git add -A && git commit -qm first && echo two >>b.txt && git commit -qam second && git tag v1)
}
`

// shell runs a script of the user's on the host.
func (p *place) shell(dir, script string) harness.Result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	return harness.Run(p.t, p.Command(ctx, dir, "/bin/sh", "-ec", base+script, "sh", p.marks, os.Getenv("CAISSON_TEST_FULL")))
}

// sh is shell that must succeed.
func (p *place) sh(dir, script string) string {
	p.t.Helper()
	r := p.shell(dir, script)
	if r.Exit != 0 {
		p.t.Fatal(r)
	}
	return r.Stdout
}

// do runs the product where the user stands.
func (p *place) do(args ...string) harness.Result {
	p.t.Helper()
	return p.Caisson(p.t, p.dir, args...)
}

func (p *place) ok(args ...string) string {
	p.t.Helper()
	return p.OK(p.t, p.dir, args...)
}

// opened is what these tests read of `open --json`.
type opened struct {
	ID     string
	Source struct {
		Notes  []string
		Folder string
	}
	text string
}

// open opens a task.
func (p *place) open(flags ...string) opened {
	p.t.Helper()
	out := p.ok(append([]string{"open", "--json"}, flags...)...)
	var v opened
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.ID == "" {
		p.t.Fatalf("open: %v in %s", err, out)
	}
	v.text = p.ok("show", v.ID)
	return v
}

// in runs a shell script in an open task.
func (p *place) in(id, script string) string {
	p.t.Helper()
	return p.OK(p.t, p.Dir, "exec", id, "--", "sh", "-ec", script)
}

// remember takes the picture that later ones are compared with. What the user's
// own git executed until now is no matter.
func (p *place) remember() {
	p.t.Helper()
	p.sh(p.marks, "rm -f ./*")
	p.before = harness.TakePicture(p.t, p.work)
}

// untouched checks that every file of every repository of the kind is as
// remembered, but for caisson's own refs and packs and these patterns, and that
// nothing of a repository was executed.
func (p *place) untouched(what string, allow ...string) {
	p.t.Helper()
	if _, err := os.Stat(p.top + "/HEAD"); err == nil {
		allow = append(allow, `[^/]*`, `[^/]*/refs(/heads)?`) // a bare repository's folders get a new time with each ref of caisson's
	}
	allow = append(allow, `.*/refs/caisson(/.*)?`, `.*/objects/pack(/pack-[0-9a-f]+\.(pack|idx|rev))?`)
	for _, d := range p.before.Changed(harness.TakePicture(p.t, p.work), allow...) {
		p.t.Errorf("%s: the user's repository: %s", what, d)
	}
	marks, err := os.ReadDir(p.marks)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range marks {
		p.t.Errorf("%s: EXECUTED ON THE HOST: %s", what, e.Name())
	}
}

// refused checks that a command was refused with these words and a next step.
func (p *place) refused(what string, r harness.Result, words ...string) {
	p.t.Helper()
	if r.Exit != 125 && r.Exit != 1 && r.Exit != 2 || !strings.Contains(r.Stderr, "caisson: error: ") || !strings.Contains(r.Stderr, "caisson: hint: ") {
		p.t.Errorf("%s: not refused with a next step: %v", what, r)
		return
	}
	for _, w := range words {
		if !strings.Contains(r.Stdout+r.Stderr, w) {
			p.t.Errorf("%s: refused without %q: %v", what, w, r)
		}
	}
	if strings.Contains(r.Stderr, "internal") && strings.Contains(r.Stderr, "bug") {
		p.t.Errorf("%s: refused as a fault of ours: %v", what, r)
	}
}

// changes reads `diff --name-status -z`: "M a.txt", sorted.
func (p *place) changes(id string) []string {
	p.t.Helper()
	f := strings.Split(strings.TrimSuffix(p.ok("diff", "--name-status", "-z", id), "\x00"), "\x00")
	var out []string
	for i := 0; i+1 < len(f); i += 2 {
		out = append(out, f[i]+" "+f[i+1])
	}
	slices.Sort(out)
	return out
}
