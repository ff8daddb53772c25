//go:build linux

package engines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// owners expects that a change is made inside and brought out, and that every file of
// the task's belongs to its owner, before and after.
func owners(t *testing.T, e *harness.Engine, id *harness.Identity) {
	t.Helper()
	repo := id.Repo(t, map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
	open := id.Open(t, repo, "--backend", e.Backend)
	if r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", "cat a.txt && echo new >new.txt && echo more >>dir/b.txt && mkdir sub && touch sub/x && git add -A && git commit -qm inside && id -un && ! grep -q '^CapEff:.*[1-9a-f]' /proc/self/status"); r.Exit != 0 || !strings.HasPrefix(r.Stdout, "one\n") {
		t.Fatalf("inside: %v", r)
	}
	v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
	err := filepath.Walk(filepath.Join(v.TaskDir, "source"), func(p string, st os.FileInfo, err error) error {
		if err == nil && int(ownerOf(st)) != id.UID {
			t.Errorf("%s belongs to %d, not to %d", p, ownerOf(st), id.UID)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if out := id.OK(t, repo, "diff", "--name-status", open); !strings.Contains(out, "new.txt") || !strings.Contains(out, "dir/b.txt") {
		t.Errorf("the change: %q", out)
	}
	id.OK(t, repo, "apply", "--allow-risky", open)
	if st, err := os.Stat(repo + "/new.txt"); err != nil || int(ownerOf(st)) != id.UID {
		t.Errorf("applied: %v", err)
	}
	id.Caisson(t, repo, "close", "--discard", open)
	nothingLeft(t, e, id)
}

// A user's own Docker: commands are user 0 of its namespace, who is that user.
func TestRootlessDocker(t *testing.T) {
	e, uid := harness.RootlessDocker(t)
	owners(t, e, identity(t, e, "rootless", uid))
}

// An engine that remaps user ids: the task's files are their owner's all the same,
// because our containers, and they alone, have the machine's ids.
func TestRemapped(t *testing.T) {
	e := harness.Remapped(t)
	owners(t, e, identity(t, e, "user", harness.UserID))
	owners(t, e, identity(t, e, "root", 0))
}
