//go:build linux

package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// view is what the hostile program saw.
type view struct {
	Self, Parent int
	Processes    []struct {
		Pid                                           int
		Comm, State, Cmdline, Environ, Exe, Root, Cwd string
		Errors, Status, Fds                           map[string]string
	}
	Mounts  []string
	Dev     map[string]string
	Env     []string
	Unix    []string
	Links   []string
	Routes  string
	Domain  string
	Sysvipc []string
	Umask   int
}

// TestInventory compares everything that can be seen inside with the exclusive
// list of what is documented: mounts, devices, environment, processes and their
// descriptors, interfaces.
func TestInventory(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		s := plant(t, id, repo)
		task := id.Open(t, repo)
		var v view
		r := execAttacker(t, id, repo, task, "inventory")
		if err := json.Unmarshal([]byte(r.Stdout), &v); err != nil {
			t.Fatal(err, r)
		}
		t.Run("mounts", func(t *testing.T) { mounts(t, id, repo, v.Mounts) })
		t.Run("devices P32", func(t *testing.T) { devs(t, v.Dev) })
		t.Run("environment", func(t *testing.T) {
			environment(t, id, task, s.Secret, v)
			var out view // control: outside the secrets are there
			if err := json.Unmarshal([]byte(outside(id, id.Home, "inventory").Stdout), &out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(out.Env, "\n"), s.Secret) {
				t.Error("the control does not see the planted variables")
			}
		})
		t.Run("processes P12 P27 P31", func(t *testing.T) { procs(t, id, v) })
		t.Run("network P17", func(t *testing.T) {
			for _, l := range v.Links[min(2, len(v.Links)):] {
				if !strings.HasPrefix(strings.TrimSpace(l), "lo:") {
					t.Errorf("an interface: %s", l)
				}
			}
			for _, l := range v.Unix[1:] { // without a name: the pairs of the processes above
				if len(strings.Fields(l)) > 7 {
					t.Errorf("a Unix socket with a name: %s", l)
				}
			}
			for l := range strings.Lines(v.Routes) {
				if f := strings.Fields(l); len(f) > 0 && f[0] != "Iface" && f[len(f)-1] != "lo" {
					t.Errorf("a route: %s", l)
				}
			}
			if v.Domain != "(none)" && v.Domain != "" {
				t.Errorf("the domain name %q", v.Domain)
			}
			if len(v.Sysvipc) > 0 {
				t.Errorf("System V objects: %q", v.Sysvipc)
			}
		})
		t.Run("namespaces", func(t *testing.T) { namespaces(t, id, repo, task) })
	})
}

