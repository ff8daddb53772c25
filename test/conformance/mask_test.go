//go:build linux

package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestGitMask attacks the mask of a worktree task's git from inside: P09, A1,
// A3. The control does the same where nothing is masked.
func TestGitMask(t *testing.T) {
	attacks := map[string]string{
		"remove":        `rm -rf .git`,
		"rename":        `mv .git elsewhere`,
		"rename over":   `mkdir x && mv -T x .git`,
		"link over":     `ln -sfn /tmp .git`,
		"write":         `echo "gitdir: /tmp" >.git`,
		"hook":          `mkdir -p .git/hooks && echo x >.git/hooks/pre-commit`,
		"chmod":         `chmod 0777 .git && echo x >.git`,
		"unmount":       `umount .git || umount -l .git`,
		"user unmount":  `unshare -Urm sh -c 'umount .git && test -s .git'`,
		"mount over":    `mount -t tmpfs x .git && touch .git/config`,
		"bind over":     `mkdir -p /tmp/g && mount --bind /tmp/g .git`,
		"remount":       `mount -o remount,rw .git && echo x >.git`,
		"hard link":     `ln .git copy && echo x >copy`,
		"by descriptor": `exec 3<.git && echo x >/proc/self/fd/3`,
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		before := harness.TakePicture(t, repo)
		task := id.Open(t, repo, "--source", "worktree")
		folder := id.State + "/tasks/" + task + "/source"
		pointer, err := os.ReadFile(folder + "/.git")
		if err != nil {
			t.Fatal(err)
		}
		for name, cmd := range attacks {
			if r := id.Caisson(t, repo, "exec", task, "--", "sh", "-c", cmd); r.Exit == 0 {
				t.Errorf("%s worked: %v", name, r)
			}
			if b, err := os.ReadFile(folder + "/.git"); err != nil || string(b) != string(pointer) {
				t.Fatalf("%s: the pointer is %q, %v", name, b, err)
			}
		}
		// Nothing of the repository is reachable by its path either.
		for _, p := range []string{repo + "/.git/config", repo + "/.git/worktrees/caisson-" + task + "/HEAD", strings.TrimSpace(strings.TrimPrefix(string(pointer), "gitdir: ")) + "/gitdir"} {
			if r := id.Caisson(t, repo, "exec", task, "--", "cat", p); r.Exit == 0 {
				t.Errorf("%s is readable inside", p)
			}
		}
		if r := id.Caisson(t, repo, "exec", task, "--", "git", "status"); r.Exit != 128 || !strings.Contains(r.Stderr, "git runs on the host") || !strings.Contains(r.Stderr, "caisson diff "+task) {
			t.Errorf("git inside: %v", r)
		}
		// git elsewhere, and what needs no repository, works.
		id.OK(t, repo, "exec", task, "--", "sh", "-c", "git --version && git init -q /tmp/q && cd /tmp/q && git status >/dev/null && git init -q "+repo+"/own && cd "+repo+"/own && git status >/dev/null && rm -rf "+repo+"/own")
		if out := id.Git(t, folder, "--no-optional-locks", "status", "--porcelain"); strings.Contains(out, ".git") {
			t.Errorf("the user's git sees %q", out)
		}
		id.OK(t, repo, "close", "--discard", task)
		for _, d := range before.Changed(harness.TakePicture(t, repo), `\.git/refs/caisson`) {
			t.Error("the user's repository: " + d)
		}
		// The control: without a mask these work.
		plain := id.Open(t, repo)
		for _, name := range []string{"rename", "hook", "remove", "rename over", "link over"} {
			if r := id.Caisson(t, repo, "exec", plain, "--", "sh", "-c", attacks[name]); r.Exit != 0 {
				t.Errorf("%s does not work without the mask: %v", name, r)
			}
		}
		id.OK(t, repo, "close", "--discard", plain)
	})
}
