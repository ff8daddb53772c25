//go:build linux

package source

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// facts lists every file, link and folder below dir but git's own: kind,
// permission bits and bytes.
func facts(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if rel == ".git" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%q %v", rel, st.Mode())
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", b)
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" -> %q", to)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// differ names the first lines in which two facts differ.
func differ(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := map[string]bool{}, map[string]bool{}
	for _, l := range strings.Split(got, "\n") {
		g[l] = true
	}
	for _, l := range strings.Split(want, "\n") {
		w[l] = true
	}
	n := 0
	for _, side := range []struct {
		name string
		a, b map[string]bool
	}{{"only in the checkout", g, w}, {"missing", w, g}} {
		for l := range side.a {
			if !side.b[l] && n < 12 {
				t.Errorf("%s: %s: %.300s", what, side.name, l)
				n++
			}
		}
	}
}

// likeGit applies the task's result and compares the checkout with one that
// plain git makes: by checking the same files out, and by applying the patch.
func (o *opened) likeGit(patch bool) {
	o.t.Helper()
	r := o.result()
	base := o.git("rev-parse", "HEAD")
	repo := picture(o.t, o.repo+"/.git", nil)
	p := o.plan(r)
	if len(p.Conflicts) > 0 {
		o.t.Fatalf("conflicts: %+v", p.Conflicts)
	}
	if err := p.Apply(context.Background()); err != nil {
		o.t.Fatalf("apply: %v", err)
	}
	o.clean()
	if picture(o.t, o.repo+"/.git", nil) != repo {
		o.t.Error("the repository changed")
	}
	got := facts(o.t, o.repo)

	target := strings.TrimSpace(o.plain(o.ws.shadow(), "commit-tree", "-m", "target", r.Tree))
	clone := o.top + "/by-checkout"
	o.plain(o.top, "clone", "-q", "--no-checkout", o.repo, clone)
	o.copyConfig(clone)
	if err := os.WriteFile(clone+"/.git/objects/info/alternates", []byte(o.repo+"/.git/objects\n"+o.ws.shadow()+"/objects\n"), 0o644); err != nil {
		o.t.Fatal(err)
	}
	o.plain(clone, "checkout", "-q", "--detach", base)
	o.plain(clone, "checkout", "-q", "--detach", target)
	differ(o.t, "git checkout", got, facts(o.t, clone))
	if !patch {
		return
	}
	var out bytes.Buffer
	if err := r.Diff(context.Background(), &out, DiffOptions{}); err != nil {
		o.t.Fatal(err)
	}
	clone = o.top + "/by-patch"
	o.plain(o.top, "clone", "-q", "--no-checkout", o.repo, clone)
	o.copyConfig(clone)
	o.plain(clone, "checkout", "-q", "--detach", base)
	if out.Len() > 0 {
		if err := os.WriteFile(o.top+"/task.patch", out.Bytes(), 0o600); err != nil {
			o.t.Fatal(err)
		}
		o.plain(clone, "apply", "--binary", "--whitespace=nowarn", o.top+"/task.patch")
	}
	differ(o.t, "git apply", got, facts(o.t, clone))
}

// copyConfig gives a clone the user's settings for line ends.
func (o *opened) copyConfig(clone string) {
	for _, k := range []string{"core.autocrlf", "core.eol"} {
		if v, err := o.tryGit(o.repo, nil, "config", "--local", k); err == nil {
			o.plain(clone, "config", k, strings.TrimSpace(v))
		}
	}
	if b, err := os.ReadFile(o.repo + "/.git/info/attributes"); err == nil {
		_ = os.MkdirAll(clone+"/.git/info", 0o755)
		if err := os.WriteFile(clone+"/.git/info/attributes", b, 0o644); err != nil {
			o.t.Fatal(err)
		}
	}
}

// garden grows a folder at random: names of any bytes, all kinds of content.
type garden struct {
	t   *testing.T
	rng *rand.Rand
}

var oddNames = []string{
	"plain", "with space", "new\nline", "tab\t", "quote\"", "-dash", ":colon", "*star", "[x]", "\xff\xfe", "ü", "u\u0308", "UPPER", "upper",
	"back\\slash", "a", "a.b", "a-b", ".hidden", "$Id$", "con", "x" + strings.Repeat("y", 200), "\x01\x02", "~", "é\xcc",
}

