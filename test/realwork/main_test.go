//go:build linux

package realwork

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) { os.Exit(mainCode(m)) }

func mainCode(m *testing.M) int {
	defer removeSeed()
	return harness.Main(m)
}

// long says that heavy tests run full size.
func long() bool { return os.Getenv("CAISSON_TEST_FULL") != "" }

// heavy skips a test under -short.
func heavy(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles real projects: not under -short")
	}
}

// with returns a copy of id whose environment has these variables too; "K"
// without a value takes one away.
func with(id *harness.Identity, vars ...string) *harness.Identity {
	c := *id
	c.Env = nil
	names := map[string]bool{}
	for _, kv := range vars {
		k, _, _ := strings.Cut(kv, "=")
		names[k] = true
	}
	for _, kv := range id.Env {
		if k, _, _ := strings.Cut(kv, "="); !names[k] {
			c.Env = append(c.Env, kv)
		}
	}
	for _, kv := range vars {
		if strings.Contains(kv, "=") {
			c.Env = append(c.Env, kv)
		}
	}
	return &c
}

// onPath puts a folder in front of PATH.
func onPath(id *harness.Identity, dir string) *harness.Identity {
	for _, kv := range id.Env {
		if p, ok := strings.CutPrefix(kv, "PATH="); ok {
			return with(id, "PATH="+dir+":"+p)
		}
	}
	return with(id, "PATH="+dir)
}

// needs skips unless the identity has these programs outside.
func needs(t *testing.T, id *harness.Identity, progs ...string) {
	t.Helper()
	for _, p := range progs {
		if r := harness.Run(t, id.Command(context.Background(), id.Dir, "/bin/sh", "-c", `command -v "$0"`, p)); r.Exit != 0 {
			t.Skipf("%s has no %s on this machine", id.Name, p)
		}
	}
}

// sh runs a shell script in a task of its own and fails unless it succeeds.
func sh(t *testing.T, id *harness.Identity, repo, script string, flags ...string) string {
	t.Helper()
	return id.OK(t, repo, append(append([]string{"run"}, flags...), "--", "sh", "-ec", script)...)
}

// in runs a shell script in an open task and fails unless it succeeds.
func in(t *testing.T, id *harness.Identity, task, script string) string {
	t.Helper()
	return id.OK(t, id.Dir, "exec", task, "--", "sh", "-ec", script)
}

// feed runs the product with bytes on standard input; stdin nil is none at all.
func feed(t *testing.T, id *harness.Identity, dir string, stdin io.Reader, args ...string) harness.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := id.Command(ctx, dir, harness.Bin(), args...)
	cmd.Stdin = stdin
	r := harness.Run(t, cmd)
	if ctx.Err() != nil {
		t.Fatalf("did not end within %s: %v", harness.Limit, r)
	}
	return r
}

// status checks an exit status.
func status(t *testing.T, r harness.Result, want int) {
	t.Helper()
	if r.Exit != want {
		t.Errorf("exit %d, want %d: %v", r.Exit, want, r)
	}
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, clip(got), clip(want))
	}
}

func contains(t *testing.T, what, got string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(got, w) {
			t.Errorf("%s: no %q in\n%s", what, w, clip(got))
		}
	}
}

func clip(s string) string {
	if len(s) > 3000 {
		return s[:1500] + " … " + s[len(s)-1500:]
	}
	return s
}

// decode reads a JSON document.
func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, clip(text))
	}
	return v
}

// show returns what `show --json` says of a task.
func show(t *testing.T, id *harness.Identity, task string) view {
	t.Helper()
	return decode[view](t, id.OK(t, id.Dir, "show", "--json", task))
}

// view is what these tests read of a task.
type view struct {
	ID, State, Name string
	Trust           bool
	Unattended      bool
	Command         []string
	Exit            *int
	Source          struct {
		Repo, Base, Branch, Target, History string
		Shared                              bool
	}
	Levels []struct {
		Axis                       string
		Required, Promised, Proved int
	}
	Findings []struct{ ID, Axis, Text, Location string }
	Grants   []struct{ Kind, Value, Source string }
	Tools    []struct{ Path string }
	Results  []struct{ Kind, Name, Object string }
}

func (v *view) finding(id string) bool {
	return slices.ContainsFunc(v.Findings, func(f struct{ ID, Axis, Text, Location string }) bool { return f.ID == id })
}

