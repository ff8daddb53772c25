package source

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// What of the checkout the task does not have is told, and looking at it
// neither runs what the repository configures nor changes anything.
func TestUncommitted(t *testing.T) {
	ctx := context.Background()
	home := t.TempDir()
	dir := filepath.Join(t.TempDir(), "repo")
	canary := filepath.Join(t.TempDir(), "canary")
	sh := func(script string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CANARY=" + canary, "GIT_CONFIG_NOSYSTEM=1"}
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sh(`git init -q . && git config user.name a && git config user.email a@b
printf one >one; printf two >two; printf 'ig\n' >.gitignore; printf 'two filter=x diff=x\n' >.gitattributes; git add . && git commit -qm base`)
	look := func() string {
		t.Helper()
		r, err := Inspect(ctx, Options{Dir: dir, Env: []string{"HOME=" + home}})
		if err != nil {
			t.Fatal(err)
		}
		ws := Workspace{Task: task.NewID(), Dir: t.TempDir(), Token: "abcdefghijklmnop"}
		if _, err := Prepare(ctx, r, ws, Inside{ObjectsDir: "/run/boundary/objects", UID: 1000, GID: 1000}); err != nil {
			t.Fatal(err)
		}
		text, err := Uncommitted(ctx, r, ws)
		if err != nil {
			t.Fatal(err)
		}
		if err := Unpin(ctx, r.Ref.CommonDir, ws.Task); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(ws.shadow(), "look.index")); err == nil {
			t.Error("the copy of the index was left behind")
		}
		return text
	}
	if got := look(); got != "" {
		t.Errorf("a clean checkout: %q", got)
	}
	// Only the times differ: a copied or restored checkout is not a changed one.
	if err := os.Chtimes(filepath.Join(dir, "one"), time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := look(); got != "" {
		t.Errorf("new times alone: %q", got)
	}
	sh(`git config filter.x.clean 'sh -c "touch $CANARY; cat"'; git config diff.x.textconv 'touch $CANARY; cat'; git config core.fsmonitor 'touch $CANARY; false'
printf changed >two; printf x >ig; printf s >staged; git -c core.fsmonitor=false -c filter.x.clean=cat add staged; printf 'u' >'un tracked'; rm -f "$CANARY"`)
	before, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
	if err != nil {
		t.Fatal(err)
	}
	got := look()
	for _, want := range []string{"3 uncommitted files", "staged", "two", "un tracked"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not name %s", got, want)
		}
	}
	if strings.Contains(got, "ig,") {
		t.Errorf("%q names an ignored file", got)
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("a program that the repository configures was run")
	}
	after, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
	if err != nil || string(after) != string(before) {
		t.Errorf("the user's index was changed (%v)", err)
	}
	sh(`git status >/dev/null 2>&1 || true`)
	if _, err := os.Stat(canary); err != nil {
		t.Error("control: plain git status did not run the planted program either")
	}
}
