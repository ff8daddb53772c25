//go:build linux

package realwork

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// repoAt makes a repository of one file at a path of its own choosing.
func repoAt(t *testing.T, id *harness.Identity, dir string) {
	t.Helper()
	id.Mkdir(t, dir)
	id.Git(t, dir, "init", "-q", "-b", "main")
	id.Write(t, filepath.Join(dir, "a.txt"), "a\n", 0o644)
	id.Git(t, dir, "add", "-A")
	id.Git(t, dir, "commit", "-qm", "first")
}

// TestPlaces puts checkouts where people put them: the source stands at the
// same path inside.
func TestPlaces(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		places := map[string]string{
			"space":   filepath.Join(id.Dir, "with space", "and 'quote'"),
			"unicode": filepath.Join(id.Dir, "ünïcode-文字"),
			"dash":    filepath.Join(id.Dir, "-n", "--json"),
			"colon":   filepath.Join(id.Dir, "a:b,c=d\\e"),
			"long":    filepath.Join(id.Dir, strings.Repeat("l", 255)),
			"home":    filepath.Join(id.Home, "project"),
			"tmp":     tempIn(t, id, "/tmp"),
			"vartmp":  tempIn(t, id, "/var/tmp"),
		}
		if id.UID == 0 {
			places["opt"], places["usrsrc"], places["srv"] = tempIn(t, id, "/opt"), tempIn(t, id, "/usr/src"), tempIn(t, id, "/srv")
		}
		for name, dir := range places {
			t.Run(name, func(t *testing.T) {
				repoAt(t, id, dir)
				on(t, id, dir, func() {
					equal(t, "where it starts", id.OK(t, dir, "run", "--", "sh", "-ec", `printf '%s\n' "$PWD"; cat a.txt; git status --porcelain; git log --format=%s; echo b >b.txt; git add b.txt; git commit -qm second`), dir+"\na\nfirst\n")
				})
				if refs := id.Git(t, dir, "for-each-ref", "--format=%(contents:subject)", "refs/caisson"); !strings.Contains(refs, "second") {
					t.Errorf("the commit is not there: %q", refs)
				}
			})
		}
		// What git itself cannot be told in every way is refused, with nothing made.
		for name, dir := range map[string]string{"line break": id.Dir + "/new\nline", "not UTF-8": id.Dir + "/\xff\xfebytes", "quote": id.Dir + "/dou\"ble"} {
			t.Run(name, func(t *testing.T) {
				repoAt(t, id, dir)
				before := treeOf(t, dir)
				for _, args := range [][]string{{"run", "--", "true"}, {"open"}, {"plan"}} {
					r := id.Caisson(t, dir, args...)
					if r.Exit == 0 || !strings.Contains(r.Stderr, "(unsupported)") || !strings.Contains(r.Stderr, "hint: rename that folder") {
						t.Errorf("%v", r)
					}
				}
				if after := treeOf(t, dir); len(after) != len(before) {
					t.Errorf("something was made: %d entries, were %d", len(after), len(before))
				}
				before.same(t, dir)
			})
		}
	})
}

