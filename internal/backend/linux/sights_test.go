//go:build linux

package linux

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// A remembered search is used again as long as nothing changed that could
// change its answer, and not a moment longer.
func TestRememberedToolchains(t *testing.T) {
	have := []string{".sdk/1.2/bin/tool", ".sdk/1.2/lib/deep/er/x", ".sdk/1.2/.npmrc", ".sdk/current -> 1.2", ".local/bin/t -> ~/.sdk/current/bin/tool", ".local/bin/gone -> ~/nowhere/x", "other/bin/x"}
	for _, c := range []struct {
		name   string
		change func(home string) error // nil: none
		path   string                  // added to PATH
		again  bool
	}{
		{name: "nothing", again: true},
		{name: "a file in a folder that was not looked at", again: true, change: func(h string) error { return os.WriteFile(h+"/notes", nil, 0o600) }},
		{name: "another PATH", path: "/opt"},
		{name: "credentials at the top", change: func(h string) error { return os.WriteFile(h+"/.sdk/1.2/.netrc", nil, 0o600) }},
		{name: "credentials below", change: func(h string) error { return os.WriteFile(h+"/.sdk/1.2/lib/deep/credentials", nil, 0o600) }},
		{name: "a file becomes credentials", change: func(h string) error { return os.Rename(h+"/.sdk/1.2/lib/deep/er/x", h+"/.sdk/1.2/lib/deep/er/.netrc") }},
		{name: "a link leads elsewhere", change: func(h string) error {
			return os.Rename(link(h+"/new", "../other/bin/x"), h+"/.local/bin/t")
		}},
		{name: "a link on the way leads elsewhere", change: func(h string) error {
			return os.Rename(link(h+"/new", "../other"), h+"/.sdk/current")
		}},
		{name: "a folder becomes a link", change: func(h string) error {
			if err := os.Rename(h+"/.sdk", h+"/moved"); err != nil {
				return err
			}
			return os.Symlink("moved", h+"/.sdk")
		}},
		{name: "a folder of PATH appears", change: func(h string) error { return os.MkdirAll(h+"/late/bin", 0o755) }},
		{name: "what a dead link leads to appears", change: func(h string) error {
			if err := os.Mkdir(h+"/nowhere", 0o755); err != nil {
				return err
			}
			return os.WriteFile(h+"/nowhere/x", nil, 0o755)
		}},
		{name: "a sign of an installation appears", change: func(h string) error { return os.Mkdir(h+"/other/share", 0o755) }},
		{name: "a folder is replaced", change: func(h string) error {
			if err := os.Rename(h+"/.sdk/1.2/lib/deep", h+"/was"); err != nil {
				return err
			}
			return os.MkdirAll(h+"/.sdk/1.2/lib/deep/er", 0o755)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := homeWith(t, have...)
			file := filepath.Join(t.TempDir(), "toolchains")
			s := Search{Path: home + "/.local/bin:" + home + "/other/bin:" + home + "/late/bin:/usr/bin:/bin", Home: home, Getenv: func(string) string { return "" }}
			saw := newSights()
			found := discover(s, saw)
			text, ok := saw.text(searchKey(s), found, time.Now().Add(2*settled))
			if !ok {
				t.Skip("the times of this file system's folders are not trusted, so nothing is remembered")
			}
			must(t, os.WriteFile(file, []byte(text), 0o600))
			nextTick(t, home)
			if c.change != nil {
				must(t, c.change(home))
			}
			if c.path != "" {
				s.Path += ":" + c.path
			}
			f, ok := recallFound(file, searchKey(s))
			if ok != c.again {
				t.Fatalf("the memory is used: %v, should be: %v", ok, c.again)
			}
			if ok && !reflect.DeepEqual(f, discover(s, nil)) {
				t.Errorf("remembered: %+v\nfound: %+v", f, discover(s, nil))
			}
			// A memory that was cut short, or changed, is none.
			must(t, os.WriteFile(file, []byte(text[:len(text)-2]), 0o600))
			if _, ok := recallFound(file, searchKey(s)); ok {
				t.Error("a damaged memory is used")
			}
		})
	}
}

// What changed a moment ago may change again without a trace.
func TestToolchainsInMotionAreNotRemembered(t *testing.T) {
	home := homeWith(t, "bin/mine")
	s := Search{Path: home + "/bin", Home: home, Getenv: func(string) string { return "" }}
	saw := newSights()
	f := discover(s, saw)
	if _, ok := saw.text(searchKey(s), f, time.Now()); ok {
		t.Error("remembered")
	}
}

// link makes a link and returns its name.
func link(name, dest string) string {
	_ = os.Symlink(dest, name)
	return name
}

// nextTick waits until the clock of the file system below dir has moved on.
func nextTick(t *testing.T, dir string) {
	t.Helper()
	at := func() string {
		f := filepath.Join(dir, ".tick")
		must(t, os.WriteFile(f, nil, 0o600))
		defer os.Remove(f)
		s, _ := stampOf(f)
		return s.last.String()
	}
	for first := at(); at() == first; {
		time.Sleep(time.Millisecond)
	}
}
