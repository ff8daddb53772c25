//go:build linux

package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// attack imports a bundle that must be refused and checks that the user's
// repository did not change.
func (o *opened) attack(t *testing.T, what string, b []byte, code task.Code) {
	t.Helper()
	before := picture(t, o.repo, nil)
	rs, err := Import(context.Background(), o.ws, bytes.NewReader(b), 32<<20)
	if task.CodeOf(err) != code {
		t.Errorf("%s: got %+v, %v, want code %s", what, rs, err, code)
	}
	if picture(t, o.repo, nil) != before {
		t.Errorf("%s: the user's repository changed", what)
	}
	left, _ := filepath.Glob(o.ws.shadow() + "/import-*")
	packs, _ := filepath.Glob(o.ws.shadow() + "/objects/pack/*")
	if len(left)+len(packs) > 0 {
		t.Errorf("%s: left in the shadow: %q %q", what, left, packs)
	}
}

// mktree makes a tree object inside from raw entries, unchecked.
func (o *opened) object(kind string, raw []byte) string {
	o.t.Helper()
	c := exec.Command("git", "hash-object", "-t", kind, "--literally", "-w", "--stdin")
	c.Dir, c.Env, c.Stdin = o.p.Source, o.env, bytes.NewReader(raw)
	out, err := c.Output()
	if err != nil {
		o.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func treeEntry(mode, name, oid string) []byte {
	raw := make([]byte, len(oid)/2)
	if _, err := fmt.Sscanf(oid, "%x", &raw); err != nil {
		panic(err)
	}
	return append([]byte(mode+" "+name+"\x00"), raw...)
}

func (o *opened) commitTree(tree string) string {
	return o.object("commit", []byte("tree "+tree+"\nparent "+o.r.Ref.Base+"\nauthor A <a@b> 1700000000 +0000\ncommitter A <a@b> 1700000000 +0000\n\nx\n"))
}

// rawBundle packs objects without the checks that git's own bundle makes.
func (o *opened) rawBundle(header string, oids ...string) []byte {
	o.t.Helper()
	c := exec.Command("git", "pack-objects", "--stdout", "-q")
	c.Dir, c.Env, c.Stdin = o.p.Source, o.env, strings.NewReader(strings.Join(oids, "\n")+"\n")
	out, err := c.Output()
	if err != nil {
		o.t.Fatal(err)
	}
	return append([]byte(header), out...)
}

func TestHostileObjects(t *testing.T) {
	for name, entry := range map[string]func(o *opened, blob string) []byte{
		"tree entry .git":       func(_ *opened, b string) []byte { return treeEntry("100644", ".git", b) },
		"tree entry .GIT":       func(_ *opened, b string) []byte { return treeEntry("100644", ".GIT", b) },
		"tree entry git~1":      func(_ *opened, b string) []byte { return treeEntry("100644", "git~1", b) },
		"tree entry HFS .git":   func(_ *opened, b string) []byte { return treeEntry("100644", ".g\u200cit", b) },
		"tree entry NTFS .git":  func(_ *opened, b string) []byte { return treeEntry("100644", ".git::$INDEX_ALLOCATION", b) },
		"tree entry ..":         func(_ *opened, b string) []byte { return treeEntry("100644", "..", b) },
		"tree entry .":          func(_ *opened, b string) []byte { return treeEntry("100644", ".", b) },
		"tree entry with slash": func(_ *opened, b string) []byte { return treeEntry("100644", "a/../../x", b) },
		"absolute tree entry":   func(_ *opened, b string) []byte { return treeEntry("100644", "/etc/x", b) },
		"empty tree entry":      func(_ *opened, b string) []byte { return treeEntry("100644", "", b) },
		"zero padded mode":      func(_ *opened, b string) []byte { return treeEntry("0100644", "x", b) },
		"symlinked .gitmodules": func(_ *opened, b string) []byte { return treeEntry("120000", ".gitmodules", b) },
		"duplicate tree entries": func(_ *opened, b string) []byte {
			return append(treeEntry("100644", "x", b), treeEntry("100644", "x", b)...)
		},
		"unsorted tree": func(_ *opened, b string) []byte {
			return append(treeEntry("100644", "y", b), treeEntry("100644", "x", b)...)
		},
		"hostile .gitmodules": func(o *opened, _ string) []byte {
			return treeEntry("100644", ".gitmodules", o.object("blob", []byte("[submodule \"../../x\"]\n\tpath = x\n\turl = -u./x\n")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := basic(t)
			o := l.open(Options{})
			blob := o.object("blob", []byte("payload\n"))
			tree := o.object("tree", entry(o, blob))
			commit := o.commitTree(tree)
			if err := os.WriteFile(o.p.Source+"/.git/refs/heads/main", []byte(commit+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			objects := []string{commit, tree, blob}
			if name == "hostile .gitmodules" {
				objects = append(objects, o.object("blob", []byte("[submodule \"../../x\"]\n\tpath = x\n\turl = -u./x\n")))
			}
			o.attack(t, name, o.rawBundle("# v2 git bundle\n"+commit+" refs/heads/main\n\n", objects...), task.CodeBadResult)
		})
	}
}

func TestHostileBundles(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("dir/a.txt", strings.Repeat("changed\n", 1000))
	o.in("commit", "-qam", "inside")
	commit, tree := o.in("rev-parse", "HEAD"), o.in("rev-parse", "HEAD^{tree}")
	sub, blob := o.in("rev-parse", "HEAD:dir"), o.in("rev-parse", "HEAD:dir/a.txt")
	good := o.bundle()
	head := bytes.Index(good, []byte("\n\n")) + 2
	pack := string(good[head:])
	flipped := append([]byte(nil), good...)
	flipped[len(flipped)-40] ^= 1
	header := func(refs string) []byte { return []byte("# v2 git bundle\n" + refs + "\n" + pack) }
	for name, b := range map[string][]byte{
		"empty answer":        nil, // the commit is then missing
		"noise":               []byte("hello"),
		"truncated header":    good[:20],
		"truncated pack":      good[:len(good)-30],
		"flipped bit":         flipped,
		"trailing garbage":    append(append([]byte(nil), good...), "more"...),
		"no pack":             good[:head],
		"ref with ..":         header(commit + " refs/heads/a..b\n"),
		"ref that climbs":     header(commit + " refs/heads/../../x\n"),
		"ref outside refs":    header(commit + " ORIG_HEAD\n"),
		"ref config":          header(commit + " config\n"),
		"absolute ref":        header(commit + " /etc/passwd\n"),
		"ref as option":       header(commit + " --upload-pack=x\n"),
		"lock":                header(commit + " refs/heads/x.lock\n"),
		"control character":   header(commit + " refs/heads/x\x1b[31m\n"),
		"name twice":          header(commit + " refs/heads/x\n" + commit + " refs/heads/x\n"),
		"short object":        header(commit[:39] + " refs/heads/x\n"),
		"filter":              []byte("# v3 git bundle\n@filter=blob:none\n" + commit + " refs/heads/main\n\n" + pack),
		"unknown capability":  []byte("# v3 git bundle\n@bundle-uri=http://x\n" + commit + " refs/heads/main\n\n" + pack),
		"other object format": []byte("# v3 git bundle\n@object-format=sha256\n" + commit + " refs/heads/main\n\n" + pack),
		"endless line":        append([]byte("# v2 git bundle\n-"), bytes.Repeat([]byte("a"), 100_000)...),
		"missing blob":        o.rawBundle("# v2 git bundle\n"+commit+" refs/heads/main\n\n", commit, tree, sub),
		"missing tree":        o.rawBundle("# v2 git bundle\n"+commit+" refs/heads/main\n\n", commit, blob),
		"missing commit":      o.rawBundle("# v2 git bundle\n"+commit+" refs/heads/main\n\n", tree, sub, blob),
	} {
		o.attack(t, name, b, task.CodeBadResult)
	}
	// Too large: bounded while it comes, never stored whole.
	before := picture(t, l.repo, nil)
	r := io.MultiReader(bytes.NewReader(good), &endless{})
	if _, err := Import(context.Background(), o.ws, r, 1<<20); task.CodeOf(err) != task.CodeLimit {
		t.Errorf("oversized: %v", err)
	}
	// A stream that breaks.
	if _, err := Import(context.Background(), o.ws, io.MultiReader(bytes.NewReader(good[:50]), broken0{}), 1<<20); err == nil {
		t.Error("a broken stream was taken")
	}
	if picture(t, l.repo, nil) != before {
		t.Error("the user's repository changed")
	}
	// The control: the honest bundle is taken.
	if rs := o.imports(good); len(rs) != 1 || rs[0].Object != commit {
		t.Errorf("results: %+v", rs)
	}
}

type endless struct{}

func (*endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type broken0 struct{}

func (broken0) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestEverythingThatIsCommittedComesBack(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	add := func(name string) string {
		o.file(name, name+"\n")
		o.in("add", name)
		o.in("commit", "-qm", name)
		return o.in("rev-parse", "HEAD")
	}
	want := map[string]string{}
	want["heads/main"] = add("on main")
	o.in("checkout", "-q", "-b", "feat/x")
	want["heads/feat/x"] = add("feature")
	o.in("tag", "light")
	want["tags/light"] = want["heads/feat/x"]
	o.in("tag", "-a", "heavy", "-m", "heavy")
	want["tags/heavy"] = o.in("rev-parse", "heavy")
	o.in("notes", "add", "-m", "a note", "HEAD")
	want["other/notes/commits"] = o.in("rev-parse", "refs/notes/commits")
	o.file("README", "stashed first\n")
	o.in("stash")
	want["stash/1"] = o.in("rev-parse", "stash@{0}")
	o.file("README", "stashed second\n")
	o.in("stash")
	want["stash/0"] = o.in("rev-parse", "stash@{0}")
	o.in("worktree", "add", "-q", "--detach", o.ws.Dir+"/inner")
	o.plain(o.ws.Dir+"/inner", "commit", "-q", "--allow-empty", "-m", "in an inner worktree")
	want["other/worktrees/1"] = strings.TrimSpace(o.plain(o.ws.Dir+"/inner", "rev-parse", "HEAD"))
	o.in("checkout", "-q", "--detach")
	want["HEAD"] = add("detached")
	o.in("branch", "old", "main~1") // nothing new: nothing to bring back
	o.in("pack-refs", "--all")
	rs := o.imports(o.bundle())
	got := map[string]string{}
	for _, r := range rs {
		got[strings.TrimPrefix(r.Name, refPrefix(o.ws.Task))] = r.Object
	}
	for n, oid := range want {
		if got[n] != oid {
			t.Errorf("%s: got %q, want %s", n, got[n], oid)
		}
	}
	if len(got) != len(want) {
		t.Errorf("results: %v", got)
	}
	// Again: the same answer.
	if again := o.imports(o.bundle()); len(again) != len(rs) {
		t.Errorf("second import: %+v", again)
	}
	l.git("fsck", "--strict", "--full")
}

func TestRefsMovedBackNeedNoObjects(t *testing.T) {
	l := basic(t)
	l.write("third", "x")
	l.commit("three")
	l.git("update-ref", "-d", "refs/remotes/origin/HEAD")
	l.git("update-ref", "-d", "refs/remotes/origin/main")
	l.git("branch", "-qD", "side")
	o := l.open(Options{})
	o.in("reset", "-q", "--hard", "HEAD~2")
	if need, err := NeedsBundle(context.Background(), o.ws); err != nil || !need {
		t.Errorf("%v %v", need, err)
	}
	rs := o.imports(o.bundle())
	if len(rs) != 1 || rs[0].Object != l.git("rev-parse", "HEAD~2") {
		t.Errorf("%+v", rs)
	}
}

func TestUnreadableRefsStillComeBack(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("x", "x")
	o.in("add", "x")
	o.in("commit", "-qm", "x")
	head := o.in("rev-parse", "HEAD")
	// git reads this; our stricter parser does not.
	if err := os.Symlink("main", o.p.Source+"/.git/refs/heads/alias"); err != nil {
		t.Fatal(err)
	}
	if w := o.work(); len(w.Commits) != 1 || !strings.HasPrefix(w.Commits[0], "unreadable") {
		t.Errorf("%q", w.Commits)
	}
	ok := false
	for _, r := range o.imports(o.bundle()) {
		ok = ok || r.Object == head
	}
	if !ok {
		t.Error("the commit did not come back")
	}
}

func TestNamesThatCollide(t *testing.T) {
	oid := strings.Repeat("a", 40)
	var refs []Ref
	for _, n := range []string{"refs/heads/a", "refs/heads/a/b", "refs/heads/A", "refs/heads/x/y", "refs/heads/x", "HEAD", "refs/stash", "refs/notes/n"} {
		refs = append(refs, Ref{Name: n, Object: oid})
	}
	var got []string
	for _, r := range resultNames(refs) {
		got = append(got, r.name)
	}
	has(t, "names", got, "heads/a", "heads/a-b-2", "heads/A-2", "heads/x/y", "heads/x-2", "HEAD", "stash/0", "other/notes/n")
}

func FuzzBundleHeader(f *testing.F) {
	oid := strings.Repeat("a", 40)
	f.Add([]byte("# v2 git bundle\n-" + oid + " c\n" + oid + " refs/heads/x\n\nPACK"))
	f.Add([]byte("# v3 git bundle\n@object-format=sha1\n" + oid + " HEAD\n\n"))
	f.Add([]byte("# v2 git bundle\n" + oid + " refs/heads/../x\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseBundle(bufio.NewReaderSize(bytes.NewReader(b), maxBundleLine))
		if err != nil {
			return
		}
		for _, r := range h.refs {
			if strings.Contains(r.Name, "..") || strings.ContainsAny(r.Name, " \n\x00\\~^:") || r.Name != "HEAD" && !strings.HasPrefix(r.Name, "refs/") {
				t.Errorf("accepted %q", r.Name)
			}
		}
	})
}

func FuzzRefFiles(f *testing.F) {
	oid := strings.Repeat("a", 40)
	f.Add([]byte("ref: refs/heads/main\n"))
	f.Add([]byte(oid + "\n"))
	f.Add([]byte("# pack-refs with: peeled\n" + oid + " refs/tags/x\n^" + oid + "\n"))
	f.Add([]byte(strings.Repeat("0", 40) + " " + oid + " a <b> 1 +0000\tcommit: x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, ok := parseLogLine(string(b)); ok && (!git.IsOID(l.old) || !git.IsOID(l.new)) {
			t.Errorf("%q: %+v", b, l)
		}
		if sym, id, ok := parseRefFile(b); ok && (sym == "") == (id == "") {
			t.Errorf("%q: %q %q", b, sym, id)
		}
		refs, err := parsePackedRefs(b)
		if err != nil {
			return
		}
		for n := range refs {
			if !strings.HasPrefix(n, "refs/") || strings.Contains(n, "..") {
				t.Errorf("accepted %q", n)
			}
		}
	})
}

func FuzzGitOutput(f *testing.F) {
	oid := strings.Repeat("a", 40)
	f.Add([]byte(":100644 100755 " + oid + " " + oid + " M\x00a b\x00"))
	f.Add([]byte(":100644 100644 " + oid + " " + oid + " R100\x00a\x00b\x00"))
	f.Add([]byte("local\x00user.name\nx\x00"))
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parseRaw(b)
		_, _ = parseConfig(b)
		_, _ = parseIndex(b, "sha1")
		_, _ = parseIndex(b, "sha256")
	})
}