// tempIn makes a folder for id in one that belongs to the system.
func tempIn(t *testing.T, id *harness.Identity, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "realwork-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, id.UID, id.UID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestWhere starts in folders of a checkout.
func TestWhere(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n", "sub/deep/b.txt": "b\n"})
		id.Mkdir(t, repo+"/untracked/folder")
		link := filepath.Join(id.Dir, "link")
		if err := os.Symlink(repo, link); err != nil {
			t.Fatal(err)
		}
		on(t, id, repo, func() {
			pwd := func(dir string, flags ...string) string {
				t.Helper()
				return strings.TrimSuffix(id.OK(t, dir, append(append([]string{"run"}, flags...), "--", "pwd")...), "\n")
			}
			equal(t, "top", pwd(repo), repo)
			equal(t, "a folder", pwd(repo+"/sub/deep"), repo+"/sub/deep")
			equal(t, "a folder the task does not have", pwd(repo+"/untracked/folder"), repo)
			equal(t, "through a link", pwd(link+"/sub"), repo+"/sub")
			equal(t, "--repo from elsewhere", pwd(id.Dir, "--repo", repo), repo)
			equal(t, "--repo of a folder", pwd(id.Dir, "--repo", repo+"/sub"), repo)
			equal(t, "--dir", pwd(repo, "--dir", repo+"/sub/deep"), repo+"/sub/deep")
			equal(t, "--at", pwd(repo, "--at", "/srv/project"), "/srv/project")
			equal(t, "--at from a folder", pwd(repo+"/sub", "--at", "/srv/project"), "/srv/project/sub")
			equal(t, "relative --repo", pwd(id.Dir, "--repo", filepath.Base(repo)), repo)
			task := id.Open(t, repo+"/sub")
			equal(t, "exec", id.OK(t, repo, "exec", task, "--", "pwd"), repo+"\n")
			equal(t, "exec from a folder", id.OK(t, repo+"/sub/deep", "exec", task, "--", "pwd"), repo+"/sub/deep\n")
			equal(t, "exec from elsewhere", id.OK(t, id.Dir, "exec", task, "--", "pwd"), repo+"\n")
			equal(t, "shell", feed(t, id, repo+"/sub", strings.NewReader("pwd\n"), "shell", task).Stdout, repo+"/sub\n")
			id.OK(t, repo, "close", task)
			for _, at := range []string{"/", "/usr", "/usr/lib/x", "/etc", "/proc/x", "/dev", "/bin", id.State, filepath.Dir(id.State)} {
				r := id.Caisson(t, repo, "run", "--at", at, "--", "true")
				if r.Exit != 125 || !strings.Contains(r.Stderr, "caisson: error:") {
					t.Errorf("--at %s: %v", at, r)
				}
			}
		})
	})
}

// TestHistory shows what of the repository can be read.
func TestHistory(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		first := id.Git(t, repo, "rev-parse", "HEAD")
		id.Git(t, repo, "tag", "-a", "v1", "-m", "one")
		id.Git(t, repo, "tag", "light")
		id.Write(t, repo+"/a.txt", "two\n", 0o644)
		id.Git(t, repo, "commit", "-qam", "second")
		second := id.Git(t, repo, "rev-parse", "HEAD")
		for _, b := range []string{"feature/odd#name", "wip@home", "-dash", "ümlaut", "a.b+c"} {
			id.Git(t, repo, "update-ref", "refs/heads/"+b, first)
		}
		id.Git(t, repo, "switch", "-q", "-c", "secret")
		id.Write(t, repo+"/key.txt", "geheim\n", 0o644)
		id.Git(t, repo, "add", "-A")
		id.Git(t, repo, "commit", "-qm", "secret")
		secret := id.Git(t, repo, "rev-parse", "HEAD")
		blob := id.Git(t, repo, "rev-parse", "HEAD:key.txt")
		id.Git(t, repo, "switch", "-q", "main")
		on(t, id, repo, func() {
			for rev, want := range map[string]string{"v1": first, "light": first, "HEAD^": first, "HEAD": second, "main~1": first, second[:10]: second, first: first,
				"feature/odd#name": first, "wip@home": first, "ümlaut": first, "a.b+c": first, "-dash": first, "refs/heads/secret": secret, "HEAD^{commit}": second, "@": second, ":/second": second} {
				plan := decode[view](t, id.OK(t, repo, "plan", "--json", "--base", rev))
				equal(t, "the plan for --base "+rev, plan.Source.Base, want)
				if rev == "v1" || rev == "-dash" || rev == "feature/odd#name" || rev == "HEAD^" || long() {
					equal(t, "--base "+rev, id.OK(t, repo, "run", "--base", rev, "--", "git", "rev-parse", "HEAD"), want+"\n")
				}
			}
			for _, rev := range []string{"no-such", "HEAD^^^^", "-no-such", "--help", "HEAD:a.txt", "HEAD^{tree}", "", "a b", "main..secret"} {
				r := id.Caisson(t, repo, "run", "--base", rev, "--", "true")
				if r.Exit != 125 || !strings.Contains(r.Stderr, "caisson: error:") || strings.Contains(r.Stderr, "(internal)") {
					t.Errorf("--base %q: %v", rev, r)
				}
			}
			read := func(flags ...string) string {
				t.Helper()
				return sh(t, id, repo, `for o in `+secret+` `+blob+` `+first+` `+second+`; do git cat-file -e $o 2>/dev/null && printf y || printf n; done; printf ' %s' "$(git rev-list --count HEAD)"; git fsck --connectivity-only 2>&1 | grep -v '^notice' || true`, flags...)
			}
			// The control first: with the whole history the other branch's content is readable.
			equal(t, "--history full", read(), "yyyy 2")
			equal(t, "--history base", read("--history", "base"), "nnyy 2")
			equal(t, "--history base at v1", read("--history", "base", "--base", "v1"), "nnyn 1")
			equal(t, "--history none", read("--history", "none"), "nnny 1")
			// Not by another way either.
			equal(t, "anywhere in the boundary", sh(t, id, repo, "git log --all --format=%s | sort; grep -rl geheim . /run /var /home 2>/dev/null || true", "--history", "base"), "first\nsecond\n")
			for _, h := range []string{"full", "base", "none"} {
				out := sh(t, id, repo, "echo x >x; git add x; git commit -qm 'on "+h+"'; git rev-parse HEAD", "--history", h)
				if got := id.Git(t, repo, "log", "-1", "--format=%s", strings.TrimSpace(out)); got != "on "+h {
					t.Errorf("the commit of --history %s: %q", h, got)
				}
			}
		})
	})
}

