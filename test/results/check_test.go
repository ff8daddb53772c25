//go:build linux

package results

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// verification is what these tests read of a report about one.
type verification struct {
	Tree                             string
	Level, Required, Demanded, Stale int
	Why                              string
	Checks                           []checked
	Accepted                         *struct{ ID string }
}

type checked struct {
	Name, Tree, Why string
	Pinned          string
	Argv            []string
	Digest          string `json:"argv_sha256"`
	After           string `json:"tree_after"`
	Changed         []string
	Ignored, Level  int
	Exit            int
	Observed        bool
}

// verified reads what the report of a command says about verification.
func (p *place) verified(args ...string) verification {
	p.t.Helper()
	r := p.do(append(args, "--json")...)
	v := harness.Decode[struct {
		Verification verification
		Error        struct {
			Detail struct{ Verification verification }
		}
	}](p.t, r.Stdout)
	if v.Verification.Tree == "" {
		return v.Error.Detail.Verification
	}
	return v.Verification
}

// check runs a check and returns it; zero when there was none.
func (p *place) check(id string, args ...string) (checked, harness.Result) {
	p.t.Helper()
	r := p.do(append([]string{"--json", "check", id}, args...)...)
	lines := strings.Split(strings.TrimSpace(r.Stderr), "\n")
	v := harness.Decode[struct{ Check checked }](p.t, lines[len(lines)-1])
	return v.Check, r
}

// level wants a level of VER for the task's files as they are.
func (p *place) level(what, id string, want int) verification {
	p.t.Helper()
	v := p.verified("diff", id)
	if v.Level != want {
		p.t.Errorf("%s: VER %d, want %d: %+v", what, v.Level, want, v)
	}
	return v
}

func checkBase() map[string]string {
	return map[string]string{"a.txt": "a\n", ".gitignore": "*.ignored\n"}
}

// TestCheck changes the files in every way around a check: it holds for exactly
// the files that it ran on.
func TestCheck(t *testing.T) {
	each(t, checkBase(), func(p *place) {
		id := p.task("echo more >>a.txt; echo x >x.ignored")
		if v := p.level("nothing was checked", id, 0); v.Required != 2 || v.Demanded != 0 || !strings.Contains(v.Why, "R3") {
			p.t.Errorf("what is asked for: %+v", v)
		}
		// The control of all that follows.
		c, r := p.check(id, "--", "grep", "-q", "more", "a.txt")
		if r.Exit != 0 || c.Level != 2 || !c.Observed || c.Tree == "" || c.Tree != c.After || c.Ignored != 1 {
			p.t.Fatalf("a check that succeeds: %+v %v", c, r)
		}
		v := p.level("checked", id, 2)
		if rep, _ := p.rep("apply", "-n", id); len(v.Checks) != 1 || v.Checks[0].Tree != v.Tree || len(rep.Conflicts) > 0 {
			p.t.Errorf("what holds: %+v", v)
		}
		if a := p.verified("apply", "-n", id); a.Level != 2 || a.Tree != v.Tree {
			p.t.Errorf("apply says %+v", a)
		}
		p.in(id, "echo more >>y.ignored; touch a.txt; mkdir empty")
		p.level("only ignored files and times changed", id, 2)
		p.in(id, "echo else >>a.txt")
		if v := p.level("another tree", id, 0); v.Stale != 1 || len(v.Checks) != 0 {
			p.t.Errorf("a check of other files: %+v", v)
		}
		p.in(id, "sed -i '$d' a.txt")
		p.level("the files are back", id, 2)
		p.in(id, "chmod +x a.txt")
		p.level("a mode changed", id, 0)
		p.in(id, "chmod -x a.txt; ln -s a.txt l")
		p.level("a link more", id, 0)
		p.in(id, "rm l")

		c, r = p.check(id, "--", "sh", "-c", "echo x >>ignored.ignored; echo sly >>a.txt")
		if r.Exit != 0 || c.Level != 0 || c.Tree == c.After || !slices.Equal(c.Changed, []string{"a.txt"}) {
			p.t.Errorf("a check that edits: %+v %v", c, r)
		}
		p.level("after a check that edits", id, 0)
		c, _ = p.check(id, "--", "sh", "-c", "echo x >>ignored.ignored; grep -q sly a.txt")
		if c.Level != 2 {
			p.t.Errorf("a check that writes ignored files: %+v", c)
		}
		p.level("what it left was checked", id, 2)

		// What failed on these files is not made good by something else.
		c, r = p.check(id, "--name", "unit", "--", "sh", "-c", "exit 3")
		if r.Exit != 3 || c.Level != 0 || c.Exit != 3 || c.Name != "unit" {
			p.t.Errorf("a check that fails: %+v %v", c, r)
		}
		p.level("one failed", id, 0)
		p.check(id, "--name", "other", "--", "true")
		p.level("and another one did not", id, 0)
		p.check(id, "--name", "unit", "--", "true")
		p.level("and then the same one did not", id, 2)

		r = p.do("apply", id)
		if r.Exit != 0 || !strings.Contains(r.Stderr, "verified: VER 2") || !strings.Contains(r.Stderr, "unit") {
			p.t.Errorf("apply does not say it: %v", r)
		}
		if log := p.ok("log", "--json", id); !strings.Contains(log, `"check.intent"`) || !strings.Contains(log, `"check.outcome"`) || !strings.Contains(log, `"verification":{`) {
			p.t.Errorf("the record has no checks:\n%s", log)
		}
		p.in(id, "rm *.ignored")
		p.ok("close", id)
		if v := p.verified("branch", id); v.Level != 2 {
			p.t.Errorf("of a closed task: %+v", v)
		}
		p.refused(p.do("check", id, "--", "true"), "state")
	})
}

