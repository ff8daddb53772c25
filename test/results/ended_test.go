//go:build linux

package results

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// after is what every way back gives of one task at one moment: the tree of a
// branch and of a bundle, the files of a folder, what apply makes of the checkout.
func (p *place) after(what, id string, want map[string]string) {
	p.t.Helper()
	n := fmt.Sprintf("%s.%d", id, time.Now().UnixNano())
	if r := p.do("diff", id); r.Exit != 0 || !strings.Contains(r.Stdout, "new.txt") {
		p.t.Errorf("%s: diff: %v", what, r)
	}
	if r := p.do("branch", id, "b-"+n); r.Exit != 0 {
		p.t.Errorf("%s: branch: %v", what, r)
	} else {
		p.git("worktree", "add", "-q", "--detach", p.Dir+"/w"+n, "b-"+n)
		harness.Same(p.t, what+": branch", harness.Files(p.t, p.Dir+"/w"+n), want)
		p.git("worktree", "remove", "--force", p.Dir+"/w"+n)
	}
	if r := p.do("export", "--dir", p.Dir+"/d"+n, id); r.Exit != 0 {
		p.t.Errorf("%s: export --dir: %v", what, r)
	} else {
		harness.Same(p.t, what+": export --dir", harness.Files(p.t, p.Dir+"/d"+n), want)
	}
	for _, form := range []string{"--patch", "--bundle"} {
		if r := p.do("export", form, "-o", p.Dir+"/"+n+form, id); r.Exit != 0 {
			p.t.Errorf("%s: export %s: %v", what, form, r)
		}
	}
	p.git("bundle", "verify", "-q", p.Dir+"/"+n+"--bundle")
	p.before = harness.TakePicture(p.t, p.repo)
	if r := p.do("apply", "--yes", id); r.Exit != 0 {
		p.t.Errorf("%s: apply: %v", what, r)
		p.untouched(what)
	} else {
		harness.Same(p.t, what+": apply", harness.Files(p.t, p.repo), want)
	}
	p.sh(p.repo, "git reset -q --hard; git clean -qfdx")
}

// TestWaysByState takes one change home from a task that is open, kept,
// resumed, closed and expired.
func TestWaysByState(t *testing.T) {
	each(t, applyBase(), func(p *place) {
		id := p.task(applyEdit + "; git add -A; git commit -qm one; echo two >two.txt")
		want := p.inside(id)
		if p.mine(1) {
			p.after("open", id, want)
		}
		if r := p.do("close", "--keep", "always", id); r.Exit != 7 {
			p.t.Errorf("close --keep always: %v", r)
		}
		if v := p.show(id); v.State != "kept" {
			p.t.Errorf("state %s (%s)", v.State, v.Problem)
		}
		if p.mine(0) {
			p.after("kept", id, want)
		}

		// Kept on, with a reason that everybody sees.
		p.ok("keep", "--for", "72h", "--reason", "waits for review", id)
		v := p.show(id)
		if v.Retention == nil || v.Retention.Reason != "waits for review" && v.Retention.Why != "waits for review" || time.Until(v.Retention.Until) < 71*time.Hour {
			p.t.Errorf("retention %+v", v.Retention)
		}
		if out := p.ok("ls"); !strings.Contains(out, id) {
			p.t.Errorf("ls does not list it: %s", out)
		}
		if out := p.ok("log", id); !strings.Contains(out, "waits for review") {
			p.t.Errorf("the record does not say why it is kept: %s", out)
		}

		// Opened again it has everything, and goes on.
		p.ok("resume", id)
		if v := p.show(id); v.State != "ready" {
			p.t.Errorf("resumed: state %s (%s)", v.State, v.Problem)
		}
		harness.Same(p.t, "resumed", p.inside(id), want)
		if out := p.in(id, "git log --format=%s -1; git status --porcelain"); out != "one\n?? two.txt\n" {
			p.t.Errorf("git inside a resumed task: %q", out)
		}
		p.in(id, "echo three >three.txt")
		want["three.txt"] = "file three\n"
		if p.mine(1) {
			p.after("resumed", id, want)
		}

		p.ok("close", "--keep", "never", id)
		p.after("closed", id, want)
		if r := p.do("resume", id); r.Exit == 0 {
			p.t.Errorf("a closed task cannot be opened again: %v", r)
		} else {
			p.refused(r, "")
		}
		p.refused(p.do("keep", "--for", "1h", "--reason", "x", id), "")

		// Nothing left: the refs are gone too.
		p.sh(p.repo, "git for-each-ref --format='delete %(refname)' refs/caisson/ | git update-ref --stdin")
		for _, args := range [][]string{{"diff", id}, {"apply", "--yes", id}, {"branch", id}, {"export", "--patch", id}, {"export", "--bundle", id}, {"export", "--dir", p.Dir + "/none", id}} {
			r := p.do(args...)
			p.refused(r, "")
			if !strings.Contains(r.Stderr, "caisson: hint: ") {
				p.t.Errorf("no hint: %v", r)
			}
		}
		p.unmarked("ways")
	})
}