// TestKindsOfCheckout works on what git calls a checkout.
func TestKindsOfCheckout(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		id.Git(t, repo, "commit", "-q", "--allow-empty", "-m", "second")
		try := func(name, dir, script, want string) {
			t.Run(name, func(t *testing.T) {
				on(t, id, dir, func() { equal(t, name, sh(t, id, dir, script), want) })
			})
		}
		id.Git(t, repo, "worktree", "add", "-q", "-b", "side", id.Dir+"/linked")
		id.Git(t, id.Dir+"/linked", "commit", "-q", "--allow-empty", "-m", "on the side")
		try("linked worktree", id.Dir+"/linked", "git branch --show-current; git log -1 --format=%s; pwd; git status --porcelain", "side\non the side\n"+id.Dir+"/linked\n")
		try("main worktree beside it", repo, "git branch --show-current; git log -1 --format=%s", "main\nsecond\n")
		id.Git(t, repo, "worktree", "add", "-q", "--detach", id.Dir+"/detached", "HEAD^")
		try("detached", id.Dir+"/detached", "git branch --show-current; git log -1 --format=%s; git commit -q --allow-empty -m more; git rev-list --count HEAD", "first\n2\n")
		empty := id.Dir + "/empty"
		id.Mkdir(t, empty)
		id.Git(t, empty, "init", "-q", "-b", "trunk")
		try("no commit", empty, "git status --porcelain=v2 --branch | grep branch.oid; git branch --show-current; echo x >x; git add x; git commit -qm root; git rev-list --count HEAD", "# branch.oid (initial)\ntrunk\n1\n")
		id.Git(t, id.Dir, "clone", "-q", "--depth", "1", "file://"+repo, id.Dir+"/shallow")
		try("shallow clone", id.Dir+"/shallow", "git log --format=%s", "second\n")
		id.Git(t, id.Dir, "clone", "-q", "--shared", repo, id.Dir+"/shared")
		try("clone with alternates", id.Dir+"/shared", "git log --format=%s | head -1; git fsck 2>&1 | grep -c missing || true", "second\n0\n")
		id.Git(t, repo, "gc", "-q")
		try("packed refs and objects", repo, "git log -1 --format=%s; git branch --show-current", "second\nmain\n")
		t.Run("uncommitted state is not touched and not taken", func(t *testing.T) {
			id.Write(t, repo+"/a.txt", "changed\n", 0o644)
			id.Write(t, repo+"/new.txt", "new\n", 0o644)
			id.Git(t, repo, "add", "new.txt")
			on(t, id, repo, func() { equal(t, "inside", sh(t, id, repo, "cat a.txt; ls; git status --porcelain"), "one\na.txt\n") })
		})
		for name, make := range map[string]func(string){
			"not git": func(d string) { id.Mkdir(t, d) },
			"inside": func(d string) {
				id.Git(t, id.Dir, "clone", "-q", repo, filepath.Dir(d)+"/in")
				_ = os.Symlink(filepath.Dir(d)+"/in/.git", d)
			},
			"no place": func(string) {},
		} {
			t.Run(name, func(t *testing.T) {
				dir := id.Dir + "/x-" + strings.ReplaceAll(name, " ", "-")
				make(dir)
				r := id.Caisson(t, id.Dir, "run", "--repo", dir, "--", "true")
				if r.Exit != 125 || !strings.Contains(r.Stderr, "caisson: hint:") {
					t.Errorf("got %v", r)
				}
			})
		}
	})
}

