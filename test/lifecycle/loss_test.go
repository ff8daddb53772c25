//go:build linux

package lifecycle

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// kind is one kind of work: how it is made inside, and how a user finds it
// after the end, by plain git and by looking.
type kind struct {
	name  string
	make  string
	ref   string            // below refs/caisson/<id>/, default worktree
	files map[string]string // of that ref: path → content
	gone  []string          // paths that are not in that ref
	mode  map[string]string // path → mode in that ref
	kept  map[string]string // below kept/
	exit  int               // of close, when not 0, or 7 for kept files
	said  string            // must be named by close --dry-run
}

func kinds() []kind {
	long := strings.Repeat("n", 255)
	return []kind{
		{name: "tracked change", make: "echo new >a.txt", files: map[string]string{"a.txt": "new\n", "d/b.txt": "b\n"}, said: "a.txt"},
		{name: "deletion", make: "rm gone.txt", files: map[string]string{"a.txt": "a\n"}, gone: []string{"gone.txt"}, said: "gone.txt"},
		{name: "rename", make: "mv d/b.txt moved.txt", files: map[string]string{"moved.txt": "b\n"}, gone: []string{"d/b.txt"}, said: "moved.txt"},
		{name: "mode", make: "chmod +x exec.sh", mode: map[string]string{"exec.sh": "100755"}, said: "exec.sh"},
		{name: "symlink", make: "ln -s /etc/passwd link", files: map[string]string{"link": "/etc/passwd"}, mode: map[string]string{"link": "120000"}, said: "link"},
		{name: "file to link", make: "rm a.txt; ln -s d/b.txt a.txt", files: map[string]string{"a.txt": "d/b.txt"}, mode: map[string]string{"a.txt": "120000"}, said: "a.txt"},
		{name: "untracked", make: "mkdir -p deep/er; echo u >deep/er/u", files: map[string]string{"deep/er/u": "u\n"}, said: "deep/er/u"},
		{name: "ordinary folders", make: "mkdir build dist env target; for d in build dist env target; do echo $d >$d/f; done; echo s >x.svg", files: map[string]string{"build/f": "build\n", "dist/f": "dist\n", "env/f": "env\n", "target/f": "target\n", "x.svg": "s\n"}, said: "build/f"},
		{name: "ignored", make: "echo secret >my.ignored; mkdir -p x.ignored/y; echo z >x.ignored/y/z", kept: map[string]string{"files/my.ignored": "secret\n", "files/x.ignored/y/z": "z\n"}, said: "my.ignored"},
		{name: "staged only", make: "echo staged >s.txt; git add s.txt; rm s.txt; echo other >a.txt", files: map[string]string{"a.txt": "other\n"}, gone: []string{"s.txt"}, said: "a.txt"},
		{name: "commit", make: "echo c >c.txt; git add c.txt; git commit -qm c", ref: "heads/main", files: map[string]string{"c.txt": "c\n"}, said: "refs/heads/main"},
		{name: "other branch", make: "git switch -qc feat/x; echo c >c.txt; git add c.txt; git commit -qm c; git switch -q main", ref: "heads/feat/x", files: map[string]string{"c.txt": "c\n"}, said: "refs/heads/feat/x"},
		{name: "branch deleted after amend", make: "echo 1 >c.txt; git add .; git commit -qm 1; echo 2 >c.txt; git commit -qam 2 --amend", ref: "heads/main", files: map[string]string{"c.txt": "2\n"}, said: "refs/heads/main"},
		{name: "detached", make: "git switch -q --detach; echo c >c.txt; git add c.txt; git commit -qm c", ref: "HEAD", files: map[string]string{"c.txt": "c\n"}, said: "HEAD"},
		{name: "stash", make: "echo stashed >a.txt; git stash -q; echo again >a.txt; git stash -q", ref: "stash/1", files: map[string]string{"a.txt": "stashed\n"}, said: "refs/stash"},
		{name: "reset away", make: "echo c >c.txt; git add c.txt; git commit -qm c; git reset -q --hard HEAD~1", ref: "reflog/1", files: map[string]string{"c.txt": "c\n"}, said: "reflog/1"},
		{name: "branch with its commits deleted", make: "git switch -qc feat; echo c >c.txt; git add c.txt; git commit -qm c; echo d >d.txt; git add d.txt; git commit -qm d; git switch -q main; git branch -qD feat; echo m >a.txt; git commit -qam m", ref: "reflog/1", files: map[string]string{"c.txt": "c\n", "d.txt": "d\n", "a.txt": "a\n"}, said: "reflog/1"},
		{name: "worktree inside", make: "git worktree add -q --detach /tmp/inner; cd /tmp/inner; echo c >c.txt; git add c.txt; git commit -qm c", ref: "other/worktrees/1", files: map[string]string{"c.txt": "c\n"}, said: "worktrees/1"},
		{name: "tag", make: "echo c >c.txt; git add c.txt; git commit -qm c; git tag -am t v1; git reset -q --hard HEAD~1", ref: "tags/v1", files: map[string]string{"c.txt": "c\n"}, said: "refs/tags/v1"},
		{name: "nested repository", make: "git init -q n; cd n; echo n >n.txt; git add .; git -c user.name=n -c user.email=n@example.org commit -qm n", kept: map[string]string{"files/n/.git/HEAD": "ref: refs/heads/m"}, said: "n"},
		{name: "output store", make: "mkdir /run/boundary/out/r; echo r >/run/boundary/out/r/report", kept: map[string]string{"out/r/report": "r\n"}},
		{name: "strange names", make: `printf 1 >'with space'; printf 2 >"$(printf 'new\nline')"; printf 3 >"$(printf 'ta\tb')"; printf 4 >"$(printf '\377\376')"; printf 5 >./-dash; printf 6 >` + long + `; printf 7 >'x -> y'; printf 8 >é; printf 9 >'"quoted"'; printf 0 >'back\slash'`,
			files: map[string]string{"with space": "1", "new\nline": "2", "ta\tb": "3", "\xff\xfe": "4", "-dash": "5", long: "6", "x -> y": "7", "é": "8", `"quoted"`: "9", `back\slash`: "0"}, said: "with space"},
		{name: "strange ignored names", make: `printf 1 >'a b.ignored'; printf 2 >"$(printf 'n\nl.ignored')"; printf 3 >"$(printf '\377.ignored')"; printf 4 >./-d.ignored`,
			kept: map[string]string{"files/a b.ignored": "1", "files/n\nl.ignored": "2", "files/\xff.ignored": "3", "files/-d.ignored": "4"}, said: "a b.ignored"},
		{name: "loops", make: "ln -s loop loop; ln -s .. up; ln -s l2 l1; ln -s l1 l2; echo x >real", files: map[string]string{"loop": "loop", "up": "..", "l1": "l2", "real": "x\n"}, said: "loop"},
		{name: "read-only folder", make: "mkdir ro; echo r >ro/r; chmod 500 ro", files: map[string]string{"ro/r": "r\n"}, said: "ro/r"},
		{name: "closed to its owner", make: "mkdir shut; echo r >shut/r; chmod 000 shut; echo f >file; chmod 000 file", files: map[string]string{"shut/r": "r\n", "file": "f\n"}, said: "shut/r"},
		{name: "special files", make: "mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; echo x >real", files: map[string]string{"real": "x\n"}, said: "pipe"},
		{name: "deep", make: "d=.; for i in $(seq 1 100); do d=$d/dddddddddddddddddddd; done; mkdir -p $d && echo deep >$d/f; echo x >real", files: map[string]string{"real": "x\n", strings.Repeat("dddddddddddddddddddd/", 100) + "f": "deep\n"}, said: "real"},
		{name: "case twins", make: "echo 1 >Twin; echo 2 >twin", files: map[string]string{"Twin": "1\n", "twin": "2\n"}, said: "Twin"},
		{name: "own git removed", make: "echo x >x; rm -rf .git", files: map[string]string{"x": "x\n"}, said: "x"},
		{name: "own git swapped", make: "echo x >x; rm -rf .git; mkdir evil; printf '[core]\\n\\tfsmonitor = touch /tmp/pwned\\n' >evil/config; echo 'gitdir: evil' >.git", files: map[string]string{"x": "x\n"}, exit: 1, said: "x"},
	}
}