// tree is the content of a folder: one line an entry.
type tree map[string]string

// treeOf reads a folder byte for byte, with modes and times of change.
func treeOf(t *testing.T, dir string) tree {
	t.Helper()
	out := tree{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		line := fi.Mode().String()
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + to
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", fi.Size(), sha256.Sum256(data))
			if !strings.Contains("/"+rel, "/.git/objects/") { // git marks objects that it uses again as fresh
				line += " " + fi.ModTime().String()
			}
		}
		out[rel] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same fails unless the repository in dir is what it was when the picture was
// taken. What caisson may add: objects, and refs of its own. The folder of those
// may go when it is empty, as it is after git packed them.
func (before tree) same(t *testing.T, dir string) {
	t.Helper()
	after := treeOf(t, dir)
	said := 0
	errorf := func(format string, args ...any) {
		if said++; said <= 5 {
			t.Errorf(format, args...)
		}
	}
	for p, line := range before {
		if after[p] == "" && strings.HasPrefix(p+"/", ".git/refs/caisson/") && strings.HasPrefix(line, "d") {
			continue
		}
		if after[p] != line {
			errorf("the user's repository changed: %s was %q, is %q", p, line, after[p])
		}
	}
	for p := range after {
		if _, had := before[p]; had {
			continue
		}
		_, inGit, found := strings.Cut("/"+filepath.ToSlash(p), "/.git/")
		if found && (inGit == "refs/caisson" || strings.HasPrefix(inGit, "refs/caisson/") || strings.HasPrefix(inGit, "objects/")) {
			continue
		}
		errorf("new in the user's repository: %s (%s)", p, after[p])
	}
}

// on runs f with a repository of id and checks that it did not change.
func on(t *testing.T, id *harness.Identity, repo string, f func()) {
	t.Helper()
	before := treeOf(t, repo)
	f()
	before.same(t, repo)
}

var serial atomic.Int32

// copyTree copies a folder of files so that it belongs to id and can be written.
func copyTree(t *testing.T, id *harness.Identity, from, to string, want func(rel string) bool) {
	t.Helper()
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(from, p)
		if want != nil && !want(rel) {
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		id.Write(t, filepath.Join(to, rel), string(data), fi.Mode().Perm()|0o600)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// project makes a repository of a published module: a first commit without
// tests, a second one with them, a tag, a branch that is merged and one that is not.
func project(t *testing.T, id *harness.Identity, module string) string {
	t.Helper()
	src := moduleDir(t, module)
	repo := filepath.Join(id.Dir, fmt.Sprintf("%s%d", filepath.Base(module), serial.Add(1)))
	id.Mkdir(t, repo)
	id.Git(t, repo, "init", "-q", "-b", "main")
	commit := func(msg string) {
		id.Git(t, repo, "add", "-A", "-f")
		id.Git(t, repo, "commit", "-q", "-m", msg)
	}
	isTest := func(rel string) bool { return strings.HasSuffix(rel, "_test.go") }
	copyTree(t, id, src, repo, func(rel string) bool { return !isTest(rel) })
	commit("Import the sources")
	id.Git(t, repo, "tag", "-a", "v1.0.0", "-m", "first")
	copyTree(t, id, src, repo, isTest)
	commit("Add the tests")
	id.Git(t, repo, "switch", "-q", "-c", "notes")
	id.Write(t, filepath.Join(repo, "NOTES.md"), "Notes.\n", 0o644)
	commit("Take notes")
	id.Git(t, repo, "switch", "-q", "main")
	id.Git(t, repo, "merge", "-q", "--no-ff", "-m", "Merge the notes", "notes")
	id.Git(t, repo, "switch", "-q", "-c", "feature/odd#name")
	id.Write(t, filepath.Join(repo, "feature.go"), "package "+filepath.Base(module)+"\n\n// FeatureMarker is on a branch only.\nconst FeatureMarker = 1\n", 0o644)
	commit("A feature")
	id.Git(t, repo, "switch", "-q", "main")
	id.Git(t, repo, "tag", "light")
	return repo
}

// moduleDir returns the folder of a module in the module cache.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skipf("%s is not in the module cache: run go mod download once with a network (%v)", module, exitText(err))
	}
	return dir
}

func exitText(err error) string {
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		return string(bytes.TrimSpace(ee.Stderr))
	}
	return fmt.Sprint(err)
}
