package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// place is a home with both kinds of files, in a folder that others cannot
// change.
func place(t *testing.T) Places {
	t.Helper()
	top := t.TempDir()
	if f, err := sys.OpenTrusted(top, os.Geteuid()); err != nil {
		t.Skipf("the folder for tests is not one that others cannot change: %v", err)
	} else {
		f.Close()
	}
	p := Places{Operator: filepath.Join(top, "etc", "policy.d"), User: filepath.Join(top, "home", "policy.yaml"), UID: os.Geteuid(), OperatorUID: os.Geteuid()}
	for _, d := range []string{p.Operator, filepath.Dir(p.User)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	p := place(t)
	if docs, err := p.Read(""); err != nil || len(docs) != 0 {
		t.Fatalf("nothing written: %v, %v", docs, err)
	}
	put(t, filepath.Join(p.Operator, "20-b.yaml"), "version: 1\nfloors: {NET: 1}\n")
	put(t, filepath.Join(p.Operator, "10-a.yaml"), "version: 1\nfloors: {NET: 2}\n")
	put(t, filepath.Join(p.Operator, "README"), "not a policy")
	put(t, filepath.Join(p.Operator, ".a.yaml.swp"), "not a policy")
	put(t, p.User, "version: 1\nraise: {FS: 3}\n")
	docs, err := p.Read("")
	if err != nil {
		t.Fatal(err)
	}
	r, err := policy.Merge(append(docs, policy.Shipped()), policy.Context{Home: "/home/me"})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Operator || len(r.Floors) != 1 || r.Floors[0].Level != 2 || r.Floors[0].From.Where != filepath.Join(p.Operator, "10-a.yaml")+":2" || r.Raised[0].Level != 3 {
		t.Errorf("floors %v, raised %v", r.Floors, r.Raised)
	}
	// In order of names, whatever the folder says.
	if docs[0].File != filepath.Join(p.Operator, "10-a.yaml") || docs[2].Source != task.SourceUser {
		t.Errorf("read as %v", docs)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, p Places) (workspace string)
		want string
	}{
		"a folder that others may write to": {func(t *testing.T, p Places) string {
			if err := os.Chmod(p.Operator, 0o777); err != nil {
				t.Fatal(err)
			}
			return ""
		}, "others may"},
		"a file that others may write to": {func(t *testing.T, p Places) string {
			f := filepath.Join(p.Operator, "a.yaml")
			put(t, f, "version: 1\n")
			if err := os.Chmod(f, 0o666); err != nil {
				t.Fatal(err)
			}
			return ""
		}, "others may"},
		"a user's file that a group may write to": {func(t *testing.T, p Places) string {
			put(t, p.User, "version: 1\n")
			if err := os.Chmod(p.User, 0o664); err != nil {
				t.Fatal(err)
			}
			return ""
		}, "others may"},
		"another ending": {func(t *testing.T, p Places) string {
			put(t, filepath.Join(p.Operator, "a.yml"), "version: 1\n")
			return ""
		}, "only files that end with .yaml"},
		"capitals": {func(t *testing.T, p Places) string {
			put(t, filepath.Join(p.Operator, "a.YAML"), "version: 1\n")
			return ""
		}, "a.YAML is not read"},
		"hidden": {func(t *testing.T, p Places) string {
			put(t, filepath.Join(p.Operator, ".x.yaml"), "version: 1\n")
			return ""
		}, ".x.yaml is not read"},
		"a user's other ending": {func(t *testing.T, p Places) string {
			put(t, filepath.Join(filepath.Dir(p.User), "policy.yml"), "version: 1\n")
			return ""
		}, "policy.yml is not read: only "},
		"a user's JSON beside": {func(t *testing.T, p Places) string {
			put(t, p.User, "version: 1\n")
			put(t, filepath.Join(filepath.Dir(p.User), "policy.json"), "{\"version\": 1}\n")
			return ""
		}, "policy.json is not read: only "},
		"a mistake": {func(t *testing.T, p Places) string {
			put(t, filepath.Join(p.Operator, "a.yaml"), "version: 1\nflors: {}\n")
			return ""
		}, "a.yaml:2: there is no key"},
		"an empty file":  {func(t *testing.T, p Places) string { put(t, filepath.Join(p.Operator, "a.yaml"), ""); return "" }, "holds nothing"},
		"a pipe's place": {func(t *testing.T, p Places) string { mkdir(t, filepath.Join(p.Operator, "a.yaml")); return "" }, "not a file"},
		"not a folder": {func(t *testing.T, p Places) string {
			os.Remove(p.Operator)
			put(t, p.Operator, "version: 1\n")
			return ""
		}, ""},
		"in the workspace": {func(t *testing.T, p Places) string { put(t, p.User, "version: 1\n"); return filepath.Dir(p.User) }, "lies in the repository"},
	} {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			ws := c.do(t, p)
			_, err := p.Read(ws)
			if task.CodeOf(err) != task.CodePolicy || task.HintOf(err) == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (hint %q)", err, task.HintOf(err))
			}
		})
	}
}

func mkdir(t *testing.T, name string) {
	t.Helper()
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestProject(t *testing.T) {
	base, loose := []byte("version: 1\nraise: {NET: 2}\n"), []byte("version: 1\nlimits: {memory: 64g}\n")
	docs, err := Project("1234567", base, loose)
	if err != nil || len(docs) != 2 || docs[0].Source != task.SourceProject || docs[1].Source != task.SourceTask {
		t.Fatalf("%v, %v", docs, err)
	}
	r, err := policy.Merge(append(docs, policy.Shipped()), policy.Context{Home: "/home/me"})
	if err != nil || len(r.Raised) != 1 || r.Raised[0].From.String() != "project 1234567:.caisson.yaml:2" {
		t.Errorf("%v, %v: what the copy leaves out still holds", r.Raised, err)
	}
	if docs, err := Project("r", nil, []byte("version: 1\nrequest: {env: [A]}\nchecks: [{name: a, run: [b]}]\nlimits: {pids: 9}\n")); err != nil || docs[0].Document.Request != nil || docs[0].Document.Checks != nil || docs[0].Document.Limits.Pids != 9 {
		t.Errorf("a copy that nobody committed: %v, %v", docs, err)
	}
	for name, c := range map[string][2][]byte{"none": {}, "the same": {base, base}, "removed": {base, nil}, "new": {nil, base}} {
		docs, err := Project("r", c[0], c[1])
		if err != nil || len(docs) > 1 {
			t.Errorf("%s: %v, %v", name, docs, err)
		}
	}
	if _, err := Project("r", []byte("\x00120000 x"), nil); task.CodeOf(err) != task.CodePolicy || task.HintOf(err) == "" {
		t.Errorf("a link: %v", err)
	}
	if _, err := Project("r", []byte("x: 1"), nil); task.CodeOf(err) != task.CodePolicy {
		t.Errorf("a broken file: %v", err)
	}
}
