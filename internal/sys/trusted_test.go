//go:build unix

package sys

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadTrusted(t *testing.T) {
	top := t.TempDir() // below a sticky folder, as a rule
	for d := top; d != "/"; d = filepath.Dir(d) {
		if fi, err := os.Stat(d); err != nil || fi.Mode().Perm()&0o022 != 0 && fi.Mode()&os.ModeSticky == 0 {
			t.Skipf("others may write to %s", d)
		}
	}
	if _, err := ReadTrusted("/etc/passwd", 1<<20, os.Geteuid()); errors.Is(err, ErrNotTrusted) {
		t.Skipf("the system's own files are not root's here: %v", err)
	}
	write := func(name string, mode os.FileMode) string {
		p := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	link := func(to, name string) string {
		p := filepath.Join(top, name)
		if err := os.Symlink(to, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := write("plain", 0o644)
	open := write("open/file", 0o644)
	if err := os.Chmod(filepath.Dir(open), 0o777); err != nil {
		t.Fatal(err)
	}
	group := write("group/file", 0o644)
	if err := os.Chmod(filepath.Dir(group), 0o775); err != nil {
		t.Fatal(err)
	}
	long := write("long", 0o600)
	if err := os.WriteFile(long, make([]byte, 200), 0o600); err != nil {
		t.Fatal(err)
	}
	loop := link("loop", "loop")
	for name, c := range map[string]struct {
		path string
		want error
		text string
	}{
		"a file of one's own":         {plain, nil, ""},
		"one for oneself":             {write("private", 0o600), nil, ""},
		"one that a group may write":  {write("g", 0o664), ErrNotTrusted, "g: "},
		"one that all may write":      {write("w", 0o646), ErrNotTrusted, "w: "},
		"in an open folder":           {open, ErrNotTrusted, "open: "},
		"in a group's folder":         {group, ErrNotTrusted, "group: "},
		"a link to it":                {link("plain", "link"), nil, ""},
		"an absolute link":            {link(plain, "abs"), nil, ""},
		"a link into an open folder":  {link(open, "trick"), ErrNotTrusted, "open: "},
		"a folder that is a link":     {filepath.Join(link("open", "dirlink"), "file"), ErrNotTrusted, "open: "},
		"up and down":                 {link("open/../plain", "updown"), ErrNotTrusted, "open: "},
		"a link that leads nowhere":   {link("nothing", "lost"), nil, "leads nowhere"},
		"below such a link":           {filepath.Join(link("nothing", "lostdir"), "file"), nil, "leads nowhere"},
		"a loop":                      {loop, nil, "too many"},
		"absent":                      {filepath.Join(top, "absent"), os.ErrNotExist, ""},
		"absent in an open folder":    {filepath.Join(top, "open", "absent"), os.ErrNotExist, ""},
		"a folder":                    {filepath.Join(top, "group", ".."), nil, "not a file"},
		"longer than asked for":       {long, ErrTooLong, ""},
		"relative":                    {"plain", nil, "not an absolute path"},
		"a device, on a way that is ": {"/dev/null", ErrNotTrusted, ""},
	} {
		if name == "a device, on a way that is " {
			if _, err := ReadTrusted(c.path, 100, os.Geteuid()); err == nil {
				t.Error("a device was read")
			}
			continue
		}
		b, err := ReadTrusted(c.path, 100, os.Geteuid())
		switch {
		case c.want == nil && c.text == "":
			if err != nil || string(b) != "text" {
				t.Errorf("%s: %q, %v", name, b, err)
			}
		case err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text):
			t.Errorf("%s: %v, want %v %q", name, err, c.want, c.text)
		}
	}
	// Another's file: as root, any other user's; else root's own counts as everybody's.
	if os.Geteuid() == 0 {
		if err := os.Chown(plain, 12345, 12345); err != nil {
			t.Skipf("no other user to give a file to: %v", err)
		}
		if _, err := ReadTrusted(plain, 100, os.Geteuid()); !errors.Is(err, ErrNotTrusted) {
			t.Errorf("another's file: %v", err)
		}
		if _, err := ReadTrusted(plain, 100, 12345); err != nil {
			t.Errorf("its owner's: %v", err)
		}
	}
}