func (g *garden) name(depth int) string {
	n := oddNames[g.rng.IntN(len(oddNames))]
	if g.rng.IntN(2) == 0 {
		n += fmt.Sprint(g.rng.IntN(6))
	}
	if depth > 0 && g.rng.IntN(2) == 0 {
		return g.name(depth-1) + "/" + n
	}
	return n
}

func (g *garden) content() []byte {
	b := make([]byte, g.rng.IntN(300))
	switch g.rng.IntN(5) {
	case 0:
		return nil
	case 1:
		for i := range b {
			b[i] = byte(g.rng.UintN(256))
		}
		return b
	case 2:
		return []byte(strings.Repeat("line\r\n", g.rng.IntN(9)))
	}
	return []byte(strings.Repeat(fmt.Sprintf("line %d\n", g.rng.IntN(100)), 1+g.rng.IntN(40)))
}

// plant puts something at a place, whatever is there.
func (g *garden) plant(dir string) {
	p := filepath.Join(dir, g.name(3))
	for d := filepath.Dir(p); len(d) > len(dir); d = filepath.Dir(d) {
		if st, err := os.Lstat(d); err == nil && !st.IsDir() {
			_ = os.Remove(d)
		}
	}
	_ = os.RemoveAll(p)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		g.t.Fatal(err)
	}
	switch g.rng.IntN(6) {
	case 0:
		to := []string{"a", "../..", "/etc/passwd", "new\nline", "\xff", "a/b/c"}[g.rng.IntN(6)]
		if err := os.Symlink(to, p); err != nil {
			g.t.Fatal(err)
		}
	default:
		mode := os.FileMode(0o644)
		if g.rng.IntN(4) == 0 {
			mode = 0o755
		}
		if err := os.WriteFile(p, g.content(), mode); err != nil {
			g.t.Fatal(err)
		}
	}
}

// prune removes something at random.
func (g *garden) prune(dir string) {
	var all []string
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d.Name() == ".git" && p != dir {
			return filepath.SkipDir
		}
		if p != dir {
			all = append(all, p)
		}
		return nil
	})
	if len(all) > 0 {
		_ = os.RemoveAll(all[g.rng.IntN(len(all))])
	}
}

func TestApplyRandomTrees(t *testing.T) {
	for seed := range uint64(count(3, 12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if testing.Short() && seed > 0 {
				t.Skip("one random tree is enough with -short")
			}
			g := &garden{t, rand.New(rand.NewPCG(seed, 7))}
			l := newLab(t)
			format := "sha1"
			if seed%3 == 2 {
				format = "sha256"
			}
			l.git("init", "-q", "--object-format="+format)
			for range 40 {
				g.plant(l.repo)
			}
			l.commit("base")
			// git leaves out folders that have no file in them.
			o := l.open(Options{})
			for range 25 {
				g.plant(o.p.Source)
			}
			for range 12 {
				g.prune(o.p.Source)
			}
			o.likeGit(format == "sha1" || seed%2 == 0)
		})
	}
}