func mounts(t *testing.T, id *harness.Identity, repo string, table []string) {
	writable := []string{"/tmp", "/var/tmp", id.Home, "/dev/shm", "/dev/mqueue", "/dev/pts", "/proc", repo, "/run/boundary/out",
		"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}
	device := []string{"/dev", "/dev/pts", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}
	readOnly := []string{"/", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/dev", "/run/boundary/objects/0", "/etc/localtime"}
	// What an engine adds of its own: /dev is written by root there, and /sys is shown,
	// read-only. Its mounts leave set-id programs and devices to no_new_privs and to
	// the device rules of its groups.
	engine := harness.Backend() != "linux"
	if engine {
		writable = append(writable, "/dev", "/dev/console", "/sys/fs/cgroup")
		for _, l := range table { // covers of the engine's: an empty file of its /dev
			if f := strings.Fields(l); len(f) > 4 && f[3] == "/null" && strings.HasPrefix(f[4], "/proc/") {
				writable = append(writable, f[4])
			}
		}
	}
	seen := map[string]bool{}
	for _, line := range table {
		f := strings.Fields(line)
		if len(f) < 10 {
			t.Fatalf("mountinfo line %q", line)
		}
		at, opts := f[4], strings.Split(f[5], ",")
		seen[at] = true
		dash := slices.Index(f, "-")
		if dash != 6 && !(engine && strings.HasPrefix(f[6], "master:")) {
			t.Errorf("%s takes part in mount propagation: %q", at, f[6:dash])
		}
		rw := slices.Contains(opts, "rw")
		switch {
		case rw && !slices.Contains(writable, at):
			t.Errorf("writable and not documented: %s", line)
		case !rw && !slices.Contains(readOnly, at) && !strings.HasPrefix(at, "/etc/") && !strings.HasPrefix(at, "/proc/") &&
			!(engine && (at == "/etc" || at == "/run" || at == "/sys" || strings.HasPrefix(at, "/sys/") || strings.HasPrefix(at, "/run/"))):
			t.Errorf("visible and not documented: %s", line)
		}
		if engine {
			continue
		}
		if !slices.Contains(opts, "nosuid") {
			t.Errorf("set-id programs work on %s", line)
		}
		if !slices.Contains(opts, "nodev") && !slices.Contains(device, at) {
			t.Errorf("devices work on %s", line)
		}
		if kind := f[dash+1]; slices.Contains([]string{"sysfs", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf", "binfmt_misc", "configfs", "fusectl", "pstore", "efivarfs", "overlay", "nsfs"}, kind) {
			t.Errorf("a file system of the kernel's: %s", line)
		}
	}
	for _, want := range []string{"/", "/usr", "/tmp", id.Home, repo, "/proc", "/dev", "/proc/sys", "/run/boundary/objects/0"} {
		if want == "/proc/sys" && harness.Backend() == "gvisor" {
			continue // it is of a kernel of the boundary's own
		}
		if !seen[want] {
			t.Errorf("%s is not in the mount table", want)
		}
	}
}

func devs(t *testing.T, dev map[string]string) {
	want := map[string]string{
		"/dev/null": "0020000 1:3", "/dev/zero": "0020000 1:5", "/dev/full": "0020000 1:7", "/dev/random": "0020000 1:8", "/dev/urandom": "0020000 1:9", "/dev/tty": "0020000 5:0",
		"/dev/fd": "0120000 /proc/self/fd", "/dev/stdin": "0120000 /proc/self/fd/0", "/dev/stdout": "0120000 /proc/self/fd/1", "/dev/stderr": "0120000 /proc/self/fd/2",
		"/dev/ptmx": "0120000 pts/ptmx", "/dev/pts": "040000", "/dev/pts/ptmx": "0020000 5:2", "/dev/shm": "040000", "/dev/mqueue": "040000",
	}
	if harness.Backend() != "linux" {
		if dev["/dev/core"] != "" {
			want["/dev/core"] = "0120000 /proc/kcore" // which is covered
		}
		delete(want, "/dev/pts/ptmx")
		delete(dev, "/dev/pts/ptmx")
	}
	for p, k := range dev {
		if own := p == "/dev/fuse" || p == "/dev/net" || p == "/dev/net/tun" || strings.HasPrefix(p+"/", "/dev/char/"); own && harness.Backend() == "gvisor" {
			continue // served by the boundary's own kernel
		}
		if w, ok := want[p]; !ok {
			t.Errorf("not documented: %s %s", p, k)
		} else if strings.TrimLeft(w, "0") != strings.TrimLeft(k, "0") {
			t.Errorf("%s is %s, want %s", p, k, w)
		}
	}
	for p := range want {
		if dev[p] == "" {
			t.Errorf("%s is missing", p)
		}
	}
}

func environment(t *testing.T, id *harness.Identity, task, secret string, v view) {
	want := []string{"CAISSON_TASK=" + task, "HOME=" + id.Home, "LANG=C.UTF-8", "LOGNAME=", "PATH=/usr/local/bin:/usr/bin:/bin", "SHELL=/bin/sh", "TERM=xterm", "TMPDIR=/tmp", "USER="}
	slices.Sort(v.Env)
	if len(v.Env) != len(want) {
		t.Errorf("%d variables inside, want %d: %q", len(v.Env), len(want), v.Env)
	}
	for i, kv := range v.Env {
		if i < len(want) && !strings.HasPrefix(kv, want[i]) {
			t.Errorf("variable %q, want %q", kv, want[i])
		}
	}
	for _, p := range v.Processes {
		if strings.Contains(p.Environ, secret) || strings.Contains(p.Cmdline, secret) {
			t.Errorf("process %d knows the caller's secret", p.Pid)
		}
		for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "CAISSON_STATE_DIR", "XDG_RUNTIME_DIR"} {
			if strings.Contains(p.Environ, name+"=") {
				t.Errorf("process %d has the variable %s", p.Pid, name)
			}
		}
	}
}

func procs(t *testing.T, id *harness.Identity, v view) {
	user := fmt.Sprintf("%[1]d\t%[1]d\t%[1]d\t%[1]d", id.Inside())
	var pids []string
	for _, p := range v.Processes {
		pids = append(pids, fmt.Sprintf("%d %s", p.Pid, p.Comm))
		if harness.Backend() != "linux" && p.Pid == 1 {
			// The worker: another user than the tools, and what it needs to be so.
			if u := strings.Fields(p.Status["Uid"]); len(u) != 4 || u[0] == strconv.Itoa(id.Inside()) || strings.TrimSpace(p.Status["CapEff"]) != "00000000000000e0" || strings.TrimSpace(p.Status["CapBnd"]) != zeros {
				t.Errorf("the worker has the users %q and the capabilities %s, %s", u, p.Status["CapEff"], p.Status["CapBnd"])
			}
			continue
		}
		want := map[string]string{"Uid": user, "Gid": user, "Groups": "", "NoNewPrivs": "1", "Seccomp": "2", "TracerPid": "0",
			"CapInh": zeros, "CapPrm": zeros, "CapEff": zeros, "CapBnd": zeros, "CapAmb": zeros}
		if w := v.Processes[0]; harness.Backend() != "linux" && w.Pid == 1 && p.Pid != v.Self && p.Status["Uid"] == w.Status["Uid"] {
			// A guardian that was started a moment ago has not shed what is the worker's. It
			// has heard of no call yet, and shows as little of itself.
			want = map[string]string{"CapBnd": zeros}
		}
		for k, want := range want {
			if got := strings.TrimSpace(p.Status[k]); got != want {
				t.Errorf("process %d: %s is %q, want %q", p.Pid, k, got, want)
			}
		}
		if p.Pid == v.Self {
			for fd, to := range p.Fds {
				n, _ := strconv.Atoi(fd)
				if n > 2 && !strings.HasSuffix(to, "/fd") && !strings.HasPrefix(to, "anon_inode:[event") &&
					!(harness.Backend() != "linux" && strings.HasPrefix(to, "/sys/fs/cgroup/cpu")) { // Go's own, where it sees that folder
					t.Errorf("descriptor %s is %s", fd, to)
				}
			}
			continue
		}
		// What stands between the tools and the host shows nothing of itself.
		names := []string{"environ", "exe", "root", "cwd", "fd"}
		if id.Inside() == 0 {
			// The numbers, not what they are: such a folder is root's, and so are tools.
			names = names[:4]
			for n, to := range p.Fds {
				if to == "" {
					delete(p.Fds, n)
				}
			}
		}
		for _, n := range names {
			if e := p.Errors[n]; e != "EACCES" && e != "EPERM" {
				t.Errorf("process %d (%s): %s answers %q", p.Pid, p.Comm, n, e)
			}
		}
		if len(p.Fds) > 0 {
			t.Errorf("descriptors of process %d can be seen: %v", p.Pid, p.Fds)
		}
	}
	// The tool space's first process, the guardian of the call and a spare one, the tool.
	if n := len(v.Processes); n < 3 || n > 4 || v.Processes[0].Pid != 1 {
		t.Errorf("processes inside: %q", pids)
	}
	if v.Umask != 0o022 {
		t.Errorf("umask %#o", v.Umask)
	}
}

const zeros = "0000000000000000"

// namespaces looks from the host at a tool that runs inside.
func namespaces(t *testing.T, id *harness.Identity, repo, task string) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	tag := nonce()
	cmd := id.Command(ctx, repo, harness.Bin(), "exec", task, "--", repo+"/attacker", "sleep", tag)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cancel()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q: %v", line, err)
	}
	found := 0
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cl, _ := os.ReadFile(d + "/cmdline")
		if !strings.HasPrefix(string(cl), repo+"/attacker\x00") || !strings.Contains(string(cl), tag) {
			continue
		}
		found++
		for _, ns := range []string{"user", "mnt", "pid", "ipc", "uts", "net", "cgroup"} {
			a, err1 := os.Readlink("/proc/self/ns/" + ns)
			b, err2 := os.Readlink(d + "/ns/" + ns)
			if os.Getuid() != 0 && err2 != nil {
				t.Logf("%s: the kernel does not show it to this user: %v", ns, err2)
				continue
			}
			if harness.Backend() != "linux" && (ns == "user" || ns == "cgroup") {
				continue // root's engine shares the first, as show says; an engine of old the second
			}
			if err1 != nil || err2 != nil || a == b {
				t.Errorf("%s: the host has %s (%v), the tool %s (%v)", ns, a, err1, b, err2)
			}
		}
		status, _ := os.ReadFile(d + "/status")
		for l := range strings.Lines(string(status)) {
			f := strings.Fields(l)
			if f[0] == "Uid:" && (f[1] == "0" && (id.UID != 0 || harness.Backend() == "linux") || id.UID != 0 && f[1] != strconv.Itoa(id.UID)) {
				t.Errorf("the kernel's user id of the tool is %s", f[1])
			}
			if f[0] == "NSpid:" && len(f) != 4 && harness.Backend() == "linux" {
				t.Errorf("the tool is in %d pid namespaces below the host's, want 2: %s", len(f)-2, l)
			}
		}
		if cg, _ := os.ReadFile(d + "/cgroup"); id.UID == 0 && harness.Backend() == "linux" && !strings.Contains(string(cg), "/caisson-") {
			t.Errorf("the tool is in no control group of ours:\n%s", cg)
		}
	}
	processes := 1
	if harness.Backend() == "gvisor" {
		processes = 0 // what runs inside are no processes of this kernel
	}
	if found != processes {
		t.Errorf("%d such processes on the host", found)
	}
}