// expires waits until the retention of a task has ended.
func (p *place) expires(id string) {
	p.t.Helper()
	for end := time.Now().Add(harness.Limit); p.show(id).State != "closed" && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		p.ok("reap")
	}
	if v := p.show(id); v.State != "closed" {
		p.t.Fatalf("never expired: %+v", v)
	}
}

// TestExpired lets a retention end: what was rescued is still there in every way.
func TestExpired(t *testing.T) {
	user(t, applyBase(), func(p *place) {
		id := p.task(applyEdit + "; echo secret >my.ignored")
		want := p.inside(id)
		delete(want, "my.ignored")
		p.do("close", "--keep", "always", id)
		p.ok("keep", "--for", "1s", "--reason", "over soon", id)
		p.expires(id)
		if exists(p.State + "/tasks/" + id + "/source") {
			p.t.Error("its files are still there")
		}
		p.after("expired", id, want)
		p.refused(p.do("resume", id), "")
	})
}

// TestKeepAndResumeRefuse gives keep and resume what they must not take.
func TestKeepAndResumeRefuse(t *testing.T) {
	user(t, applyBase(), func(p *place) {
		id := p.task("echo x >x")
		for _, args := range [][]string{
			{"keep", id}, {"keep", "--for", "1h", id}, {"keep", "--reason", "x", id}, {"keep", "--for", "-1h", "--reason", "x", id}, {"keep", "--for", "0", "--reason", "x", id}, {"keep", "--for", "soon", "--reason", "x", id},
			{"keep", "--for", "1000000h", "--reason", "x", id}, {"keep", "--for", "1h", "--reason", " ", id}, {"keep", "--for", "1h", "--reason", strings.Repeat("x", 100_000), id}, {"resume", id}, {"resume", "none"}, {"keep", "--for", "1h", "--reason", "x", "none"},
			{"export", id}, {"export", "--patch", "--bundle", id}, {"apply"}, {"apply", "none"}, {"branch", "none"}, {"export", "--patch", "none"}, {"branch", id, "-x"}, {"branch", id, "--", "--exec"}, {"branch", id, "a..b"}, {"branch", id, "x.lock"},
			{"branch", id, "new\nline"}, {"branch", id, ""}, {"branch", id, "refs/heads/../x"}, {"branch", id, "@{-1}"}, {"branch", id, "HEAD"}, {"branch", id, "a b"}, {"branch", id, "\x1b[2J"}, {"branch", id, "main"}, {"branch", "--force", id, "main"}, {"branch", id, "main/x"},
			{"export", "--dir", p.repo, id}, {"export", "--dir", p.repo + "/.git", id}, {"export", "--dir", "/", id}, {"export", "--patch", "-o", p.repo, id}, {"export", "--patch", "-o", p.Dir + "/none/x", id}, {"export", "--dir", p.State, id}, {"export", "--dir", p.State + "/tasks/" + id + "/source/x", id},
		} {
			if r := p.do(args...); r.Exit == 0 || strings.Contains(r.Stderr, "(internal)") || !strings.Contains(r.Stderr, "caisson: error: ") || steering.MatchString(r.Stderr) {
				p.t.Errorf("%.200q: %v", args, r)
			}
		}
		p.untouched("refused")
		p.ok("keep", "--for", "1h", "--reason", "\x1b[2J\u202eevil\nnext", id)
		for _, args := range [][]string{{"show", id}, {"ls"}, {"log", id}} {
			if out := p.ok(args...); steering.MatchString(out) {
				p.t.Errorf("%v: control characters of a reason: %q", args, out)
			}
		}
	})
}

// TestResumeAgain goes round many times; no turn leaves anything or loses anything.
func TestResumeAgain(t *testing.T) {
	user(t, applyBase(), func(p *place) {
		id := p.task("echo 0 >n.txt; echo ignored >x.ignored; mkfifo pipe")
		for i := range count(3, 20) {
			if r := p.do("close", "--keep", "always", id); r.Exit != 7 {
				p.t.Fatal(r)
			}
			if left := p.Left(); len(left) > 0 {
				p.t.Errorf("turn %d: left: %v", i, left)
			}
			p.ok("resume", id)
			if out := p.in(id, fmt.Sprintf("cat n.txt x.ignored; test -p pipe; echo %d >n.txt; git add -A; git commit -qm %d", i+1, i)); out != fmt.Sprintf("%d\nignored\n", i) {
				p.t.Errorf("turn %d: %q", i, out)
			}
		}
		if r := p.do("close", "--keep", "never", id); r.Exit != 7 { // the ignored file stays on disk
			p.t.Error(r)
		}
		if n := p.git("rev-list", "--count", "HEAD..refs/caisson/"+id+"/heads/main"); n != fmt.Sprint(count(3, 20)) {
			p.t.Errorf("%s commits were rescued", n)
		}
		p.untouched("resumed and closed")
	})
}
