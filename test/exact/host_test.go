//go:build linux

package exact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// host is a picture of the machine outside of the test's own folders, one line a thing.
type host map[string]string

// takeHost looks at everything that a product like this one could leave or
// change: settings, temporary and runtime folders, kernel settings, mounts,
// processes, control groups, network, namespaces, keys, loop devices.
func takeHost(t *testing.T) host {
	t.Helper()
	h := host{}
	// Content too, of what is small and means something.
	deep := func(dir string) {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			i, err := d.Info()
			if err != nil {
				return nil
			}
			text := i.Mode().String()
			switch {
			case i.Mode().IsRegular() && i.Size() < 1<<20:
				b, _ := os.ReadFile(p)
				sum := sha256.Sum256(b)
				text += " " + hex.EncodeToString(sum[:8])
			case i.Mode()&fs.ModeSymlink != 0:
				to, _ := os.Readlink(p)
				text += " -> " + to
			}
			h["file "+p] = text
			return nil
		})
	}
	names := func(dir string) {
		list, _ := os.ReadDir(dir)
		for _, e := range list {
			uid := -1
			if i, err := e.Info(); err == nil {
				uid = int(i.Sys().(*syscall.Stat_t).Uid)
			}
			h["name "+filepath.Join(dir, e.Name())] = fmt.Sprint(e.Type(), " ", uid)
		}
	}
	deep("/etc")
	home, _ := os.UserHomeDir()
	for _, f := range []string{".gitconfig", ".config", ".ssh", ".gnupg", ".profile", ".bashrc"} {
		if home != "" {
			deep(home + "/" + f)
		}
	}
	for _, d := range []string{home, "/", "/tmp", "/var/tmp", "/dev", "/dev/shm", "/dev/mqueue", "/run", "/run/lock", "/run/user", "/run/netns", "/var/lib", "/var/run", "/home", "/root", "/mnt", "/srv", "/opt", "/usr/local/bin", os.TempDir()} {
		names(d)
	}
	for _, d := range []string{"/proc/sys/user", "/proc/sys/kernel/yama", "/proc/sys/kernel/keys"} {
		deep(d)
	}
	for _, f := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/fs/suid_dumpable", "/proc/sys/fs/protected_symlinks", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/vm/overcommit_memory", "/proc/net/route", "/proc/swaps", "/sys/fs/cgroup/cgroup.subtree_control"} {
		b, _ := os.ReadFile(f)
		h["setting "+f] = string(b)
	}
	for _, cfg := range []string{"--global", "--system"} {
		out, _ := exec.Command("git", "config", cfg, "--list").Output()
		h["git config "+cfg] = string(out)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range loops {
		b, _ := os.ReadFile(f)
		h["loop "+f] = string(b)
	}
	for _, x := range harness.TakeSnapshot() {
		h[x] = ""
	}
	return h
}

// ours reports whether a difference can only come from this test: the machine
// does other things meanwhile. CAISSON_TEST_ALONE=1 says that it does not.
func ours(id *harness.Identity, what string) bool {
	if os.Getenv("CAISSON_TEST_ALONE") != "" {
		return true
	}
	for _, quiet := range []string{"file /etc/", "setting ", "git config ", "name /dev/mqueue/", "name /run/netns/", "name /usr/local/bin/", "name /run/user/"} {
		if strings.HasPrefix(what, quiet) {
			return true
		}
	}
	return strings.Contains(what, id.Dir+"/") || strings.HasPrefix(what, "name ") && strings.Contains(strings.ToLower(what), "caisson") && !strings.Contains(what, "name /tmp/")
}

