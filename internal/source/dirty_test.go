package source

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestUncommittedPlain compares the quick look with the thorough one in every state
// that a checkout can have.
func TestUncommittedPlain(t *testing.T) {
	ctx := context.Background()
	const begin = `git init -q . && git config user.name a && git config user.email a@b && git config core.splitIndex false
for f in a b c d; do echo $f >$f; done; mkdir -p dir/sub; echo x >dir/x; echo y >dir/sub/y; ln -s a link; echo '*.o' >.gitignore; git add . && git commit -qm base; `
	for name, c := range map[string]struct {
		script string
		any    bool // the thorough one is needed
	}{
		"clean":           {script: ``},
		"changed":         {script: `echo more >>a`},
		"same size":       {script: `echo z >a`},
		"deleted":         {script: `rm a dir/sub/y`},
		"staged":          {script: `echo more >>b; git add b`},
		"staged new":      {script: `echo n >n; git add n`},
		"staged away":     {script: `git rm -q b`},
		"only in index":   {script: `git rm -q --cached b`},
		"staged and back": {script: `echo more >b; git add b; echo b >b`},
		"moved":           {script: `git mv b moved; mv c other`},
		"mode":            {script: `chmod +x a; chmod +x b; git add b`},
		"to link":         {script: `rm a; ln -s b a; rm link; echo l >link`},
		"to folder":       {script: `rm a; mkdir a; echo i >a/i; git rm -q --cached c; rm c; mkdir c; echo j >c/j; git add c`},
		"folder to file":  {script: `rm -r dir; echo f >dir`},
		"untracked":       {script: `echo u >u; mkdir -p new/deep empty; echo v >new/deep/v; echo o >x.o; echo w >dir/sub/w`},
		"touched":         {script: `touch -d '2001-01-01' a b; chmod 600 c`},
		"odd names":       {script: `echo 1 >"$(printf 'l\nf')"; echo 2 >'sp ace'; echo 3 >"$(printf 'b\377d')"; git add 'sp ace'`},
		"all staged away": {script: `git rm -rq --cached .`},
		"two commits":     {script: `echo m >>a; git commit -qam two; git reset -q --soft HEAD~1`},
		"no index":        {script: `rm .git/index; git read-tree --empty`},
		"conflict":        {any: true, script: `git checkout -qb o; echo o >a; git commit -qam o; git checkout -q -; echo p >a; git commit -qam p; git merge -q o >/dev/null || true`},
		"promised":        {any: true, script: `echo n >n; git add -N n`},
		"assumed":         {any: true, script: `git update-index --assume-unchanged a; echo z >>a`},
		"skipped":         {any: true, script: `git update-index --skip-worktree a; rm a`},
		"gitlink":         {any: true, script: `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm link`},
		"version 4":       {any: true, script: `git update-index --index-version 4`},
		"split":           {any: true, script: `git config --unset core.splitIndex; git update-index --split-index; echo q >>a`},
		"with caches":     {script: `git config core.untrackedCache true; git update-index --untracked-cache; git status >/dev/null; git config --unset core.untrackedCache; echo q >>a; echo u >u`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, dir := t.TempDir(), filepath.Join(t.TempDir(), "repo")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", "-ec", begin+c.script)
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1"}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			r, err := Inspect(ctx, Options{Dir: dir, Env: []string{"HOME=" + home}})
			if err != nil {
				t.Fatal(err)
			}
			ws := Workspace{Task: task.NewID(), Dir: t.TempDir(), Token: "abcdefghijklmnop"}
			if _, err := Prepare(ctx, r, ws, Inside{ObjectsDir: "/run/boundary/objects", UID: 1000, GID: 1000}); err != nil {
				t.Fatal(err)
			}
			index := filepath.Join(ws.shadow(), "look.index")
			if ok, err := copyIndex(filepath.Join(r.gitDir, "index"), index); err != nil || !ok {
				t.Fatal(ok, err)
			}
			run := r.lookWith(ctx, ws, index)
			sorted := func(names []string) []string { slices.Sort(names); return slices.Compact(names) }
			before, err := os.ReadFile(index)
			if err != nil {
				t.Fatal(err)
			}
			quick, plain, err := uncommittedPlain(r, ws, index, run)
			if err != nil || plain == c.any {
				t.Fatalf("plain is %v: %v", plain, err)
			}
			if after, err := os.ReadFile(index); err != nil || string(after) != string(before) {
				t.Error("the quick look writes")
			}
			if c.any {
				return
			}
			all, err := uncommittedAny(r, run)
			if err != nil {
				t.Fatal(err)
			}
			if q, a := sorted(quick), sorted(all); !slices.Equal(q, a) {
				t.Errorf("%q, thoroughly %q", q, a)
			}
		})
	}
}