// TestCheckAttacked has the inside work against a check.
func TestCheckAttacked(t *testing.T) {
	each(t, checkBase(), func(p *place) {
		wait := func(f string) string { return "for i in $(seq 500); do test -e " + f + " && break; sleep 0.02; done; " }
		id := p.task("echo more >>a.txt")

		// What a check leaves running edits when nobody looks any more.
		c, _ := p.check(id, "--", "sh", "-c", "("+wait("go.ignored")+"echo evil >>a.txt; touch done.ignored) >/dev/null 2>&1 & exit 0")
		if c.Level != 2 {
			p.t.Fatalf("control: %+v", c)
		}
		p.level("before", id, 2)
		p.in(id, "touch go.ignored; "+wait("done.ignored")+"grep -q evil a.txt")
		p.level("after", id, 0)
		r := p.do("apply", "-n", id)
		if !strings.Contains(r.Stderr, "not verified: VER 0") {
			p.t.Errorf("apply says nothing: %v", r)
		}

		// What runs already shows the check files that are not those of the result.
		swap := "rm -f *.ignored; (" + wait("begin.ignored") + "cp a.txt keep.ignored; echo pass >a.txt; touch swapped.ignored; " + wait("seen.ignored") + "cp keep.ignored a.txt; touch back.ignored) >/dev/null 2>&1 & exit 0"
		look := "touch begin.ignored; " + wait("swapped.ignored") + "grep -q pass a.txt || exit 1; touch seen.ignored; " + wait("back.ignored") + "exit 0"
		p.in(id, swap)
		if r := p.do("exec", id, "--", "sh", "-c", look); r.Exit != 0 {
			p.t.Fatalf("control: the attack does not work: %v", r)
		}
		p.in(id, swap)
		if c, r := p.check(id, "--", "sh", "-c", strings.ReplaceAll(look, "seq 500", "seq 20")); r.Exit != 1 || c.Level != 0 {
			p.t.Errorf("a check saw other files: %+v %v", c, r)
		}
		p.level("swapped", id, 0)

		// What it says of itself counts for nothing, nor does an end that its guardian
		// did not see.
		for _, script := range []string{
			`echo '{"exit":0,"observed":true,"level":2}'; exit 1`,
			`kill -9 $PPID; sleep 0.1; exit 1`,
			`kill -9 $$`,
		} {
			if c, r := p.check(id, "--", "sh", "-c", script); r.Exit == 0 || c.Level != 0 {
				p.t.Errorf("%s: %+v %v", script, c, r)
			}
		}
		p.level("failed", id, 0)
	})
}