// TestHostIsAsBefore lives through tasks of every kind, with every end that a
// task can have; afterwards the machine, the user's settings and the checkout
// are what they were. Only refs and objects below refs/caisson/ are new.
func TestHostIsAsBefore(t *testing.T) {
	each(t, "", func(w *world) {
		t := w.t
		w.repo = w.Repo(t, map[string]string{"a.txt": "a\n", "d/b.txt": "b\n", ".gitignore": "*.o\n"})
		seed, folder := w.Dir+"/seed", w.Dir+"/folder"
		w.Write(t, seed+"/mod", "module cache\n", 0o644)
		w.Write(t, folder+"/data.csv", "1,2\n", 0o644)
		w.ok("ls") // the state is there before the picture
		before, repo, home := takeHost(t), harness.TakePicture(t, w.repo), harness.TakePicture(t, w.Home)
		other := map[string]harness.Picture{}
		for _, d := range []string{seed, folder, w.Tmp, w.XDG} {
			other[d] = harness.TakePicture(t, d)
		}
		ended := func(r harness.Result, want ...int) {
			t.Helper()
			if !slices.Contains(want, r.Exit) {
				t.Error(r)
			}
		}
		ended(w.do("run", "--keep", "never", "--", "sh", "-c", "echo x >>a.txt; git commit -qam x; echo y >y.o; echo u >u"), 0)
		ended(w.do("run", "--", "sh", "-c", "echo x >>a.txt; exit 3"), 3)
		ended(w.do("run", "--keep", "never", "--memory", "64m", "--timeout", "1s", "--", "sleep", "100"), 124, 125, 137, 143)
		ended(w.do("run", "--ro", seed, "--env", "K=V", "--keep", "never", "--", "cat", seed+"/mod"), 0)
		ended(w.do("run", "--source", "worktree", "--keep", "never", "--", "sh", "-c", "echo w >w.txt"), 0)
		ended(w.do("run", "--source", "copy", "--repo", folder, "--keep", "never", "--", "sh", "-c", "echo 3,4 >>data.csv"), 0)
		ended(w.do("run", "--source", "checkout", "--trust", "--timeout", "5m", "--", "cat", "a.txt"), 0)
		ended(w.do("run", "--dirty", "--history", "base", "--keep", "never", "--", "git", "log"), 0)
		ended(w.do("run", "--history", "none", "--grant", "userns", "--grant", "ptrace", "--keep", "never", "--", "true"), 0, 125)
		ended(w.do("run", "--need", "NET=9", "--", "true"), 125)
		ended(w.do("run", "--base", "nowhere", "--", "true"), 125)
		long := w.open("--name", "long")
		w.in(long, "(sleep 1000 &) ; mkfifo f; echo more >>d/b.txt; git add d; git commit -qm more; echo left >left.o")
		for _, args := range [][]string{{"diff", long}, {"show", long}, {"log", long}, {"branch", long, "got"}, {"export", "--dir", w.Tmp + "/out", long}, {"export", "--bundle", "-o", w.Tmp + "/b", long}, {"apply", "--dry-run", long}, {"plan"}, {"doctor"}} {
			r := w.do(args...)
			if args[0] != "doctor" {
				ended(r, 0, 3)
			}
		}
		ended(w.do("close", "--keep", "always", long), 7)
		w.ok("resume", long)
		w.ok("keep", "--for", "1h", "--reason", "test", long)
		ended(w.do("close", long), 7)
		killed := w.open()
		w.in(killed, "echo killed >k; (sleep 1000 &)")
		if err := syscall.Kill(harness.Decode[struct{ Supervisor struct{ PID int } }](t, w.ok("show", "--json", killed)).Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
		defer cancel()
		for w.do("reap").Exit == 1 || harness.Decode[struct{ State string }](t, w.ok("show", "--json", killed)).State == "ready" {
			if ctx.Err() != nil {
				t.Fatal("it is not reaped")
			}
			time.Sleep(50 * time.Millisecond)
		}
		w.CloseAll(t)
		w.sh(w.repo, "git update-ref -d refs/heads/got; rm -rf '"+w.Tmp+"/out' '"+w.Tmp+"/b'")

		var bad []string
		after := takeHost(t)
		for k, v := range before {
			if now, ok := after[k]; !ok && ours(w.Identity, k) {
				bad = append(bad, "gone: "+k)
			} else if ok && now != v && ours(w.Identity, k) {
				bad = append(bad, fmt.Sprintf("changed: %s: %.300q, now %.300q", k, v, now))
			}
		}
		for k, v := range after {
			if _, ok := before[k]; !ok && ours(w.Identity, k) {
				bad = append(bad, "new: "+k+" "+v)
			}
		}
		for _, d := range repo.Changed(harness.TakePicture(t, w.repo), harness.Results, `\.git/(logs/)?refs/(heads|caisson)(/.*)?`, `\.git/(packed-refs|index|worktrees|logs(/refs)?)`) {
			bad = append(bad, "the repository: "+d)
		}
		for _, d := range home.Changed(harness.TakePicture(t, w.Home)) {
			bad = append(bad, "home: "+d)
		}
		for dir, p := range other {
			for _, d := range p.Changed(harness.TakePicture(t, dir), `\.`) {
				bad = append(bad, dir+": "+d)
			}
		}
		slices.Sort(bad)
		for _, b := range bad {
			t.Error(b)
		}
		t.Logf("%d things compared", len(before))
		if got := strings.Fields(w.git("for-each-ref", "--format=%(refname)")); slices.ContainsFunc(got, func(r string) bool { return r != "refs/heads/main" && !strings.HasPrefix(r, "refs/caisson/") }) {
			t.Errorf("refs: %q", got)
		}
	})
}
