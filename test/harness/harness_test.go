//go:build linux

package harness

import (
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestLeftSees shows that an open task is seen, so that an empty list says something.
func TestLeftSees(t *testing.T) {
	Each(t, func(t *testing.T, id *Identity) {
		before := TakeSnapshot()
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		task := id.Open(t, repo)
		if out := id.OK(t, repo, "exec", task, "--", "cat", "a.txt"); out != "a\n" {
			t.Errorf("got %q", out)
		}
		left := strings.Join(id.Left(), "\n")
		for _, want := range []string{"process ", "runtime folder"} {
			if !strings.Contains(left, want) {
				t.Errorf("%q is not seen:\n%s", want, left)
			}
		}
		if id.UID == 0 && !strings.Contains(left, "cgroup ") {
			t.Errorf("no control group is seen:\n%s", left)
		}
		if len(before.New(TakeSnapshot())) == 0 {
			t.Error("the whole host looks the same")
		}
	})
}