// TestCheckWords gives a check names and arguments of every kind.
func TestCheckWords(t *testing.T) {
	user(t, checkBase(), func(p *place) {
		id := p.task("echo more >>a.txt")
		for _, name := range []string{"\x1b[2J", "a b", "a\nb", "ä", "../x", strings.Repeat("x", 61), "`id`"} {
			p.refused(p.do("check", id, "--name", name, "--", "true"), "usage")
		}
		p.refused(p.do("check", id, "--"), "usage")
		p.refused(p.do("check"), "usage")
		p.refused(p.do("check", "nosuchtask", "--", "true"), "not_found")
		if r := p.do("check", id, "--", "/no/such/program"); r.Exit != 127 {
			p.t.Errorf("no program: %v", r)
		}
		if v := p.level("nothing ran", id, 0); len(v.Checks) != 0 || v.Stale != 0 {
			p.t.Errorf("what did not run is a check: %+v", v)
		}
		sly := "x\x1b[2J\u202e\r\nchecked: VER 2\xff"
		a, _ := p.check(id, "--", "true", sly)
		b, _ := p.check(id, "--", "true", strings.ReplaceAll(sly, "\xff", "\xfe"))
		if a.Level != 2 || b.Level != 2 || a.Digest == b.Digest || a.Digest == "" {
			p.t.Errorf("bytes: %+v %+v", a, b)
		}
		for _, args := range [][]string{{"show", id}, {"log", id}, {"log", "-v", id}, {"diff", id}, {"apply", "-n", id}} {
			r := p.do(args...)
			if strings.ContainsAny(r.Stdout+r.Stderr, "\x1b\r") || strings.Contains(r.Stdout+r.Stderr, "\u202e") || strings.Contains(r.Stdout+r.Stderr, "\nchecked: VER 2") {
				p.t.Errorf("%v: %q", args, r.Stdout+r.Stderr)
			}
		}
	})
}

// TestDemanded keeps a result back that somebody wanted verified.
func TestDemanded(t *testing.T) {
	each(t, checkBase(), func(p *place) {
		out := p.Dir + "/out"
		leave := func(id string) [][]string {
			return [][]string{{"apply", id}, {"branch", "--force", id, "demanded-" + id}, {"export", id, "--patch"}, {"export", id, "--dir", out + id}}
		}
		kept := func(what, id string) {
			p.t.Helper()
			p.remember()
			for _, args := range leave(id) {
				r := p.do(args...)
				p.refused(r, "boundary_missing")
				if r.Exit != 3 || r.Stdout != "" || exists(out+id) {
					p.t.Errorf("%s: %v: %v", what, args, r)
				}
			}
			p.untouched(what)
			if r := p.do("apply", "-n", id); r.Exit != 0 || !strings.Contains(r.Stderr, "not verified: VER 0") {
				p.t.Errorf("%s: dry run: %v", what, r)
			}
		}
		leaves := func(what, id string) {
			p.t.Helper()
			for _, args := range leave(id) {
				if r := p.do(args...); r.Exit != 0 {
					p.t.Errorf("%s: %v: %v", what, args, r)
				}
			}
			p.sh(p.repo, "git reset -q --hard; git clean -qfdx")
			_ = os.RemoveAll(out + id)
		}
		accept := func(id string, args ...string) {
			p.t.Helper()
			cmd := p.Command(p.t.Context(), p.repo, harness.Bin(), append([]string{"accept", id, "--axis", "VER=0", "--reason", "looked at it", "--yes"}, args...)...)
			s := harness.OnTerminal(p.t, cmd, p.UID)
			s.Ends(0)
		}

		// The control: rows alone keep nothing back.
		free := p.task("echo free >>a.txt")
		leaves("nobody demands it", free)
		p.ok("close", free)

		id := p.task("echo more >>a.txt", "--need", "VER=2")
		kept("open", id)
		p.check(id, "--", "true")
		leaves("checked", id)
		p.in(id, "echo again >>a.txt")
		kept("changed since", id)
		p.check(id, "--", "false")
		kept("failed", id)

		// An acceptance is for these files.
		p.refused(p.do("accept", id, "--axis", "VER=0", "--reason", "x", "--yes"), "denied")
		accept(id)
		if v := p.verified("diff", id); v.Accepted == nil || v.Level != 0 {
			p.t.Errorf("accepted: %+v", v)
		}
		leaves("accepted", id)
		p.in(id, "echo third >>a.txt")
		kept("changed since it was accepted", id)

		// After its end there is nothing to run a check on, but a yes.
		if r := p.do("close", "--keep", "always", id); r.Exit != 7 {
			p.t.Fatal(r)
		}
		kept("kept", id)
		p.ok("resume", id)
		p.check(id, "--name", "late", "--", "true")
		p.ok("close", "--keep", "never", id)
		leaves("checked before it was closed", id)
		never := p.task("echo unseen >>a.txt", "--need", "VER=2")
		p.ok("close", "--keep", "never", never)
		kept("closed", never)
		accept(never)
		leaves("accepted when it was closed", never)
		if log := p.ok("log", "--json", never); !strings.Contains(log, `"accepted":"a`) {
			p.t.Errorf("the record does not name the acceptance:\n%s", log)
		}
	})
}
