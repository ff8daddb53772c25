//go:build linux

package source

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// everyChange makes one change of every kind that a tree can hold.
func everyChange(t *testing.T) (*lab, *opened) {
	t.Helper()
	l := basic(t)
	for i, n := range strangeNames {
		l.write("old/"+n, fmt.Sprintf("%d content of %s\n", i, n))
	}
	l.write("empty", "")
	l.write("gone-empty", "")
	l.write("crlf", "one\r\ntwo\r\nthree")
	l.write("latin", "caf\xe9\nna\xefve\n")
	l.write("bin", "a\x00b\x01\xff\n")
	l.write("becomes-link", "text\n")
	l.write("becomes-folder", "text\n")
	l.write("folder/a", "a\n")
	l.write("folder/b", "b\n")
	l.write("mode", "x\n")
	l.write("moves/from", strings.Repeat("the same lines\n", 40))
	if err := os.Symlink("nowhere\nat all", l.repo+"/link-gone"); err != nil {
		t.Fatal(err)
	}
	l.commit("all kinds")
	o := l.open(Options{})
	src := o.p.Source
	for i, n := range strangeNames {
		o.file("fresh/"+n, "x")
		if i%2 == 0 {
			_ = os.Remove(src + "/old/" + n)
		} else {
			o.file("old/"+n, "changed")
		}
		o.file("none/"+n, "") // empty files with such names
	}
	for _, n := range []string{"becomes-link", "becomes-folder", "gone-empty", "link-gone", "link"} {
		_ = os.Remove(src + "/" + n)
	}
	_ = os.RemoveAll(src + "/folder")
	for to, target := range map[string]string{"becomes-link": "/etc/passwd", "link": "other\ntarget", "folder": "dir", "new-link": "../../..", "dangling \xff": "\xfe"} {
		if err := os.Symlink(target, src+"/"+to); err != nil {
			t.Fatal(err)
		}
	}
	o.file("becomes-folder/in/side", "x\n")
	o.file("empty", "no longer\n")
	o.file("new-empty", "")
	o.file("crlf", "one\r\ntwo\nthree\r\nfour")
	o.file("latin", "caf\xe9!\nna\xefve")
	o.file("bin", "a\x00c\x01\xfe")
	o.file("new-bin", string([]byte{0, 1, 2, 3, 255}))
	o.file(".gitattributes", "*.txt -diff\nlatin diff=evil filter=evil merge=evil\n")
	if err := os.Chmod(src+"/mode", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(src+"/run.sh", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(src+"/moves/from", src+"/moves/to"); err != nil {
		t.Fatal(err)
	}
	return l, o
}

// TestPatchGivesTheVeryTree: `git apply` of the patch makes the result's tree,
// in the index and in the files, whatever the user's git is set to.
func TestPatchGivesTheVeryTree(t *testing.T) {
	l, o := everyChange(t)
	var out bytes.Buffer
	r := o.result()
	rep, err := r.Export(context.Background(), ExportOptions{Form: FormPatch, W: &out})
	if err != nil || rep.Files != len(r.Changes) || rep.Bytes != int64(out.Len()) || rep.To != "-" {
		t.Fatalf("%+v %v", rep, err)
	}
	if err := os.WriteFile(l.top+"/p", out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, conf := range map[string][]string{
		"plain": nil, "no prefix": {"-c", "diff.noprefix=true", "-c", "diff.renames=copies"}, "strict about spaces": {"-c", "core.whitespace=trailing-space"},
	} {
		l.git("reset", "-q", "--hard")
		l.git("clean", "-qfdx")
		l.git(append(conf, "apply", "--binary", "--index", l.top+"/p")...)
		if got := l.git("write-tree"); got != r.Tree {
			t.Errorf("%s: the index is %s, not %s", name, got, r.Tree)
		}
		l.git("add", "-A")
		if got := l.git("write-tree"); got != r.Tree {
			t.Errorf("%s: the files are %s, not %s", name, got, r.Tree)
		}
		l.git("apply", "-R", "--binary", "--index", l.top+"/p")
	}
}

// TestPatchForPatch: where git's additions are not needed, patch -p1 takes it.
func TestPatchForPatch(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("there is no patch program")
	}
	l := basic(t)
	o := l.open(Options{})
	o.file("dir/a.txt", "changed\n")
	o.file("new file", "new\n")
	_ = os.Remove(o.p.Source + "/README")
	var out bytes.Buffer
	if _, err := o.result().Export(context.Background(), ExportOptions{Form: FormPatch, W: &out}); err != nil {
		t.Fatal(err)
	}
	plain := l.top + "/plain"
	l.plain(l.top, "clone", "-q", l.repo, plain)
	if err := os.RemoveAll(plain + "/.git"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.top+"/p", out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := l.run(plain, "patch", "-s", "-p1", "-i", l.top+"/p"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if a, b := listing(t, plain), listing(t, o.p.Source); a != b {
		t.Errorf("patch gave\n%s\nnot\n%s", a, b)
	}
}

// listing is facts without the mode of the folder itself.
func listing(t *testing.T, dir string) string {
	t.Helper()
	lines := strings.Split(facts(t, dir), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, `"." `) })
	return strings.Join(lines, "\n")
}

// archived unpacks `git archive` of a commit, as the folder to compare with.
func (l *lab) archived(rev, to string) string {
	l.t.Helper()
	if err := os.Mkdir(to, 0o755); err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `git -c tar.umask=0022 archive "$1" | tar -x -C "$2" --same-permissions`, "sh", rev, to)
	cmd.Dir, cmd.Env = l.repo, l.env
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	return listing(l.t, to)
}

func TestFolderIsTheVeryTree(t *testing.T) {
	l, o := everyChange(t)
	r := o.result()
	commit, _, err := r.Tip(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	rep, err := r.Export(context.Background(), ExportOptions{Form: FormDir, Dir: l.top + "/out"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Branch(context.Background(), BranchOptions{Repo: o.r.Ref, Name: "x"}); err != nil {
		t.Fatal(err)
	}
	if want, got := l.archived(commit, l.top+"/archived"), listing(t, l.top+"/out"); got != want {
		t.Errorf("exported\n%s\nnot\n%s", got, want)
	}
	if rep.To != l.top+"/out" || rep.Files != strings.Count(l.git("ls-tree", "-rz", r.Tree), "\x00") || rep.Bytes == 0 {
		t.Errorf("%+v", rep)
	}
	if left, _ := filepath.Glob(l.top + "/" + exportPrefix + "*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	o.bundleFits("all")
}

// TestFolderConversions: line ends and encodings are as in a checkout; filters
// that attributes name do not exist.
func TestFolderConversions(t *testing.T) {
	l := basic(t)
	l.write(".gitattributes", "*.dos text eol=crlf\n*.u16 text working-tree-encoding=UTF-16LE eol=lf\n*.lfs filter=lfs\n*.id ident\n")
	l.write("x.dos", "one\r\ntwo\r\n")
	l.write("x.u16", "h\x00i\x00\n\x00")
	l.write("x.lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
	l.write("x.id", "$Id$\n")
	l.commit("conversions")
	o := l.open(Options{})
	o.file("y.dos", "a\r\nb\r\n")
	if _, err := o.result().Export(context.Background(), ExportOptions{Form: FormDir, Dir: l.top + "/out"}); err != nil {
		t.Fatal(err)
	}
	l.plain(l.top, "clone", "-q", "-c", "core.symlinks=true", l.repo, "plain")
	l.write("../plain/y.dos", "a\r\nb\r\n")
	if got, want := listing(t, l.top+"/out"), listing(t, l.top+"/plain"); got != want {
		t.Errorf("exported\n%s\nnot\n%s", got, want)
	}
}

func TestFolderTargets(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("new", "new\n")
	r := o.result()
	ctx := context.Background()
	for _, d := range []string{"full", "empty", "closed"} {
		if err := os.Mkdir(l.top+"/"+d, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for n, text := range map[string]string{"full/x": "x", "file": "x"} {
		if err := os.WriteFile(l.top+"/"+n, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n, to := range map[string]string{"to-empty": "empty", "to-state": "state", "dangling": "nowhere"} {
		if err := os.Symlink(to, l.top+"/"+n); err != nil {
			t.Fatal(err)
		}
	}
	l.plain(l.top, "init", "-q", "--bare", "bare")
	before := picture(t, l.top, nil)
	for dir, code := range map[string]task.Code{
		"":                         task.CodeUsage,
		l.top + "/full":            task.CodeConflict,
		l.top + "/file":            task.CodeConflict,
		l.top + "/to-empty":        task.CodeConflict,
		l.top + "/dangling":        task.CodeConflict,
		l.top + "/no/where":        task.CodeNotFound,
		l.top + "/file/x":          task.CodeUsage,
		l.repo + "/.git/x":         task.CodeUnsafePath,
		l.repo + "/.GIT":           task.CodeUnsafePath,
		l.top + "/bare/x":          task.CodeUnsafePath,
		o.ws.Dir + "/x":            task.CodeUnsafePath,
		o.p.Source + "/x":          task.CodeUnsafePath,
		l.top + "/state/x":         task.CodeUnsafePath,
		l.top + "/to-state/x":      task.CodeUnsafePath,
		"/":                        task.CodeUsage,
		l.top + "/empty/../full/.": task.CodeConflict,
	} {
		_, err := r.Export(ctx, ExportOptions{Form: FormDir, Dir: dir, Apart: []string{l.state}})
		if task.CodeOf(err) != code || task.HintOf(err) == "" {
			t.Errorf("%q: %v (hint %q), want %s", dir, err, task.HintOf(err), code)
		}
	}
	t.Chdir(l.top + "/empty")
	if _, err := r.Export(ctx, ExportOptions{Form: FormDir, Dir: "."}); task.CodeOf(err) != task.CodeConflict {
		t.Errorf("the working directory: %v", err)
	}
	t.Chdir(l.top)
	if picture(t, l.top, nil) != before {
		t.Error("a refused export left something")
	}
	// The controls: new ones and an empty one, which keeps its mode.
	for _, d := range []string{"empty", l.top + "/new", l.repo + "/inside"} {
		if _, err := r.Export(ctx, ExportOptions{Form: FormDir, Dir: d, Apart: []string{l.state}}); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
	if st, err := os.Stat(l.top + "/empty"); err != nil || st.Mode().Perm() != 0o750 || !exists2(l.top+"/empty/new") {
		t.Errorf("%v %v", st, err)
	}
	if _, err := r.Export(ctx, ExportOptions{Form: "tar", W: &bytes.Buffer{}}); task.CodeOf(err) != task.CodeUsage {
		t.Error(err)
	}
}

// TestFolderLeftovers: what a killed export left goes when it is proved ours;
// another's folder or a running export is not touched.
func TestFolderLeftovers(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("new", "new\n")
	r := o.result()
	ctx := context.Background()
	target := l.top + "/out"
	work := l.top + "/" + exportName(o.ws.Task, target)
	export := func() error {
		_ = os.RemoveAll(target)
		_, err := r.Export(ctx, ExportOptions{Form: FormDir, Dir: target})
		return err
	}
	put := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(work+"/"+name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(work+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("caisson", keepText(o.ws.Task)+"\n")
	put("tree/half", "x")
	if err := os.Symlink(l.repo, work+"/tree/out"); err != nil {
		t.Fatal(err)
	}
	before := picture(t, l.repo, nil)
	if err := export(); err != nil || exists2(work) {
		t.Errorf("ours: %v", err)
	}
	if picture(t, l.repo, nil) != before {
		t.Error("a link in it was followed")
	}
	put("caisson", keepText(o.ws.Task)+"\n")
	lock, err := sys.TryLock(work + "/caisson")
	if err != nil {
		t.Fatal(err)
	}
	if err := export(); task.CodeOf(err) != task.CodeConflict || !exists2(work) || exists2(target) {
		t.Errorf("running: %v", err)
	}
	_ = lock.Unlock()
	put("caisson", keepText(task.NewID())+"\n")
	if err := export(); task.CodeOf(err) != task.CodeConflict || !exists2(work+"/caisson") {
		t.Errorf("another's: %v", err)
	}
	_ = os.RemoveAll(work)
	put("precious", "x")
	if err := export(); task.CodeOf(err) != task.CodeConflict || !exists2(work+"/precious") {
		t.Errorf("not marked: %v", err)
	}
	_ = os.RemoveAll(work)
	if err := os.Symlink(l.repo, work); err != nil {
		t.Fatal(err)
	}
	if err := export(); task.CodeOf(err) != task.CodeConflict || !exists2(l.repo+"/README") {
		t.Errorf("a link: %v", err)
	}
}

func TestNamesThatFold(t *testing.T) {
	l := func(ps ...string) (out []listed) {
		for _, p := range ps {
			out = append(out, listed{path: p})
		}
		return out
	}
	for _, c := range [][]string{{"a.txt", "A.txt"}, {"x/y", "X/z"}, {"é", "É"}, {"d/A/x", "d/a"}, {"caf\u00e9", "cafe\u0301"}, {"n\u00e9/x", "ne\u0301/y"}} {
		if a, _ := foldClash(l(c...)); a == "" {
			t.Errorf("%q fold", c)
		}
	}
	if a, b := foldClash(l("a", "b", "d/a", "d/b", "e/a")); a != "" {
		t.Errorf("%s %s", a, b)
	}
}

// TestHostileTrees: a tree that no checkout may have is refused before
// anything is written, also where it did not come in by a verified pack.
func TestHostileTrees(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	blob := o.object("blob", []byte("payload\n"))
	ctx := context.Background()
	for name, entry := range map[string][]byte{
		".git": treeEntry("100644", ".git", blob), ".GIT": treeEntry("100644", ".GIT", blob), "hfs": treeEntry("100644", ".g\u200cit", blob), "git~1": treeEntry("100644", "git~1", blob),
		"..": treeEntry("100644", "..", blob), ".": treeEntry("100644", ".", blob), "climbs": treeEntry("100644", "a/../../x", blob), "absolute": treeEntry("100644", "/etc/x", blob),
		"double slash": treeEntry("100644", "a//b", blob), "through a link": append(treeEntry("120000", "a", o.object("blob", []byte(l.repo))), treeEntry("100644", "a/x", blob)...),
		"twice": append(treeEntry("120000", "a", o.object("blob", []byte(l.repo))), treeEntry("100644", "a", blob)...),
	} {
		tree := o.object("tree", entry)
		r := &Result{Task: o.ws.Task, From: FromFiles, Tree: tree, g: o.r.git, dir: o.p.Source + "/.git", format: "sha1"}
		before := picture(t, l.top, nil)
		if _, err := r.Export(ctx, ExportOptions{Form: FormDir, Dir: l.top + "/out"}); task.CodeOf(err) != task.CodeBadResult {
			t.Errorf("%s: %v", name, err)
			_ = os.RemoveAll(l.top + "/out")
		}
		if picture(t, l.top, nil) != before {
			t.Errorf("%s: something was written", name)
		}
	}
}
