//go:build linux

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// fetchAttack fetches a bundle that must be refused: nothing of it stays.
func (o *opened) fetchAttack(t *testing.T, what string, b []byte) {
	t.Helper()
	before, store := picture(t, o.repo, nil), picture(t, o.ws.shadow()+"/objects", nil)
	if err := Fetch(context.Background(), o.ws, bytes.NewReader(b), 32<<20); task.CodeOf(err) != task.CodeBadResult {
		t.Errorf("%s: %v", what, err)
	}
	if picture(t, o.repo, nil) != before || picture(t, o.ws.shadow()+"/objects", nil) != store {
		t.Errorf("%s: something of it was taken", what)
	}
	if left, _ := filepath.Glob(o.ws.shadow() + "/import-*"); len(left) > 0 {
		t.Errorf("%s: left %q", what, left)
	}
}

func TestFetchTakesNothingThatFails(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	setMain := func(oid string) {
		if err := os.WriteFile(o.p.Source+"/.git/refs/heads/main", []byte(oid+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	blob := o.object("blob", []byte("payload\n"))
	who := "A <a@b> 1700000000 +0000\n"
	base := "parent " + o.r.Ref.Base + "\n"
	good := o.object("tree", treeEntry("100644", "x", blob))
	for name, raw := range map[string]string{
		"NUL in the author":      "tree " + good + "\n" + base + "author A\x00 <a@b> 1700000000 +0000\ncommitter " + who + "\nx\n",
		"NUL in the message":     "tree " + good + "\n" + base + "author " + who + "committer " + who + "\nx\x00y\n",
		"author without address": "tree " + good + "\n" + base + "author A 1700000000 +0000\ncommitter " + who + "\nx\n",
		"line in the author":     "tree " + good + "\n" + base + "author A\nB <a@b> 1700000000 +0000\ncommitter " + who + "\nx\n",
		"two trees":              "tree " + good + "\ntree " + good + "\n" + base + "author " + who + "committer " + who + "\nx\n",
		"no tree":                base + "author " + who + "committer " + who + "\nx\n",
		"date beyond all":        "tree " + good + "\n" + base + "author A <a@b> 99999999999999999999 +0000\ncommitter " + who + "\nx\n",
		"parent that is a blob":  "tree " + good + "\nparent " + blob + "\nauthor " + who + "committer " + who + "\nx\n",
		"tree that is a blob":    "tree " + blob + "\n" + base + "author " + who + "committer " + who + "\nx\n",
		"parent that is missing": "tree " + good + "\nparent " + strings.Repeat("0a", 20) + "\nauthor " + who + "committer " + who + "\nx\n",
	} {
		commit := o.object("commit", []byte(raw))
		setMain(commit)
		o.fetchAttack(t, name, o.rawBundle("# v2 git bundle\n"+commit+" refs/heads/main\n\n", commit, good, blob))
	}
	for name, entry := range map[string][]byte{
		".git": treeEntry("100644", ".git", blob), "..": treeEntry("100644", "..", blob), "slash": treeEntry("100644", "a//b", blob),
		"twice":              append(treeEntry("100644", "x", blob), treeEntry("100644", "x", blob)...),
		"linked .gitmodules": treeEntry("120000", ".gitmodules", blob),
	} {
		tree := o.object("tree", entry)
		commit := o.commitTree(tree)
		setMain(commit)
		o.fetchAttack(t, name, o.rawBundle("# v2 git bundle\n"+commit+" refs/heads/main\n\n", commit, tree, blob))
	}
	// A thin pack whose base is not there, and an honest one cut short.
	tree := o.object("tree", treeEntry("100644", "x", blob))
	commit := o.commitTree(tree)
	setMain(commit)
	whole := o.rawBundle("# v2 git bundle\n"+commit+" refs/heads/main\n\n", commit, tree, blob)
	o.fetchAttack(t, "cut", whole[:len(whole)-25])
	o.fetchAttack(t, "without the blob", o.rawBundle("# v2 git bundle\n"+commit+" refs/heads/main\n\n", commit, tree))
	o.fetchAttack(t, "thin without its base", o.thinBundle(commit))
	if err := Fetch(context.Background(), o.ws, bytes.NewReader(whole), 64); task.CodeOf(err) != task.CodeLimit {
		t.Errorf("oversized: %v", err)
	}
	// The control: the honest one is taken, twice as well as once.
	for range 2 {
		if err := Fetch(context.Background(), o.ws, bytes.NewReader(whole), 32<<20); err != nil {
			t.Errorf("control: %v", err)
		}
	}
	if need, err := NeedsFetch(context.Background(), o.ws); err != nil || need {
		t.Errorf("after the fetch: %v %v", need, err)
	}
	if l.git("for-each-ref", "refs/caisson/"+string(o.ws.Task)+"/heads") != "" {
		t.Error("fetch published something")
	}
}

// thinBundle makes a delta against an object that only the task has, then
// leaves that object out.
func (o *opened) thinBundle(commit string) []byte {
	o.t.Helper()
	big := bytes.Repeat([]byte("all work and no play\n"), 500)
	one := o.object("blob", big)
	two := o.object("blob", append(big, "more\n"...))
	hidden := o.commitTree(o.object("tree", treeEntry("100644", "big", one)))
	who := " A <a@b> 1700000000 +0000\n"
	seen := o.object("commit", []byte("tree "+o.object("tree", treeEntry("100644", "big", two))+"\nparent "+hidden+"\nauthor"+who+"committer"+who+"\nx\n"))
	c := exec.Command("git", "pack-objects", "--revs", "--thin", "--stdout", "-q")
	c.Dir, c.Env, c.Stdin = o.p.Source, o.env, strings.NewReader(seen+"\n"+commit+"\n--not\n"+hidden+"\n")
	out, err := c.Output()
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.run(o.top, "git", "index-pack", o.pack(out)); err == nil {
		o.t.Fatal("control: the pack is not thin")
	}
	return append([]byte("# v2 git bundle\n"+seen+" refs/heads/main\n\n"), out...)
}

func (o *opened) pack(b []byte) string {
	o.t.Helper()
	if err := os.WriteFile(o.top+"/thin.pack", b, 0o600); err != nil {
		o.t.Fatal(err)
	}
	return o.top + "/thin.pack"
}

// TestHostileHeads: a HEAD that names nothing usable refuses the branch and the
// bundle; patch, folder and the files themselves do not depend on it.
func TestHostileHeads(t *testing.T) {
	l := basic(t)
	ctx := context.Background()
	for name, act := range map[string]func(o *opened, git string) error{
		"loop": func(_ *opened, git string) error {
			if err := os.WriteFile(git+"/refs/heads/main", []byte("ref: refs/heads/b\n"), 0o644); err != nil {
				return err
			}
			return os.WriteFile(git+"/refs/heads/b", []byte("ref: refs/heads/main\n"), 0o644)
		},
		"noise": func(_ *opened, git string) error { return os.WriteFile(git+"/HEAD", []byte("\x00\xff\n"), 0o644) },
		"climbs": func(_ *opened, git string) error {
			return os.WriteFile(git+"/HEAD", []byte("ref: refs/../config\n"), 0o644)
		},
		"absolute": func(_ *opened, git string) error {
			return os.WriteFile(git+"/HEAD", []byte("ref: /etc/passwd\n"), 0o644)
		},
		"huge": func(_ *opened, git string) error {
			return os.WriteFile(git+"/HEAD", append([]byte("ref: refs/heads/"), bytes.Repeat([]byte("a"), 1<<20)...), 0o644)
		},
		"link": func(_ *opened, git string) error {
			_ = os.Remove(git + "/HEAD")
			return os.Symlink("/etc/hostname", git+"/HEAD")
		},
		"linked ref": func(_ *opened, git string) error {
			_ = os.Remove(git + "/refs/heads/main")
			return os.Symlink("/etc/hostname", git+"/refs/heads/main")
		},
		"fifo": func(_ *opened, git string) error {
			_ = os.Remove(git + "/HEAD")
			return unix.Mkfifo(git+"/HEAD", 0o644)
		},
		"no HEAD": func(_ *opened, git string) error { return os.Remove(git + "/HEAD") },
		"missing commit": func(_ *opened, git string) error {
			return os.WriteFile(git+"/HEAD", []byte(strings.Repeat("ab", 20)+"\n"), 0o644)
		},
		"a blob that the host knows": func(o *opened, git string) error {
			return os.WriteFile(git+"/HEAD", []byte(o.in("rev-parse", "HEAD:README")+"\n"), 0o644)
		},
		"a tag that the host knows": func(o *opened, git string) error {
			return os.WriteFile(git+"/HEAD", []byte(o.in("rev-parse", "v1")+"\n"), 0o644)
		},
		"a file for .git": func(_ *opened, git string) error {
			if err := os.RemoveAll(git); err != nil {
				return err
			}
			return os.WriteFile(git, []byte("gitdir: /etc\n"), 0o644)
		},
		"packed noise": func(_ *opened, git string) error {
			_ = os.Remove(git + "/refs/heads/main")
			return os.WriteFile(git+"/packed-refs", []byte("x refs/heads/main\n"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := l.open(Options{})
			o.file("new", "new\n")
			if err := act(o, o.p.Source+"/.git"); err != nil {
				t.Fatal(err)
			}
			r, err := Look(ctx, o.ws)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			before := picture(t, l.repo, nil)
			if rep, err := r.Branch(ctx, BranchOptions{Repo: o.r.Ref, Name: "hostile"}); task.CodeOf(err) != task.CodeBadResult {
				t.Errorf("branch: %+v %v", rep, err)
			}
			var out bytes.Buffer
			if _, err := r.Export(ctx, ExportOptions{Form: FormBundle, W: &out}); task.CodeOf(err) != task.CodeBadResult || out.Len() > 0 {
				t.Errorf("bundle: %v, %d bytes", err, out.Len())
			}
			if _, err := r.Export(ctx, ExportOptions{Form: FormPatch, W: &out}); err != nil || !strings.Contains(out.String(), "+new") {
				t.Errorf("patch: %v %q", err, out.String())
			}
			if picture(t, l.repo, nil) != before {
				t.Error("the user's repository changed")
			}
		})
	}
}

// TestPlantedGitDirectory: whatever stands in the task's git directory beside
// its refs changes nothing of what comes out.
func TestPlantedGitDirectory(t *testing.T) {
	l := basic(t)
	ssh := l.top + "/home/.ssh"
	if err := os.MkdirAll(ssh, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ssh+"/id", []byte("private key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := l.open(Options{})
	o.file("new", "new\n")
	o.in("add", "new")
	o.in("commit", "-qm", "inside")
	head, git := o.in("rev-parse", "HEAD"), o.p.Source+"/.git"
	bundle := o.bundle()
	other := o.in("rev-parse", "HEAD^")
	for name, text := range map[string]string{
		"refs/replace/" + head:    other + "\n",
		"info/grafts":             head + "\n",
		"shallow":                 head + "\n",
		"objects/info/alternates": ssh + "\n../../../home/.ssh\n",
		"commondir":               l.repo + "/.git\n",
		"index":                   "DIRC",
		"packed-refs.lock":        "x",
	} {
		if err := os.MkdirAll(filepath.Dir(git+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(git+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The control: a plain git now sees another history.
	if out, err := l.tryGit(o.p.Source, nil, "log", "--format=%H", "-1"); err == nil && strings.TrimSpace(out) == head && !strings.Contains(out, "error") {
		if n, _ := l.tryGit(o.p.Source, nil, "rev-list", "--count", "HEAD"); strings.TrimSpace(n) == "3" {
			t.Fatal("control: what was planted changes nothing")
		}
	}
	ctx := context.Background()
	if err := Fetch(ctx, o.ws, bytes.NewReader(bundle), 32<<20); err != nil {
		t.Fatal(err)
	}
	r, err := Look(ctx, o.ws)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rep, err := r.Branch(ctx, BranchOptions{Repo: o.r.Ref, Name: "x"})
	if err != nil || rep.Object != head || rep.Commits != 1 {
		t.Fatalf("%+v %v", rep, err)
	}
	if got := l.git("rev-list", "--count", "x"); got != "3" {
		t.Errorf("%s commits", got)
	}
}

// TestHeadAnywhere: HEAD may name any ref inside; it stays a name inside.
func TestHeadAnywhere(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("new", "new\n")
	o.in("add", "new")
	o.in("commit", "-qm", "inside")
	head := o.in("rev-parse", "HEAD")
	o.in("update-ref", "refs/caisson/"+string(o.ws.Task)+"/pin/0", head)
	o.in("symbolic-ref", "HEAD", "refs/caisson/"+string(o.ws.Task)+"/pin/0")
	o.in("pack-refs", "--all")
	pins := l.git("for-each-ref", "refs/caisson")
	if rep := o.branch("x"); rep.Object != head {
		t.Errorf("%+v", rep)
	}
	if l.git("for-each-ref", "refs/caisson") != pins {
		t.Error("a pin moved")
	}
}

func TestManyRefs(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("new", "new\n")
	o.in("add", "new")
	o.in("commit", "-qm", "inside")
	head := o.in("rev-parse", "HEAD")
	var b strings.Builder
	b.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range 90_000 {
		fmt.Fprintf(&b, "%s refs/heads/n/%06d\n", o.r.Ref.Base, i)
	}
	if err := os.WriteFile(o.p.Source+"/.git/packed-refs", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if rep := o.branch("x"); rep.Object != head {
		t.Errorf("%+v", rep)
	}
	for i := range 150_000 {
		fmt.Fprintf(&b, "%s refs/heads/o/%06d\n", o.r.Ref.Base, i)
	}
	if err := os.WriteFile(o.p.Source+"/.git/packed-refs", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	// Beyond the limit the refs cannot be read, and HEAD with them.
	o.in("symbolic-ref", "HEAD", "refs/heads/o/000001")
	r, err := Look(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Branch(context.Background(), BranchOptions{Repo: o.r.Ref, Name: "y"}); task.CodeOf(err) != task.CodeBadResult {
		t.Error(err)
	}
}

// TestHostileFilesAsBranch: files that git's own checks refuse get into no
// repository and no bundle; as a patch and a folder they are text.
func TestHostileFilesAsBranch(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	mark := l.top + "/fired"
	o.file(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = ./x\n\tupdate = !touch "+mark+"\n")
	o.refused("a command in .gitmodules", BranchOptions{Name: "x"}, task.CodeBadResult)
	r := o.result()
	var out bytes.Buffer
	if _, err := r.Export(context.Background(), ExportOptions{Form: FormBundle, W: &out}); task.CodeOf(err) != task.CodeBadResult || out.Len() > 0 {
		t.Errorf("bundle: %v, %d bytes", err, out.Len())
	}
	if _, err := r.Export(context.Background(), ExportOptions{Form: FormDir, Dir: l.top + "/out"}); err != nil || !exists2(l.top+"/out/.gitmodules") {
		t.Errorf("dir: %v", err)
	}
	if exists2(mark) {
		t.Error("the host ran it")
	}
}

// TestFIFOsInTheTasksGitDirectory: git in the boundary that brings commits out
// would wait for ever at each of them, and is not started.
func TestFIFOsInTheTasksGitDirectory(t *testing.T) {
	for _, name := range append([]string{"refs/heads/x", "refs/bisect"}, bundleOpens...) {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			o := basic(t).open(Options{})
			o.file("new", "new\n")
			o.in("add", "new")
			o.in("commit", "-qm", "inside")
			if _, _, err := BundleCommand(context.Background(), o.ws); err != nil {
				t.Fatalf("control: %v", err)
			}
			p := filepath.Join(o.p.Source, ".git", name)
			_ = os.Remove(p)
			if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), unix.Mkfifo(p, 0o600)); err != nil {
				t.Fatal(err)
			}
			if argv, _, err := BundleCommand(context.Background(), o.ws); task.CodeOf(err) != task.CodeBadResult || task.HintOf(err) == "" {
				t.Errorf("%v %v", argv, err)
			}
		})
	}
}
