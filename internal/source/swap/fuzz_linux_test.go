package swap

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzJournal reads the record of a swap: what it accepts names nothing outside
// of its folder, and can be written and read again.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"version":1,"root":"/r","stage":"/s","ready":true,"steps":[]}`))
	f.Add([]byte(`{"version":1,"root":"/r","stage":"/s","steps":[{"path":"YQ==","old":{}}]}`))
	f.Add([]byte(`{"version":1,"root":"/r","stage":"/s","steps":[{"path":"Li4veA==","new":{}}]}`))
	f.Add([]byte(`{"version":1,"root":"r","stage":"/s"}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte("\x00"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, journalFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := readJournal(dir)
		if err != nil {
			return
		}
		for _, s := range j.Steps {
			if !Valid(string(s.Path)) || !filepath.IsLocal(string(s.Path)) {
				t.Errorf("accepted %q", s.Path)
			}
		}
		if err := j.write(dir); err != nil {
			t.Fatal(err)
		}
		if again, err := readJournal(dir); err != nil || len(again.Steps) != len(j.Steps) || again.Root != j.Root {
			t.Errorf("%q is read as %+v, and that as %+v (%v)", b, j, again, err)
		}
	})
}
