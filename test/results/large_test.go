//go:build linux

package results

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestLarge brings home, or refuses, results that are large in one way:
// many files, one huge sparse file, deep folders, long names, many refs.
func TestLarge(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "large", harness.UserOf())
	p := newPlace(t, id, map[string]string{"a.txt": "a\n"})
	task := p.open()
	n := count(2_000, 100_000)
	p.python(task, fmt.Sprintf("import os\nfor i in range(%d):\n    if i %% 1000 == 0: os.makedirs('many/%%d' %% (i//1000))\n    open('many/%%d/%%d' %% (i//1000, i), 'w').write(str(i))\n", n))
	long := func(args ...string) string {
		r := p.Within(t, 10*harness.Limit, p.repo, args...)
		if r.Exit != 0 {
			t.Fatal(r)
		}
		return r.Stdout
	}
	if out := long("diff", "--name-status", "-z", task); strings.Count(out, "\x00") != 2*n {
		t.Errorf("%d files in the change set, want %d", strings.Count(out, "\x00")/2, n)
	}
	long("branch", task, "many")
	long("apply", "--yes", task)
	if got := harness.Files(t, p.repo); len(got) != n+1 || got[fmt.Sprintf("many/1/%d", 1500)] != "file 1500" {
		t.Errorf("%d files in the checkout", len(got))
	}
	p.sh(p.repo, "git reset -q --hard; git clean -qfdx; git branch -qD many")
	p.ok("close", "--discard", task)

	// Megabytes, or 2 GB, that are not there, and paths longer than any command takes.
	for what, make := range map[string]string{
		"sparse": fmt.Sprintf("truncate -s %dM sparse; echo x >x", count(64, 2048)),
		"deep":   "python3 -c \"\nimport os\nos.mkdir('deep'); os.chdir('deep')\nfor i in range(600): os.mkdir('d' * 20); os.chdir('d' * 20)\nopen('f', 'w').write('f')\n\"; echo x >x",
		"long":   "python3 -c \"\nimport os\nfor i in range(15): os.mkdir('n' * 255); os.chdir('n' * 255)\nopen('f', 'w').write('f')\n\"; echo x >x",
		"refs":   "h=$(git commit-tree -m c HEAD^{tree}); for i in $(seq 1000); do echo \"create refs/heads/b/$i $h\"; done | git update-ref --stdin; echo x >x",
	} {
		task := p.task(make)
		p.remember()
		var all []harness.Result
		for _, args := range [][]string{{"diff", "--name-status", task}, {"apply", "--dry-run", task}, {"branch", task, "big-" + what}, {"export", "--dir", p.Dir + "/" + what, task}} {
			all = append(all, p.Within(t, 5*harness.Limit, p.repo, args...))
		}
		p.clear(what, all)
		for _, r := range all {
			t.Logf("%s: %q exit %d %.200s", what, r.Args[1:], r.Exit, r.Stderr)
		}
		p.untouched(what, `\.git/(logs/)?refs/heads/big-.*`)
		end := p.Within(t, 5*harness.Limit, p.repo, "close", task)
		p.clear(what, []harness.Result{end})
		if end.Exit != 0 && end.Exit != 7 {
			t.Logf("%s: close: %v", what, end)
			p.ok("close", "--discard", task)
		}
		if st, err := os.Stat(p.State); err != nil || !st.IsDir() {
			t.Fatal(err)
		}
	}
	p.git("fsck", "--no-dangling")
	p.unmarked("large")
}

// TestRefsCollide makes refs, tags and histories inside that collide with each
// other, with the user's and with another task's.
func TestRefsCollide(t *testing.T) {
	user(t, map[string]string{"a.txt": "a\n"}, func(p *place) {
		p.git("branch", "a")
		p.git("tag", "-am", "t", "v1")
		other := p.task("echo o >o; git add o; git commit -qm other")
		p.ok("close", "--keep", "never", other)
		before := p.git("for-each-ref")
		id := p.task(`set +e; exec 2>/dev/null; h() { git commit-tree -p HEAD -m "$1" HEAD^{tree}; }
u() { mkdir -p "$(dirname ".git/refs/$1")"; h "$1" >".git/refs/$1"; }
u heads/A; u heads/a; u heads/x; rm .git/refs/heads/x; u heads/x/y; git pack-refs --all --prune; u heads/x || :; u heads/caf; u "heads/$(printf 'caf\303\251')"; u "heads/$(printf 'cafe\314\201')"; u tags/v1; u notes/commits; u stash
u caisson/` + other + `/heads/main; u caisson/` + other + `/worktree; u caisson/pin/x; u remotes/origin/main; u bisect/bad; u heads/HEAD; u heads/refs/heads/main; u "heads/with space"; u heads/-x; u heads/x.lock; u heads/..; u "heads/a~1"
t=$(git rev-parse HEAD); for i in 1 2 3 4 5 6 7 8; do t=$(printf 'object %s\ntype %s\ntag t%s\ntagger x <x> 0 +0000\n\nm\n' $t $(git cat-file -t $t) $i | git hash-object -t tag -w --stdin); done; echo $t >.git/refs/tags/chain
git rev-parse HEAD^{tree} >.git/refs/tags/tree; git rev-parse HEAD:a.txt >.git/refs/tags/blob; git rev-parse HEAD^{tree} >.git/refs/heads/tree
echo new >new; git add new; git commit -qm new; git checkout -q --orphan rewritten; git commit -qm 'nothing before'; git branch -D main; git branch main; exit 0`)
		all := append(p.brief(id), p.do("branch", id, "a"), p.do("branch", id, "a/b"), p.do("branch", id, "A"), p.do("branch", id, "v1"))
		p.clear("refs", all)
		end := p.do("close", "--keep", "never", id)
		p.clear("refs", []harness.Result{end})
		after := p.git("for-each-ref")
		for _, l := range strings.Split(before, "\n") {
			if !strings.Contains(after, l) {
				p.t.Errorf("the ref is gone or moved: %q", l)
			}
		}
		for _, l := range strings.Split(after, "\n") {
			f := strings.Fields(l)
			if len(f) == 3 && !strings.Contains(before, l) && !strings.HasPrefix(f[2], "refs/caisson/"+id+"/") && f[2] != "refs/heads/got-"+id && f[2] != "refs/heads/A" && f[2] != "refs/heads/v1" {
				p.t.Errorf("a ref that was not asked for: %q", l)
			}
		}
		if r := p.shell(p.repo, "git cat-file -p refs/caisson/"+id+"/worktree:new"); r.Stdout != "new\n" {
			p.t.Errorf("what the task made is not in a ref: %v %v", r, end)
		}
		p.git("fsck", "--strict", "--no-dangling")
		p.git("gc", "-q", "--prune=now")
	})
}