// TestNothingIsLost makes every kind of work, looks at it with close --dry-run,
// closes, and finds it again; --discard drops it.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for i, k := range kinds() {
			if id.Name == "root" && !long && i%3 != 0 {
				continue // the unprivileged user has the harder task
			}
			sub := *w
			t.Run(strings.ReplaceAll(k.name, " ", "-"), func(t *testing.T) {
				sub.t = t
				sub.lossless(k)
			})
		}
		w.clean()
	})
}

func (w *world) lossless(k kind) {
	w.t.Helper()
	w.ok("open", "x")
	v := w.show("x")
	defer func() {
		if w.t.Failed() {
			w.do(nil, "close", "--discard", v.ID)
		}
	}()
	if r := w.do(nil, "exec", "x", "--", "sh", "-ec", k.make); r.Exit != 0 {
		w.t.Fatal(r)
	}
	dry := w.ok("close", "--dry-run", "x")
	if !strings.Contains(dry, k.said) {
		w.t.Errorf("close --dry-run does not name %q:\n%s", k.said, dry)
	}
	if s := w.show(v.ID).State; s != "ready" {
		w.t.Fatalf("after --dry-run the task is %s", s)
	}
	if refs := w.git("for-each-ref", "--format=%(refname)", "refs/caisson/"+v.ID); strings.Contains(refs, "worktree") {
		w.t.Errorf("--dry-run made %s", refs)
	}
	r := w.do(nil, "close", "x")
	want := k.exit
	if len(k.kept) > 0 {
		want = 7
	}
	if r.Exit != want {
		w.t.Fatalf("close: %v", r)
	}
	w.find(k, v.ID)
	if want != 0 {
		if s := w.show(v.ID).State; s != "kept" {
			w.t.Errorf("state %s", s)
		}
		w.ok("close", "--discard", v.ID)
	}
	if s := w.show(v.ID).State; s != "closed" {
		w.t.Errorf("state %s", s)
	}
	for _, d := range []string{"source", "shadow.git", "kept", "out", "home", "rescue-out"} {
		if exists(w.State + "/tasks/" + v.ID + "/" + d) {
			w.t.Errorf("%s is left", d)
		}
	}
}

