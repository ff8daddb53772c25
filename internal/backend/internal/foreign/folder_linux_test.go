package foreign

import (
	"os"
	"path/filepath"
	"testing"
)

// Behind what is mounted for an engine are a person's files: removal never goes there,
// also where it came after everything was taken away.
func TestRemoveGoesIntoNothingThatIsShown(t *testing.T) {
	const token = "0123456789abcdef"
	made := func() (dir, file string) {
		dir = filepath.Join(t.TempDir(), "made")
		file = filepath.Join(dir, SeenDir, "0", "sub", "file")
		for _, d := range []string{filepath.Dir(file), filepath.Join(dir, "root", "bin")} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []string{file, filepath.Join(dir, TokenFile)} {
			if err := os.WriteFile(f, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir, file
	}
	for name, remove := range map[string]func(dir string) error{
		"as a whole": func(dir string) error { return Remove(dir, token) },
		"the rest":   removeRest,
	} {
		dir, file := made()
		if err := remove(dir); err == nil {
			t.Errorf("%s: removed", name)
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != token || !Ours(dir, token) {
			t.Errorf("%s: what was shown is gone: %v", name, err)
		}
	}
	dir, file := made()
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(file))); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir, token); err != nil { // the control: nothing is shown
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
}
