package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestTrustStore(t *testing.T) {
	s := TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
	files := func(kv ...string) map[string][]byte {
		m := map[string][]byte{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = []byte(kv[i+1])
		}
		return m
	}
	x := Subject{Repo: "/r", CommonDir: "/r/.git", Inode: 7, Files: []map[string][]byte{files(ProjectFile, "a"), files(ProjectFile, "b", ".envrc", "e")}}
	look := func(x Subject) (bool, []string) {
		t.Helper()
		since, changed, err := s.Look(x)
		if err != nil {
			t.Fatal(err)
		}
		return since != nil, changed
	}
	if ok, changed := look(x); ok || changed != nil {
		t.Error("trusted by nobody")
	}
	if _, err := s.Grant(x, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if ok, _ := look(x); !ok {
		t.Error("not trusted")
	}
	for name, c := range map[string]struct {
		x       Subject
		changed []string
		ok      bool
	}{
		"committed since":    {Subject{Repo: "/r", CommonDir: "/r/.git", Inode: 7, Files: []map[string][]byte{files(ProjectFile, "b", ".envrc", "e"), files(ProjectFile, "b", ".envrc", "e")}}, nil, true},
		"changed":            {Subject{Repo: "/r", CommonDir: "/r/.git", Inode: 7, Files: []map[string][]byte{files(ProjectFile, "a"), files(ProjectFile, "c", ".envrc", "e")}}, []string{ProjectFile}, false},
		"changed at a base":  {Subject{Repo: "/r", CommonDir: "/r/.git", Inode: 7, Files: []map[string][]byte{files(ProjectFile, "x"), files(ProjectFile, "b", ".envrc", "f")}}, []string{ProjectFile, ".envrc"}, false},
		"a new file":         {Subject{Repo: "/r", CommonDir: "/r/.git", Inode: 7, Files: []map[string][]byte{files(ProjectFile, "a", ".mcp.json", "m"), files(ProjectFile, "b", ".envrc", "e")}}, []string{".mcp.json"}, false},
		"removed":            {Subject{Repo: "/r", CommonDir: "/r/.git", Inode: 7, Files: []map[string][]byte{files(), files(".envrc", "e")}}, nil, false},
		"another repository": {Subject{Repo: "/r", CommonDir: "/r/.git", Inode: 8, Files: x.Files}, nil, false},
		"elsewhere":          {Subject{Repo: "/q", CommonDir: "/q/.git", Inode: 7, Files: x.Files}, nil, false},
	} {
		ok, changed := look(c.x)
		if name == "removed" {
			if ok || !slices.Equal(changed, []string{ProjectFile}) {
				t.Errorf("%s: %v %v", name, ok, changed)
			}
			continue
		}
		slices.Sort(c.changed)
		if ok != c.ok || !slices.Equal(changed, c.changed) {
			t.Errorf("%s: %v %v", name, ok, changed)
		}
	}
	// Of a task that looked only at the top nobody knows what lies below.
	z := Subject{Repo: "/b", CommonDir: "/b/.git", Inode: 9, Below: true, Files: []map[string][]byte{files(ProjectFile, "a", "d/.envrc", "e"), files(ProjectFile, "a", "d/.envrc", "e")}}
	if _, err := s.Grant(z, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		below   bool
		files   map[string][]byte
		changed []string
		ok      bool
	}{
		"as it was":           {true, files(ProjectFile, "a", "d/.envrc", "e"), nil, true},
		"changed below":       {true, files(ProjectFile, "a", "d/.envrc", "f"), []string{"d/.envrc"}, false},
		"gone below":          {true, files(ProjectFile, "a"), []string{"d/.envrc"}, false},
		"not looked":          {false, files(ProjectFile, "a"), nil, false},
		"not looked, changed": {false, files(ProjectFile, "b"), []string{ProjectFile}, false},
	} {
		ok, changed := look(Subject{Repo: "/b", CommonDir: "/b/.git", Inode: 9, Below: c.below, Files: []map[string][]byte{c.files, c.files}})
		if ok != c.ok || !slices.Equal(changed, c.changed) {
			t.Errorf("%s: %v %v", name, ok, changed)
		}
	}
	// Said again it holds for both states.
	y := Subject{Repo: "/r", CommonDir: "/r/.git", Inode: 7, Files: []map[string][]byte{files(ProjectFile, "c"), files(ProjectFile, "c")}}
	if _, err := s.Grant(y, time.Unix(2, 0)); err != nil {
		t.Fatal(err)
	}
	for _, z := range []Subject{x, y} {
		if ok, changed := look(z); !ok {
			t.Errorf("not trusted: %v", changed)
		}
	}
	if l, err := s.List(); err != nil || len(l) != 2 || l[0].Repo != "/b" || l[1].Repo != "/r" {
		t.Errorf("%v, %v", l, err)
	}
	// A record that others may write, or that is broken, is an error and no trust.
	rec := s.path(x.CommonDir)
	if err := os.Chmod(rec, 0o666); err != nil {
		t.Fatal(err)
	}
	if since, _, err := s.Look(x); since != nil || task.CodeOf(err) != task.CodeStateStore {
		t.Errorf("%v, %v", since, err)
	}
	if err := os.WriteFile(rec, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if since, _, err := s.Look(x); since != nil || err == nil {
		t.Errorf("%v, %v", since, err)
	}
	if was, err := s.Revoke(x.CommonDir); !was || err != nil {
		t.Errorf("%v, %v", was, err)
	}
	if was, err := s.Revoke(x.CommonDir); was || err != nil {
		t.Errorf("%v, %v", was, err)
	}
	if _, err := s.Grant(Subject{Repo: "/folder"}, time.Unix(1, 0)); task.CodeOf(err) != task.CodeUnsupported {
		t.Errorf("without a repository: %v", err)
	}
}