// TestApplyRealHistory takes pairs of commits of a published project on which
// many generated commits were made.
func TestApplyRealHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a long history; not with -short")
	}
	l := module(t, "github.com/spf13/cobra")
	g := &garden{t, rand.New(rand.NewPCG(1, 2))}
	commits := []string{l.git("rev-parse", "HEAD")}
	for i := range count(8, 20) {
		var files []string
		_ = filepath.WalkDir(l.repo, func(p string, d fs.DirEntry, err error) error {
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			if d.Type().IsRegular() {
				files = append(files, p)
			}
			return nil
		})
		for range 4 {
			p := files[g.rng.IntN(len(files))]
			b, err := os.ReadFile(p)
			if err != nil {
				continue
			}
			switch g.rng.IntN(5) {
			case 0:
				_ = os.Rename(p, p+".moved")
			case 1:
				_ = os.Chmod(p, 0o755)
			case 2:
				_ = os.Remove(p)
				_ = os.Symlink("elsewhere", p)
			default:
				lines := strings.SplitAfter(string(b), "\n")
				lines[g.rng.IntN(len(lines))] = fmt.Sprintf("changed %d\n", i)
				if err := os.WriteFile(p, []byte(strings.Join(lines, "")), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		g.plant(l.repo)
		commits = append(commits, l.commit(fmt.Sprint("generated ", i)))
	}
	for range 3 {
		base, target := commits[g.rng.IntN(len(commits))], commits[g.rng.IntN(len(commits))]
		t.Run(base[:6]+"-"+target[:6], func(t *testing.T) {
			l := &lab{t: t, top: l.top, repo: l.repo, env: l.env, state: l.state}
			l.git("checkout", "-q", "-f", "--detach", base)
			l.git("clean", "-qfdx")
			o := l.open(Options{})
			o.in("checkout", "-q", "--detach", target)
			o.likeGit(true)
			for _, d := range []string{"/by-checkout", "/by-patch"} {
				_ = os.RemoveAll(o.top + d)
			}
		})
	}
}

func TestApplyLineEnds(t *testing.T) {
	attributes := []string{"", "* text=auto\n", "* text eol=crlf\n", "* text eol=lf\n", "*.bin -text\n*.txt text\n", "*.txt ident\n", "*.txt working-tree-encoding=UTF-16LE\n"}
	for _, crlf := range []string{"", "true", "input", "false"} {
		for i, attr := range attributes {
			if (crlf == "input" || crlf == "false") && i > 1 {
				continue // the attributes decide, as without a setting
			}
			if !full && crlf == "true" && i != 0 && i != 1 && i != 4 {
				continue // attributes that name an end of line or another encoding decide alone
			}
			if testing.Short() && i > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s-%d", crlf, i), func(t *testing.T) {
				l := newLab(t)
				l.git("init", "-q")
				if crlf != "" {
					l.git("config", "core.autocrlf", crlf)
				}
				l.git("config", "core.safecrlf", "false")
				if attr != "" {
					l.write(".gitattributes", attr)
				}
				l.write("unix.txt", "one\ntwo $Id$\n")
				if !strings.Contains(attr, "UTF-16") {
					l.write("dos.txt", "one\r\ntwo\r\n")
					l.write("mixed.txt", "one\r\ntwo\n")
				} else {
					l.write("unix.txt", "o\x00n\x00e\x00\n\x00")
				}
				l.write("a.bin", "one\r\ntwo\nthree\x00\r\n")
				l.write("stays.md", "one\n")
				l.commit("base")
				// As git itself would have checked them out.
				l.git("rm", "-q", "-r", "--cached", ".")
				l.git("reset", "-q", "--hard")
				o := l.open(Options{})
				if strings.Contains(attr, "UTF-16") {
					o.file("unix.txt", "t\x00w\x00o\x00\n\x00")
				} else {
					o.file("unix.txt", "one\nthree $Id$\n")
					o.file("dos.txt", "one\r\nthree\r\n")
					o.file("mixed.txt", "one\r\nthree\nfour\r\n")
				}
				o.file("a.bin", "one\r\ntwo\nfour\x00\r\n")
				o.file("new.txt.md", "n\n")
				o.likeGit(false)
			})
		}
	}
	// The result's own attributes rule, as they would on a checkout of it.
	l := newLab(t)
	l.git("init", "-q")
	l.write("a.txt", "one\n")
	l.write("b.txt", "one\n")
	l.commit("base")
	o := l.open(Options{})
	o.file(".gitattributes", "*.txt eol=crlf\n")
	o.file("a.txt", "two\n")
	o.apply()
	if b, _ := os.ReadFile(l.repo + "/a.txt"); string(b) != "two\r\n" {
		t.Errorf("%q", b)
	}
}

func TestApplyManyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of files; not with -short")
	}
	half := count(500, 5000)
	l := newLab(t)
	l.git("init", "-q")
	for i := range half {
		l.write(fmt.Sprintf("d%d/f%d", i%97, i), fmt.Sprint(i))
	}
	l.commit("base")
	o := l.open(Options{})
	for i := range 2 * half {
		switch {
		case i < half && i%3 == 0:
			if err := os.Remove(fmt.Sprintf("%s/d%d/f%d", o.p.Source, i%97, i)); err != nil {
				t.Fatal(err)
			}
		case i < half:
			o.file(fmt.Sprintf("d%d/f%d", i%97, i), fmt.Sprint("x", i))
		default:
			o.file(fmt.Sprintf("e%d/f/g%d", i%31, i), fmt.Sprint(i))
		}
	}
	o.likeGit(false)
}