// TestNoHome works without HOME and with little else.
func TestNoHome(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		on(t, id, repo, func() {
			out := sh(t, with(id, "HOME"), repo, `test -d "$HOME"; touch "$HOME/x"; git commit -q --allow-empty -m x; echo fine`)
			equal(t, "without HOME", out, "fine\n")
			bare := *id
			bare.Env = []string{"CAISSON_STATE_DIR=" + id.State, "CAISSON_RUNTIME_DIR=" + id.Runtime}
			r := bare.Caisson(t, repo, "run", "--", "sh", "-c", "echo $HOME | grep -q /; id -u")
			if r.Exit != 0 && !strings.Contains(r.Stderr, "git") {
				t.Errorf("with an empty environment: %v", r)
			}
			r = with(id, "CAISSON_STATE_DIR=relative").Caisson(t, repo, "run", "--", "true")
			if r.Exit != 125 || !strings.Contains(r.Stderr, "hint:") {
				t.Errorf("with a relative state folder: %v", r)
			}
			// The user's own home is not the one inside.
			id.Write(t, id.Home+"/.netrc", "secret\n", 0o600)
			equal(t, "HOME inside", sh(t, id, repo, `echo "$HOME"; ls -A "$HOME"`), id.Home+"\n")
		})
	})
}

// TestGitWork does inside what developers do with git.
func TestGitWork(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		id.Write(t, id.Home+"/.gitconfig", "[user]\n\tname = Ada Löve\n\temail = ada@example.org\n[core]\n\thooksPath = "+id.Home+"/hooks\n[alias]\n\tst = !touch /tmp/owned\n", 0o644)
		repo := project(t, id, "github.com/spf13/pflag")
		on(t, id, repo, func() {
			task := id.Open(t, repo)
			equal(t, "identity", in(t, id, task, `git commit -q --allow-empty -m me; git log -1 --format='%an <%ae> %cn'`), "Ada Löve <ada@example.org> Ada Löve\n")
			contains(t, "history", in(t, id, task, "git log --oneline --graph --all; git branch -a; git tag"), "Merge the notes", "v1.0.0", "light", "main")
			in(t, id, task, `git status --porcelain | (! grep .)
echo x >>flag.go; git stash -q; git status --porcelain | (! grep .); git stash pop -q; git diff --stat | grep -q flag.go; git checkout -q flag.go
git switch -q -c topic v1.0.0; echo topic >topic.txt; git add topic.txt; git commit -qm topic; git rebase -q main; git log --oneline | grep -q topic
git switch -q main; git merge -q --no-ff -m merged topic; git blame -s topic.txt | grep -q topic; git bisect start HEAD v1.0.0 >/dev/null; git bisect reset >/dev/null 2>&1
git cherry-pick --allow-empty topic 2>/dev/null || git cherry-pick --skip; git revert --no-edit HEAD^ >/dev/null 2>&1 || git revert --abort || true
git worktree add -q /tmp/wt topic; ls /tmp/wt/topic.txt; git worktree remove /tmp/wt; git gc -q; git fsck 2>&1 | (! grep -i 'missing\|broken'); git format-patch -1 topic --stdout | git apply --check -R
git archive HEAD | tar -t | grep -q flag.go; git clone -q . /tmp/copy; git -C /tmp/copy log -1 --format=%s; git reset -q --hard; git clean -fdq; git reflog | grep -q topic`)
			id.OK(t, id.Dir, "close", task)
			refs := id.Git(t, repo, "for-each-ref", "--format=%(refname) %(contents:subject)", "refs/caisson")
			contains(t, "results", refs, "/heads/topic topic", "/heads/main")
			id.Git(t, repo, "fsck", "--no-dangling")
		})
	})
}
