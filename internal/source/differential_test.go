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
	"strings"
	"testing"
)

// TestAgainstPlainGit makes random edits and commits inside clones of a real
// project and compares every way out with what plain git says of the branch.
func TestAgainstPlainGit(t *testing.T) {
	if testing.Short() {
		t.Skip("makes and compares many results of a real project; not with -short")
	}
	l := module(t, "github.com/spf13/cobra")
	before := picture(t, l.repo, func(rel string) bool {
		return notOurs(rel) || strings.HasPrefix(rel, ".git/refs/heads/r") || strings.HasPrefix(rel, ".git/logs/refs/heads/r")
	})
	for seed := range uint64(count(2, 8)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // not a secret
			o := l.open(Options{})
			for step := range 3 + int(seed) {
				o.edit(rnd, step)
				if rnd.IntN(3) > 0 {
					o.in("add", "-A")
					o.in("commit", "-q", "--allow-empty", "-m", fmt.Sprintf("step %d", step))
				}
			}
			o.matches(fmt.Sprintf("r%d", seed))
		})
	}
	after := picture(t, l.repo, func(rel string) bool {
		return notOurs(rel) || strings.HasPrefix(rel, ".git/refs/heads/r") || strings.HasPrefix(rel, ".git/logs/refs/heads/r")
	})
	if after != before {
		t.Error("more than the branches changed in the user's repository")
	}
	l.git("fsck", "--strict", "--full")
}

// edit changes, adds, removes, moves and links a few files inside.
func (o *opened) edit(rnd *rand.Rand, step int) {
	o.t.Helper()
	var files []string
	err := filepath.WalkDir(o.p.Source, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(o.p.Source, p)
		if rel == ".git" {
			return filepath.SkipDir
		}
		if err == nil && !d.IsDir() {
			files = append(files, rel)
		}
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	path := func(rel string) string { return filepath.Join(o.p.Source, rel) }
	for i := range 12 {
		f := files[rnd.IntN(len(files))]
		st, err := os.Lstat(path(f))
		if err != nil {
			continue // moved or removed in this step
		}
		switch k := rnd.IntN(8); {
		case k == 0:
			err = os.Remove(path(f))
		case k == 1:
			to := fmt.Sprintf("moved/%d-%d/%s", step, i, filepath.Base(f))
			if err = os.MkdirAll(filepath.Dir(path(to)), 0o755); err == nil {
				err = os.Rename(path(f), path(to))
			}
		case k == 2:
			err = os.Symlink(strangeNames[rnd.IntN(len(strangeNames))], path(fmt.Sprintf("link-%d-%d", step, i)))
		case k == 3:
			o.file(fmt.Sprintf("new-%d/%s", step, strangeNames[rnd.IntN(len(strangeNames))]), strings.Repeat(fmt.Sprintln(rnd.IntN(9)), rnd.IntN(40)))
		case k == 4 && st.Mode().IsRegular():
			err = os.Chmod(path(f), st.Mode().Perm()^0o111)
		case k == 5 && st.Mode().IsRegular():
			var b []byte
			if b, err = os.ReadFile(path(f)); err == nil {
				err = os.WriteFile(path(f), bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")), st.Mode().Perm())
			}
		case st.Mode().IsRegular():
			var b []byte
			if b, err = os.ReadFile(path(f)); err == nil {
				cut := rnd.IntN(len(b) + 1)
				b = append(append(append([]byte(nil), b[:cut]...), byte(rnd.IntN(256)), '\n'), b[cut:]...)
				err = os.WriteFile(path(f), b, st.Mode().Perm())
			}
		}
		if err != nil {
			o.t.Fatal(err)
		}
	}
}

// matches compares branch, diff, patch, bundle and folder with plain git.
func (o *opened) matches(name string) {
	t := o.t
	t.Helper()
	ctx := context.Background()
	rep := o.branch(name)
	r := o.result()
	names := func(s string) string { return strings.ReplaceAll(s, "\x00", "\n") }
	for _, d := range []struct {
		o    DiffOptions
		args []string
	}{
		{DiffOptions{}, []string{"--binary", "--full-index"}},
		{DiffOptions{NameStatus: true, NUL: true}, []string{"--name-status", "-z"}},
		{DiffOptions{Stat: true}, []string{"--stat"}},
	} {
		var out bytes.Buffer
		if err := r.Diff(ctx, &out, d.o); err != nil {
			t.Fatal(err)
		}
		want := o.plain(o.repo, append(append([]string{"diff", "-M", "--no-color"}, d.args...), rep.Base, name, "--")...)
		if out.String() != want {
			t.Errorf("diff %v is\n%s\nnot\n%s", d.args, names(out.String()), names(want))
		}
	}
	if n := strings.Count(o.plain(o.repo, "diff", "--no-renames", "--name-only", "-z", rep.Base, name, "--"), "\x00"); n != rep.Files {
		t.Errorf("%d files, git says %d", rep.Files, n)
	}
	if got := o.git("rev-parse", name+"^{tree}"); got != r.Tree {
		t.Errorf("tree %s, not %s", got, r.Tree)
	}
	var patch bytes.Buffer
	if _, err := r.Export(ctx, ExportOptions{Form: FormPatch, W: &patch}); err != nil {
		t.Fatal(err)
	}
	clone := o.top + "/apply-" + name
	o.plain(o.top, "clone", "-q", o.repo, clone)
	if err := os.WriteFile(o.top+"/patch", patch.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	o.plain(clone, "apply", "--binary", "--index", "--whitespace=nowarn", o.top+"/patch")
	if got := strings.TrimSpace(o.plain(clone, "write-tree")); got != r.Tree {
		t.Errorf("the patch gives %s, not %s", got, r.Tree)
	}
	o.bundleFits(name)
	if _, err := r.Export(ctx, ExportOptions{Form: FormDir, Dir: o.top + "/dir-" + name}); err != nil {
		t.Fatal(err)
	}
	if got, want := listing(t, o.top+"/dir-"+name), o.archived(name, o.top+"/archive-"+name); got != want {
		t.Errorf("the folder differs from git archive")
	}
}
