//go:build linux

package conformance

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// sandboxes are nested sandboxes that people's programs and tests make.
var sandboxes = map[string]struct{ prog, script string }{
	"unshare":    {"unshare", `test "$(unshare -Urmpf --mount-proc sh -c 'echo $$')" = 1`},
	"bubblewrap": {"bwrap", `test "$(bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp sh -c 'echo $PPID; touch /tmp/x')" = 1`},
	"caisson":    {"caisson", `caisson run --source copy --repo "$(mktemp -d)" --keep never -- sh -c 'mkdir a b; >a/f; ln a/f b/g'`},
}

// TestNestedSandboxes is P25, P26 and P43 by way of real programs: refused
// without --grant userns, which is the control, and working with it; what the
// grant opens stands in plan, show and evidence.
func TestNestedSandboxes(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		for _, prog := range []string{"unshare", "sh"} {
			if _, err := exec.LookPath(prog); err != nil {
				t.Skipf("no %s here to make a nested sandbox with", prog)
			}
		}
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		tool := id.Dir + "/tool" // caisson itself, as a toolchain would be
		id.Mkdir(t, tool)
		data, err := os.ReadFile(harness.Bin())
		if err != nil {
			t.Fatal(err)
		}
		id.Write(t, tool+"/caisson", string(data), 0o755)
		harness.NeedsGrant(t, "userns")
		plain, granted := id.Open(t, repo, "--ro", tool+":/opt/tool"), id.Open(t, repo, "--ro", tool+":/opt/tool", "--grant", "userns")
		for name, s := range sandboxes {
			if _, err := exec.LookPath(s.prog); err != nil && s.prog != "caisson" {
				t.Logf("%s is not tried: not installed", s.prog)
				continue
			}
			script := "export PATH=/opt/tool:$PATH; " + s.script
			if r := id.Caisson(t, repo, "exec", plain, "--", "sh", "-c", script); r.Exit == 0 {
				t.Errorf("%s works without the grant: %v", name, r)
			}
			if r := id.Caisson(t, repo, "exec", granted, "--", "sh", "-c", script); r.Exit != 0 {
				t.Errorf("%s does not work with the grant: %v", name, r)
			}
		}
		for _, cmd := range [][]string{{"show", granted}, {"log", granted}} {
			if out := id.OK(t, repo, cmd...); !strings.Contains(out, "userns") {
				t.Errorf("%q does not name the grant:\n%s", cmd, out)
			}
		}
		if out := id.OK(t, repo, "show", granted); strings.Contains(out, "Landlock (ABI") {
			t.Errorf("show says that a task with the grant has Landlock:\n%s", out)
		}
		if out := id.OK(t, repo, "doctor"); !strings.Contains(out, "✓  grant-userns") {
			t.Errorf("doctor does not say that the grant can be given:\n%s", out)
		}
		plan := id.OK(t, repo, "plan", "--grant", "userns", "--", "true")
		for _, want := range []string{"grant-userns", "grant-userns-mounts", "no Landlock"} {
			if !strings.Contains(plan, want) {
				t.Errorf("plan lacks the finding %s:\n%s", want, plan)
			}
		}
	})
}

// uncover renames what a mount covers, from a mount namespace that the mount
// is not in.
const uncover = `unshare -Urm sh -c 'r=/var/tmp; mount -t tmpfs x $r && mkdir $r/usr $r/old $r/proc && mount --rbind /usr $r/usr && mount --rbind /proc $r/proc &&
for d in bin lib lib64; do ln -s usr/$d $r/$d; done; cd "$0" && /usr/sbin/pivot_root $r $r/old && umount -l /old && mv "$1" moved' "$PWD" `

// TestUsernsGrantUncoversNothing: with namespaces of its own a task could take
// the cover off git's pointer in a worktree (A1, A3), so the two are refused
// together. The control takes a cover off that hides nothing, by the same means.
func TestUsernsGrantUncoversNothing(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		for _, flags := range [][]string{{"--source", "worktree"}, {"--source", "checkout", "--trust"}} {
			r := id.Caisson(t, repo, append([]string{"run", "--json", "--grant", "userns"}, append(flags, "--", "touch", repo+"/ran")...)...)
			if r.Exit != 125 || code(r) != "unsupported" || !strings.Contains(r.Stderr, "--source clone") {
				t.Errorf("%q: %v", flags, r)
			}
		}
		if _, err := os.Lstat(repo + "/ran"); err == nil {
			t.Error("the command was executed")
		}
		if refs := id.Git(t, repo, "for-each-ref", "refs/caisson"); refs != "" {
			t.Errorf("left in the repository: %s", refs)
		}
		if _, err := os.Stat("/usr/sbin/pivot_root"); err != nil {
			t.Logf("no control: %v", err)
			return
		}
		seed := id.Dir + "/seed"
		id.Mkdir(t, seed)
		id.Write(t, seed+"/f", "seed\n", 0o644)
		harness.NeedsGrant(t, "userns")
		task := id.Open(t, repo, "--grant", "userns", "--ro", seed+":"+repo+"/covered")
		id.OK(t, repo, "exec", task, "--", "grep", "-q", "seed", "covered/f")
		if r := id.Caisson(t, repo, "exec", task, "--", "sh", "-c", uncover+"covered && test ! -e covered"); r.Exit != 0 {
			t.Errorf("the control does not uncover anything: %v", r)
		}
	})
}