// find looks for a kind's work where it should be after the end.
func (w *world) find(k kind, id string) {
	w.t.Helper()
	ref := k.ref
	if ref == "" {
		ref = "worktree"
	}
	for path, text := range k.files {
		if got, ok := w.has(id, ref, path); !ok || got != text {
			w.t.Errorf("%q in %s: %q, %v", path, ref, got, ok)
		}
	}
	for _, path := range k.gone {
		if _, ok := w.has(id, ref, path); ok {
			w.t.Errorf("%q is still in %s", path, ref)
		}
	}
	for path, mode := range k.mode {
		if got := w.git("ls-tree", "refs/caisson/"+id+"/"+ref, "--", path); !strings.HasPrefix(got, mode+" ") {
			w.t.Errorf("%q in %s: %s", path, ref, got)
		}
	}
	for path, text := range k.kept {
		b, err := os.ReadFile(w.State + "/tasks/" + id + "/kept/" + path)
		if err != nil || !strings.HasPrefix(string(b), text) {
			w.t.Errorf("kept %q: %q, %v", path, b, err)
		}
	}
}

// TestDiscard drops the work, and says nothing was rescued.
func TestDiscard(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "x")
		w.ok("exec", "x", "--", "sh", "-c", job)
		v := w.show("x")
		w.ok("close", "--discard", "x")
		if refs := w.git("for-each-ref", "refs/caisson"); refs != "" {
			t.Errorf("refs: %s", refs)
		}
		if s := w.show(v.ID); s.State != "closed" || len(s.Results) > 0 {
			t.Errorf("%+v", s)
		}
		w.clean()
	})
}

// TestForeignOwner: files that the task's user cannot remove by himself are
// neither lost nor in the way for ever. As root only: it makes them.
func TestForeignOwner(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("making files of another owner needs root")
	}
	// Root's task with files of somebody else and mode 000.
	w := newWorld(t, harness.NewIdentity(t, "root", 0), harness.Bin())
	w.ok("run", "--name", "x", "--keep", "always", "--", "sh", "-c", "mkdir -p other; echo o >other/o; echo i >other/i.ignored")
	src := w.State + "/tasks/" + w.show("x").ID + "/source"
	for _, p := range []string{"other/o", "other/i.ignored", "other"} {
		if err := os.Chown(src+"/"+p, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(src+"/"+p, 0); err != nil {
			t.Fatal(err)
		}
	}
	w.ok("close", "--discard", "x")
	w.clean()

	// An unprivileged user's task in which root left a folder (as a container
	// engine does): the folder's parent is the user's, so an empty one goes;
	// what holds files is reported, kept and goes once they are gone.
	u := newWorld(t, harness.NewIdentity(t, "user", harness.UserID), harness.Bin())
	u.ok("run", "--name", "x", "--keep", "always", "--", "sh", "-c", "echo mine >mine")
	id := u.show("x").ID
	src = u.State + "/tasks/" + id + "/source"
	if err := os.MkdirAll(src+"/rootdir/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(src+"/rootdir/sub/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := u.do(nil, "close", "--discard", "x")
	v := u.show(id)
	if r.Exit != 7 || v.State != "stuck" && v.State != "kept" || !strings.Contains(r.Stderr, "permission denied") {
		t.Errorf("close: state %s (%s): %v", v.State, v.Problem, r)
	}
	if strings.Contains(r.Stderr, "sudo") || strings.Contains(r.Stderr, "--force") {
		t.Errorf("advice that it should not give: %s", r.Stderr)
	}
	if p, _ := filepath.Glob(u.State + "/tasks/" + id + "/.source.trash/rootdir/sub/f"); len(p) == 0 && !exists(src+"/rootdir/sub/f") {
		t.Error("where is it?")
	}
	for _, p := range []string{src + "/rootdir", u.State + "/tasks/" + id + "/.source.trash/rootdir"} {
		_ = os.RemoveAll(p)
	}
	u.ok("reap")
	u.clean()
}

// TestKeepModes: what run keeps, by mode, outcome and change.
func TestKeepModes(t *testing.T) {
	t.Parallel()
	cases := []struct {
		keep, cmd, state string
		rescued          bool
	}{
		{"auto", "true", "closed", false},
		{"auto", "echo x >x", "kept", true},
		{"auto", "false", "kept", false},
		{"always", "true", "kept", false},
		{"on-failure", "true", "closed", false},
		{"on-failure", "echo x >x", "closed", true},
		{"on-failure", "echo x >x; exit 3", "kept", true},
		{"never", "echo x >x; exit 3", "closed", true},
		{"never", "true", "closed", false},
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for i, c := range cases {
			name := fmt.Sprint("k", i)
			w.do(nil, "run", "--keep", c.keep, "--name", name, "--", "sh", "-c", c.cmd)
			v := w.show(name)
			if v.State != c.state {
				t.Errorf("--keep %s, %q: %s (%s)", c.keep, c.cmd, v.State, v.Problem)
			}
			if _, ok := w.has(v.ID, "worktree", "x"); ok != c.rescued {
				t.Errorf("--keep %s, %q: rescued %v", c.keep, c.cmd, ok)
			}
			if files := exists(w.State + "/tasks/" + v.ID + "/source"); files != (c.state == "kept") {
				t.Errorf("--keep %s, %q: files %v", c.keep, c.cmd, files)
			}
		}
		w.clean()
	})
}

