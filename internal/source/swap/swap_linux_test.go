package swap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// field is a folder to change, and one for everything else.
type field struct {
	t          *testing.T
	root, side string
}

func newField(t *testing.T) *field {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &field{t, top + "/root", top + "/side"}
	for _, d := range []string{f.root, f.side, f.side + "/new"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *field) write(name, text string) {
	f.t.Helper()
	p := filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *field) read(name string) string {
	b, err := os.ReadFile(filepath.Join(f.root, name))
	if err != nil {
		return "error: " + err.Error()
	}
	return string(b)
}

func (f *field) open() *os.File {
	f.t.Helper()
	r, err := os.Open(f.root)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { r.Close() })
	return r
}

func (f *field) see(path string) *Seen {
	f.t.Helper()
	s, err := Look(f.open(), path, true)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// fresh is new content for a step.
func (f *field) fresh(text string) *Content {
	f.t.Helper()
	p := filepath.Join(f.side, "new", fmt.Sprint(len(must(os.ReadDir(f.side+"/new")))))
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return &Content{Kind: File, From: p, Perm: 0o644, UID: -1, GID: -1}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (f *field) job() Job {
	return Job{Root: f.open(), RootPath: f.root, Stages: []string{f.root}, Name: ".stage", Journal: f.side + "/journal"}
}

func (f *field) run(steps ...Step) error { return Run(context.Background(), f.job(), steps) }

// recover is what a later process does.
func (f *field) recover() (bool, []Left, error) {
	return Recover(f.side+"/journal", func(root string) (*os.File, error) { return os.Open(root) })
}

// picture lists everything below root with kind, mode and bytes.
func (f *field) picture() string {
	f.t.Helper()
	var lines []string
	err := filepath.WalkDir(f.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(p, f.root) + " " + st.Mode().String()
		if st.Mode().IsRegular() {
			line += fmt.Sprintf(" %q", must(os.ReadFile(p)))
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			line += " -> " + must(os.Readlink(p))
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// clean fails when something of ours is left.
func (f *field) clean() {
	f.t.Helper()
	if m, _ := filepath.Glob(f.root + "/.stage*"); len(m) > 0 {
		f.t.Errorf("left: %q", m)
	}
	if exists(f.side + "/journal") {
		f.t.Error("the journal is left")
	}
}

// every makes a folder and steps of every kind for it.
func (f *field) every() []Step {
	f.write("replace", "old")
	f.write("sub/replace", "old sub")
	f.write("delete", "bye")
	f.write("emptied/a/b", "bye too")
	f.write("file-to-dir", "file")
	f.write("dir-to-file/x", "x")
	f.write("stays", "stays")
	if err := os.Symlink("nowhere", f.root+"/link-to-file"); err != nil {
		f.t.Fatal(err)
	}
	f.write("file-to-link", "file")
	if err := os.Chmod(f.root+"/emptied", 0o750); err != nil {
		f.t.Fatal(err)
	}
	dir := &Content{Kind: Dir, Perm: 0o755, UID: -1, GID: -1}
	return []Step{
		{Path: "replace", Old: f.see("replace"), New: f.fresh("new")},
		{Path: "sub/replace", Old: f.see("sub/replace"), New: f.fresh("new sub")},
		{Path: "delete", Old: f.see("delete")},
		{Path: "emptied/a/b", Old: f.see("emptied/a/b")},
		{Path: "emptied/a", Old: f.see("emptied/a"), Optional: true},
		{Path: "emptied", Old: f.see("emptied"), Optional: true},
		{Path: "file-to-dir", Old: f.see("file-to-dir")},
		{Path: "file-to-dir", New: dir},
		{Path: "file-to-dir/in", New: f.fresh("in")},
		{Path: "dir-to-file/x", Old: f.see("dir-to-file/x")},
		{Path: "dir-to-file", Old: f.see("dir-to-file")},
		{Path: "dir-to-file", New: f.fresh("now a file")},
		{Path: "link-to-file", Old: f.see("link-to-file"), New: f.fresh("no link")},
		{Path: "file-to-link", Old: f.see("file-to-link"), New: &Content{Kind: Link, To: "replace", UID: -1, GID: -1}},
		{Path: "added/deep", New: dir},
		{Path: "added", New: dir},
		{Path: "added/deep/file", New: f.fresh("added")},
	}
}

func TestEveryKind(t *testing.T) {
	f := newField(t)
	steps := f.every()
	if err := f.run(steps...); err != nil {
		t.Fatal(err)
	}
	f.clean()
	for name, want := range map[string]string{
		"replace": "new", "sub/replace": "new sub", "file-to-dir/in": "in", "dir-to-file": "now a file", "link-to-file": "no link",
		"file-to-link": "new", "added/deep/file": "added", "stays": "stays",
	} {
		if got := f.read(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, gone := range []string{"delete", "emptied"} {
		if exists(f.root + "/" + gone) {
			t.Errorf("%s is there", gone)
		}
	}
}

// TestTakenBack lets each step meet something that somebody changed since it
// was looked at: everything is as before, but for their change.
func TestTakenBack(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(f *field)
	}{
		{"content", func(f *field) { f.write("replace", "mine") }},
		{"content of a deleted one", func(f *field) { f.write("emptied/a/b", "mine") }},
		{"new file", func(f *field) { f.write("added/mine", "mine") }},
		{"in the folder", func(f *field) { f.write("dir-to-file/mine", "mine") }},
		{"same bytes, other file", func(f *field) {
			f.write("tmp", "old")
			if err := os.Rename(f.root+"/tmp", f.root+"/replace"); err != nil {
				f.t.Fatal(err)
			}
		}},
		{"gone", func(f *field) { _ = os.Remove(f.root + "/delete") }},
		{"FIFO", func(f *field) {
			_ = os.Remove(f.root + "/replace")
			if err := unix.Mkfifo(f.root+"/replace", 0o600); err != nil {
				f.t.Fatal(err)
			}
		}},
		{"times put back", func(f *field) {
			st := must(os.Stat(f.root + "/sub/replace"))
			f.write("sub/replace", "bad sub")
			if err := os.Chtimes(f.root+"/sub/replace", st.ModTime(), st.ModTime()); err != nil {
				f.t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newField(t)
			steps := f.every()
			c.change(f)
			before := f.picture()
			err := f.run(steps...)
			var changed *Changed
			if !errors.As(err, &changed) {
				t.Fatalf("%v", err)
			}
			if after := f.picture(); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			f.clean()
		})
	}
}

// TestWriterKeepsItsFile has a program that holds a file open for writing: what
// it writes later must not go to a file that is deleted.
func TestWriterKeepsItsFile(t *testing.T) {
	f := newField(t)
	f.write("log", "one\n")
	w, err := os.OpenFile(f.root+"/log", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	step := Step{Path: "log", Old: f.see("log"), New: f.fresh("new")}
	var changed *Changed
	if err := f.run(step); !errors.As(err, &changed) {
		t.Fatalf("%v", err)
	}
	if _, err := w.WriteString("two\n"); err != nil {
		t.Fatal(err)
	}
	if got := f.read("log"); got != "one\ntwo\n" {
		t.Errorf("a save was lost: %q", got)
	}
	// The control: a writer that does not ask loses it.
	f.write("naive", "one\n")
	w2 := must(os.OpenFile(f.root+"/naive", os.O_WRONLY|os.O_APPEND, 0))
	defer w2.Close()
	f.write("naive.new", "new")
	if err := os.Rename(f.root+"/naive.new", f.root+"/naive"); err != nil {
		t.Fatal(err)
	}
	_, _ = w2.WriteString("two\n")
	if strings.Contains(f.read("naive"), "two") {
		t.Error("the control does not show the loss")
	}
}

func TestHardLinkIsNotWrittenThrough(t *testing.T) {
	f := newField(t)
	f.write("file", "shared")
	if err := os.Link(f.root+"/file", f.side+"/outside"); err != nil {
		t.Fatal(err)
	}
	if err := f.run(Step{Path: "file", Old: f.see("file"), New: f.fresh("new")}); err != nil {
		t.Fatal(err)
	}
	if b := must(os.ReadFile(f.side + "/outside")); string(b) != "shared" || f.read("file") != "new" {
		t.Errorf("%q %q", b, f.read("file"))
	}
}

// TestParentSwapped replaces the folder of a path by a link to an outside one
// and back, all the time. Nothing may ever appear outside.
func TestParentSwapped(t *testing.T) {
	f := newField(t)
	outside := f.side + "/outside"
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside+"/file", []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.write("dir/file", "old")
	if err := os.Symlink(outside, f.root+"/other"); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	swaps := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = unix.Renameat2(unix.AT_FDCWD, f.root+"/dir", unix.AT_FDCWD, f.root+"/other", unix.RENAME_EXCHANGE)
			swaps++
		}
	})
	naive, done := false, 0
	for begun := time.Now(); (swaps < 10_000 || done < 5 || !naive) && time.Since(begun) < 20*time.Second; {
		root := f.open()
		s, err := Look(root, "dir/file", true)
		if err == nil && s != nil {
			err = Run(context.Background(), f.job(), []Step{
				{Path: "dir/file", Old: s, New: f.fresh("new")},
				{Path: "dir/added", New: f.fresh("added")},
			})
			var u *Undone
			if err == nil {
				done++
				// Back to the beginning, wherever the folder is now.
				for _, d := range []string{"dir", "other"} {
					if st, e := os.Lstat(f.root + "/" + d); e == nil && st.IsDir() {
						_ = os.Remove(f.root + "/" + d + "/added")
					}
				}
			} else if errors.As(err, &u) && exists(f.side+"/journal") {
				if _, _, err := f.recover(); err != nil {
					t.Fatal(err)
				}
			}
		}
		root.Close()
		if b := must(os.ReadFile(outside + "/file")); string(b) != "outside" || exists(outside+"/added") {
			t.Fatalf("it wrote outside: %q", b)
		}
		// The control: looked at first, written by its path afterwards.
		if !naive {
			if st, err := os.Lstat(f.root + "/dir"); err == nil && st.IsDir() {
				if os.WriteFile(f.root+"/dir/naive", nil, 0o644) == nil {
					naive = exists(outside + "/naive")
				}
			}
		}
	}
	close(stop)
	wg.Wait()
	if !naive {
		t.Error("the control never wrote outside: the race was not run")
	}
	if done == 0 {
		t.Log("no exchange went through while the folder moved")
	}
}

// TestEditorSaves has an editor that saves again and again, in place or by a
// rename, while the file is exchanged. The last save is there in the end.
func TestEditorSaves(t *testing.T) {
	for _, rename := range []bool{false, true} {
		t.Run(fmt.Sprint("rename=", rename), func(t *testing.T) {
			f := newField(t)
			f.write("edited", "0")
			f.write("other", "old")
			begun := time.Now()
			if err := f.run(Step{Path: "other", Old: f.see("other"), New: f.fresh("old")}); err != nil {
				t.Fatal(err)
			}
			one := time.Since(begun)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			var mu sync.Mutex
			last := "0"
			pause := make(chan chan struct{})
			wg.Go(func() {
				for n := 1; ; n++ {
					select {
					case <-stop:
						return
					case c := <-pause:
						<-c
					default:
					}
					// Between many saves per exchange and many exchanges per save.
					time.Sleep(one * time.Duration(n*n%13) / 4)
					text := fmt.Sprint("save ", n)
					mu.Lock()
					last = text
					mu.Unlock()
					if rename {
						f.write("edited~", text)
						_ = os.Rename(f.root+"/edited~", f.root+"/edited")
					} else {
						f.write("edited", text)
					}
				}
			})
			won := 0
			for i := range 200 {
				s, so := f.see("edited"), f.see("other")
				if s == nil || so == nil {
					continue
				}
				err := f.run(Step{Path: "edited", Old: s, New: f.fresh("task")}, Step{Path: "other", Old: so, New: f.fresh(fmt.Sprint("task ", i))})
				// The editor stops for a moment, so that what is there can be told.
				c := make(chan struct{})
				pause <- c
				mu.Lock()
				want := last
				mu.Unlock()
				got, other := f.read("edited"), f.read("other")
				switch {
				case err == nil:
					won++
					// Saved after the exchange, or not at all since.
					if got != "task" && got != want {
						t.Fatalf("%d: %q, the last save was %q", i, got, want)
					}
					if other != fmt.Sprint("task ", i) {
						t.Fatalf("mixed: %q", other)
					}
				default:
					if got != want {
						t.Fatalf("%d: %q, the last save was %q (%v)", i, got, want, err)
					}
					if other == fmt.Sprint("task ", i) {
						t.Fatalf("mixed: taken back, but other is %q", other)
					}
				}
				close(c)
				_ = os.RemoveAll(f.side + "/journal/kept")
				_ = os.Remove(f.side + "/journal")
			}
			close(stop)
			wg.Wait()
			if won == 0 || won == 200 {
				t.Errorf("%d of 200 went through: they did not meet", won)
			}
		})
	}
}

// TestNameOutside tries paths that lead out.
func TestNameOutside(t *testing.T) {
	f := newField(t)
	for _, p := range []string{"../x", "/x", "a/../../x", "", ".", "a//b", "a/.", "a\x00b"} {
		if err := f.run(Step{Path: p, New: f.fresh("x")}); err == nil {
			t.Errorf("%q was made", p)
		}
		_, _, _ = f.recover()
	}
	if names := must(os.ReadDir(f.root)); len(names) != 0 {
		t.Errorf("%v", names)
	}
}