// TestRewrittenHistory takes the task's base away from it: the branch still
// leads to what the task has, and says so.
func TestRewrittenHistory(t *testing.T) {
	user(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n"}, func(p *place) {
		p.git("commit", "-q", "--allow-empty", "-m", "second")
		head := p.git("rev-parse", "HEAD")
		id := p.task("git checkout -q --orphan o; git rm -qf b.txt; echo x >x; git add x; GIT_COMMITTER_DATE='@100000000 +0000' git commit -qm forged --author='Linus <l@x>' --date=2001-01-01; git branch -D main; git branch -m main")
		r := p.do("branch", id, "r")
		if r.Exit != 0 {
			p.t.Fatal(r)
		}
		if got := p.git("ls-tree", "-r", "--name-only", "r"); got != "a.txt\nx" {
			p.t.Errorf("the branch has %q", got)
		}
		if p.git("rev-parse", "HEAD") != head || p.git("rev-parse", "main") != head {
			p.t.Error("the user's branch moved")
		}
		// Without force an other content does not move a branch; a branch of a checkout never moves.
		p.in(id, "echo y >y")
		p.refused(p.do("branch", id, "r"), "")
		p.ok("branch", "--force", id, "r")
		if got := p.git("ls-tree", "-r", "--name-only", "r"); got != "a.txt\nx\ny" {
			p.t.Errorf("forced, the branch has %q", got)
		}
		p.refused(p.do("branch", "--force", id, "main"), "")
		p.git("worktree", "add", "-q", p.Dir+"/lw", "r")
		p.in(id, "echo z >z")
		p.refused(p.do("branch", "--force", id, "r"), "")
		p.git("fsck", "--strict", "--no-dangling")
	})
}

// TestEvilGit opens tasks whose git inside lies: garbage, no end, too much, a
// bundle of other refs. The host neither believes nor hangs, and loses nothing.
func TestEvilGit(t *testing.T) {
	bundle := `h=$(/usr/bin/git -C "$R" rev-parse HEAD 2>/dev/null)`
	lies := map[string]string{
		"garbage":     "head -c 1000000 /dev/urandom",
		"no end":      "exec sleep 1000",
		"too much":    "exec cat /dev/zero",
		"fails":       "echo '\\033[2Jevil' >&2; exit 128",
		"succeeds":    "exit 0",
		"other refs":  bundle + `; printf '# v2 git bundle\n%s refs/heads/main\n%s refs/caisson/x/../../heads/main\n\n' $h $h; printf 'PACK\000\000\000\002\000\000\000\000'`,
		"killed":      "kill -9 $PPID $$",
		"many refs":   `printf '# v2 git bundle\n'; yes '1111111111111111111111111111111111111111 refs/heads/x'`,
		"bad version": "printf '# v9 git bundle\\n@evil=x\\n\\n'",
	}
	each(t, map[string]string{"a.txt": "a\n", "evil/git": "#!/bin/sh\nexec /usr/bin/git \"$@\"\n"}, func(p *place) {
		i := 0
		for what, lie := range lies {
			if i++; !p.mine(i) {
				continue
			}
			id := p.open("--env", "PATH=/tmp/evil:/usr/local/bin:/usr/bin:/bin")
			p.in(id, "echo more >>a.txt; /usr/bin/git commit -qam mine; echo un >un; R=$PWD; printf '#!/bin/sh\\nR=%s\\n%s\\n' \"$PWD\" "+shquote(lie)+" >evil/git; chmod +x evil/git; mkdir -p /tmp/evil; cp evil/git /tmp/evil/git")
			all := []harness.Result{p.do("diff", id), p.do("apply", "--dry-run", id), p.Within(p.t, harness.Limit, p.repo, "branch", id, fmt.Sprintf("evil%d", i))}
			end := p.Within(p.t, harness.Limit, p.repo, "close", id)
			all = append(all, end)
			p.clear(what, all)
			for _, r := range all {
				if r.Exit < 0 {
					p.t.Errorf("%s: hangs: %v", what, r)
				}
			}
			if r := p.shell(p.repo, "git cat-file -p refs/caisson/"+id+"/worktree:un"); end.Exit == 0 && r.Stdout != "un\n" {
				p.t.Errorf("%s: closed, and the work is not in a ref: %v %v", what, r, end)
			}
			if end.Exit != 0 && end.Exit != 7 {
				p.t.Logf("%s: %v", what, end)
				p.ok("close", "--discard", id)
			}
		}
		p.git("fsck", "--strict", "--no-dangling")
		p.unmarked("evil git")
	})
}