// TestRetentionEnds moves the end of a retention into the past: files go, what
// is in refs stays, and a task that cannot be rescued any more is not touched.
func TestRetentionEnds(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("run", "--name", "changed", "--", "sh", "-c", job)
		v := w.show("changed")
		if err := os.WriteFile(w.State+"/tasks/"+v.ID+"/source/later.txt", []byte("later\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_ = os.Lchown(w.State+"/tasks/"+v.ID+"/source/later.txt", id.UID, id.UID)
		expire(t, w.State, v.ID)
		w.ok("ls") // any command
		after := w.show(v.ID)
		if after.State != "closed" {
			t.Errorf("state %s (%s)", after.State, after.Problem)
		}
		for path, text := range map[string]string{"c.txt": "committed\n", "u.txt": "uncommitted\n", "later.txt": "later\n"} {
			if got, _ := w.has(v.ID, "worktree", path); got != text {
				t.Errorf("%s: %q", path, got)
			}
		}
		w.clean()

		// The repository is gone: nowhere to bring work to, so it is kept on.
		w.ok("run", "--name", "homeless", "--", "sh", "-c", job)
		v = w.show("homeless")
		if err := os.Rename(w.repo+"/.git", w.repo+"/.away"); err != nil {
			t.Fatal(err)
		}
		expire(t, w.State, v.ID)
		r := harness.Run(t, w.Command(t.Context(), w.Home, w.bin, "reap"))
		after = w.show(v.ID)
		if after.State != "kept" || !exists(w.State+"/tasks/"+v.ID+"/source/i.ignored") {
			t.Errorf("state %s (%s), %v", after.State, after.Problem, r)
		}
		if err := os.Rename(w.repo+"/.away", w.repo+"/.git"); err != nil {
			t.Fatal(err)
		}
		w.before["."] = harness.TakePicture(t, w.repo)["."] // the test itself moved something in it
		w.clean()
	})
}

// TestAnyBytesInArguments: they reach the program unchanged, by run and by exec.
func TestAnyBytesInArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.NewIdentity(t, "bytes", os.Getuid()), harness.Bin())
	arg := "\xff\x01\n\t \"'\\$é" + strings.Repeat("x", 1000)
	w.ok("open", "x")
	for _, args := range [][]string{{"exec", "x"}, {"run"}} {
		out := w.ok(append(args, "--", "sh", "-c", `printf %s "$1" | base64 -w0`, "sh", arg)...)
		if b, _ := base64.StdEncoding.DecodeString(out); string(b) != arg {
			t.Errorf("%s: %q became %q", args[0], arg, b)
		}
	}
	// A repository in a folder of any name.
	dir := w.Dir + "/odd é 'name"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.Git(t, dir, "init", "-q", "-b", "main")
	w.Git(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	odd := *w
	odd.repo = dir
	odd.ok("open", "odd")
	odd.ok("exec", "odd", "--", "sh", "-c", "echo x >x; git add x; git commit -qm x")
	v := odd.show("odd")
	odd.ok("close", "odd")
	if got, _ := odd.has(v.ID, "heads/main", "x"); got != "x\n" {
		t.Errorf("from an oddly named repository: %q", got)
	}
	w.clean()
}
