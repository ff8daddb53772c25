//go:build linux

package linux

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

func listenUnix(t *testing.T, path string) net.Listener {
	t.Helper()
	// By way of the folder's descriptor: a test's path may be too long to bind.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Exactly the planned mounts exist inside, nothing of the host besides.
func TestMountsAreExactlyThePlanned(t *testing.T) {
	b := open(t, newSpec(t))
	want := map[string]bool{"/": true, "/usr": true, "/tmp": true, "/var/tmp": true, "/home/tester": true, b.spec.Source.Target: true, backend.OutDir: true,
		"/dev": true, "/dev/pts": true, "/dev/shm": true, "/dev/mqueue": true, "/proc": true}
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		want["/dev/"+d] = true
	}
	table := b.sh("cat /proc/self/mountinfo")
	for _, m := range parseMountinfo(table) {
		etc, proc := strings.HasPrefix(m.point, "/etc/"), strings.HasPrefix(m.point, "/proc/")
		if !want[m.point] && !etc && !proc && m.point != "/bin" && m.point != "/sbin" && !strings.HasPrefix(m.point, "/lib") {
			t.Errorf("unplanned: %+v", m)
		}
		if etc && m.root != m.point {
			t.Errorf("not the host's %s: %+v", m.point, m)
		}
	}
	for _, line := range strings.Split(table, "\n") {
		f := strings.Fields(line)
		rw := strings.HasPrefix(f[5], "rw")
		writable := map[string]bool{"/tmp": true, "/var/tmp": true, "/home/tester": true, b.spec.Source.Target: true, backend.OutDir: true, "/dev/shm": true, "/dev/mqueue": true, "/dev/pts": true, "/proc": true}
		if rw && !writable[f[4]] && !want[f[4]] {
			t.Errorf("writable: %s", line)
		}
		if !strings.Contains(f[5], "nosuid") {
			t.Errorf("setuid programs work: %s", line)
		}
	}
	if got := b.sh("ls -A /"); got != strings.Join(strings.Fields(got), "\n") || strings.Contains(got, "sys") || strings.Contains(got, "root") {
		t.Errorf("top: %s", got)
	}
}

// A file outside cannot be read by any of the ways that lead out elsewhere.
func TestHostFilesAreOutOfReach(t *testing.T) {
	secret := filepath.Join(publicTemp(t), "secret")
	must(t, os.WriteFile(secret, []byte("S3CRET"), 0o644))
	b := open(t, newSpec(t))
	ways := []string{secret, "/proc/self/root" + secret, "/proc/1/root" + secret, "/proc/self/cwd/../../../../.." + secret, "/dev/fd/3" + secret}
	for _, w := range ways {
		out, code := b.run("/bin/cat", w)
		if code == 0 || strings.Contains(out, "S3CRET") {
			t.Errorf("%s: %s", w, out)
		}
	}
	// Control: the same names work where there is no boundary.
	if out, err := exec.Command("/bin/cat", "/proc/self/root"+secret).Output(); err != nil || string(out) != "S3CRET" {
		t.Errorf("control: %s %v", out, err)
	}
	for _, script := range []string{"echo x > /etc/passwd", "echo x > /usr/x", "echo x > /x", "echo x > /proc/sys/kernel/core_pattern", "echo x > /proc/sysrq-trigger",
		"echo x > /dev/x", "echo x > /run/x", "mknod /tmp/m c 1 1", "cat /proc/kcore", "cat /proc/1/environ", "ls /proc/1/fd/", "ls /sys/fs", "mount -t tmpfs x /tmp", "unshare -Ur true"} {
		if out, code := b.run("/bin/sh", "-c", script); code == 0 && out != "" || code == 0 && !strings.HasPrefix(script, "cat") {
			t.Errorf("%s: %q", script, out)
		}
	}
	if out, _ := b.run("/bin/sh", "-c", "cat /proc/kcore 2>/dev/null | head -c 4 | wc -c"); strings.TrimSpace(out) != "0" {
		t.Errorf("kcore: %s", out)
	}
}

// A source that is replaced between the host's look and the mount is not mounted.
func TestSwappedSourceIsNotMounted(t *testing.T) {
	for _, swap := range []bool{false, true} {
		s := newSpec(t)
		must(t, os.WriteFile(filepath.Join(s.Source.Source, "mine"), nil, 0o644))
		d := usable(t)
		worker, err := openWorker(s.WorkerPath)
		must(t, err)
		defer worker.Close()
		in := &instance{spec: s, limits: Defaults(s.Limits)}
		id := d.identity(s, worker)
		pl := newPlanner(s, in.limits, id)
		defer pl.close()
		plan, fds, err := pl.planned()
		must(t, err)
		if swap {
			must(t, os.Rename(s.Source.Source, s.Source.Source+".old"))
			must(t, os.Mkdir(s.Source.Source, 0o755))
			must(t, os.WriteFile(filepath.Join(s.Source.Source, "planted"), nil, 0o644))
		}
		err = in.start(t.Context(), d.launch, worker, id.mapping, func() (*stage.Plan, []int, error) { return plan, fds, nil })
		switch {
		case pl.viaFD || !swap:
			// As root the descriptor was taken at the look: what was seen is mounted.
			must(t, err)
			root := "/proc/" + strconv.Itoa(in.proc.pid) + "/root"
			if os.Geteuid() == 0 {
				if _, err := os.Stat(root + s.Source.Target + "/mine"); err != nil {
					t.Errorf("the folder that was seen is not there: %v", err)
				}
				if _, err := os.Stat(root + s.Source.Target + "/planted"); err == nil {
					t.Error("the planted folder was mounted")
				}
			}
		case err == nil || !strings.Contains(err.Error(), "replaced"):
			t.Errorf("the planted folder was mounted: %v", err)
		}
		must(t, in.Destroy(context.Background()))
	}
}

// Descriptors that whoever started us left open do not reach the inside.
func TestInheritedDescriptorsStayOutside(t *testing.T) {
	dir, err := os.Open(publicTemp(t))
	must(t, err)
	defer dir.Close()
	leak, err := unix.Dup(int(dir.Fd())) // without close-on-exec
	must(t, err)
	defer unix.Close(leak)
	high, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD, 200)
	must(t, err)
	defer unix.Close(high)
	// Control: a plain child gets it.
	out, _ := exec.Command("/bin/sh", "-c", "ls /proc/self/fd").Output()
	if !strings.Contains(string(out), "200") {
		t.Fatalf("control: the descriptor does not leak into a plain child: %s", out)
	}
	b := open(t, newSpec(t))
	if got := strings.Fields(b.sh("cd /proc/self/fd && echo *")); len(got) > 4 {
		t.Errorf("open inside: %v", got) // 0–2 and the shell's own
	}
	if os.Geteuid() == 0 {
		fds, err := os.ReadDir("/proc/" + strconv.Itoa(b.in.proc.pid) + "/fd")
		must(t, err)
		for _, f := range fds {
			dest, _ := os.Readlink("/proc/" + strconv.Itoa(b.in.proc.pid) + "/fd/" + f.Name())
			if n, _ := strconv.Atoi(f.Name()); n > 2 && !strings.HasPrefix(dest, "socket:") && !strings.HasPrefix(dest, "anon_inode:") {
				t.Errorf("the worker holds %s → %s", f.Name(), dest)
			}
		}
	}
}

// A group with our prefix but not our token survives everything.
func TestDecoyCgroupSurvives(t *testing.T) {
	d := usable(t)
	s := newSpec(t)
	hs := hierarchies(d.roots)
	if len(hs) == 0 {
		t.Skip("no cgroup can be made here: there is nothing to mistake")
	}
	parent := hs[0].parent
	decoy := filepath.Join(parent, groupName(s.Instance, s.Task, task.NewToken()))
	must(t, os.Mkdir(decoy, 0o755))
	defer os.Remove(decoy)
	i, err := d.Create(t.Context(), s)
	must(t, err)
	must(t, i.Destroy(t.Context()))
	if _, err := d.Attach(t.Context(), []backend.Resource{{Kind: kindCgroup, Name: decoy, Token: s.Token}}); err == nil || errors.Is(err, backend.ErrNotFound) {
		t.Errorf("attached to a group that lacks the token: %v", err)
	}
	// The exact name, made by somebody else before us: refused, and kept.
	s = newSpec(t)
	exact := filepath.Join(parent, groupName(s.Instance, s.Task, s.Token))
	must(t, os.Mkdir(exact, 0o755))
	defer os.Remove(exact)
	if i, err := d.Create(t.Context(), s); err == nil {
		_ = i.Destroy(t.Context())
		t.Error("a group that was there was taken over")
	}
	for _, p := range []string{decoy, exact} {
		if _, err := os.Stat(p); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
}

// kill -9 of the process that holds a boundary ends everything inside; what
// stays on the host is found by its record and removed.
func TestKilledHolderLeavesNoProcess(t *testing.T) {
	d := usable(t)
	s := newSpec(t)
	in, err := json.Marshal(s)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"CAISSON_TEST_ROLE=hold", workerEnv + "=" + workerPath, "PATH=/usr/bin:/bin"}
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var rs []backend.Resource
	err = json.NewDecoder(out).Decode(&rs)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatal(err)
	}
	id, ok := parseIdent(rs[0].External)
	if !ok || sys.Look(id) != sys.Living {
		t.Fatalf("control: the worker does not live: %+v", rs[0])
	}
	w, err := sys.OpenProcess(id)
	must(t, err)
	defer w.Close()
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := w.Wait(ctx); err != nil {
		t.Fatalf("the worker outlived its holder: %v", err)
	}
	i, err := d.Attach(t.Context(), rs)
	if errors.Is(err, backend.ErrNotFound) && len(rs) == 1 {
		return // no cgroups here
	}
	must(t, err)
	must(t, i.Destroy(t.Context()))
	for _, r := range rs[1:] {
		if _, err := os.Stat(r.Name); err == nil {
			t.Errorf("still there: %s", r.Name)
		}
	}
	if _, err := d.Attach(t.Context(), rs); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("attach afterwards: %v", err)
	}
}

// What left its session and its parent dies with the boundary all the same.
func TestDestroyEndsDaemons(t *testing.T) {
	b := open(t, newSpec(t))
	b.sh("(setsid sh -c 'setsid sleep 1000 & setsid sleep 1000 &' &) >/dev/null 2>&1 </dev/null; until [ $(pgrep -x sleep | wc -l) = 2 ]; do :; done")
	o, err := b.in.Observe(t.Context())
	must(t, err)
	if len(b.in.groups) > 0 && o.Pids > 0 && o.Pids < 4 {
		t.Fatalf("control: the daemons are not there: %+v", o)
	}
	var hosts []sys.Ident
	for _, g := range b.in.groups {
		procs, _ := g.read("cgroup.procs")
		for _, p := range strings.Fields(procs) {
			pid, _ := strconv.Atoi(p)
			if id, err := sys.Identify(pid); err == nil {
				hosts = append(hosts, id)
			}
		}
	}
	must(t, b.in.Destroy(t.Context()))
	for _, id := range hosts {
		if sys.Look(id) == sys.Living {
			t.Errorf("process %d lives on", id.PID)
		}
	}
}

func TestTerminalIsTheBoundarysOwn(t *testing.T) {
	b := open(t, newSpec(t))
	m, s, err := b.in.OpenPTY(30, 90)
	must(t, err)
	defer m.Close()
	defer s.Close()
	ws, err := unix.IoctlGetWinsize(int(s.Fd()), unix.TIOCGWINSZ)
	must(t, err)
	if ws.Row != 30 || ws.Col != 90 {
		t.Errorf("size %+v", ws)
	}
	var st unix.Stat_t
	must(t, unix.Fstat(int(s.Fd()), &st))
	inside := b.sh("stat -c %t:%T:%u /dev/pts/0")
	if want := strconv.FormatUint(uint64(unix.Major(st.Rdev)), 16) + ":" + strconv.FormatUint(uint64(unix.Minor(st.Rdev)), 16) + ":1000"; inside != want {
		t.Errorf("inside it is %s, outside %s", inside, want)
	}
	must(t, b.in.Destroy(t.Context()))
	if _, _, err := b.in.OpenPTY(1, 1); task.CodeOf(err) != task.CodeState {
		t.Errorf("after destroy: %v", err)
	}
}

func TestFilesInsideBelongToTheUserOutside(t *testing.T) {
	b := open(t, newSpec(t))
	b.sh("echo x > made; mkdir dir; echo y > dir/z; stat -c %u . made | sort -u | grep -qx 1000")
	for _, name := range []string{"made", "dir", "dir/z"} {
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(b.spec.Source.Source, name), &st))
		if int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
			t.Errorf("%s belongs to %d:%d", name, st.Uid, st.Gid)
		}
	}
	if os.Geteuid() == 0 {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(b.in.proc.pid) + "/status")
		must(t, err)
		if strings.Contains(string(status), "\nUid:\t0\t") || !strings.Contains(string(status), "\nGroups:\t \n") {
			t.Errorf("the worker is root, or has root's groups:\n%s", status)
		}
	}
}

func TestLimitsHold(t *testing.T) {
	s := newSpec(t)
	s.Limits = task.Limits{MemoryBytes: 128 << 20, Pids: 40, CPUs: 0.5, DiskBytes: 16 << 20}
	b := open(t, s)
	if out, code := b.run("/bin/sh", "-c", "dd if=/dev/zero of=/tmp/fill bs=1M count=64 2>&1"); code == 0 || !strings.Contains(out, "No space left") {
		t.Errorf("disk: %d %s", code, out)
	}
	if !limited(b.in.groups)["memory"] {
		t.Skip("no cgroup limits here: only the tmpfs sizes were tried")
	}
	if out, code := b.run("/bin/sh", "-c", "rm /tmp/fill; dd if=/dev/zero of=/dev/null bs=400M count=1 2>&1"); code == 0 {
		t.Errorf("memory: %s", out)
	}
	o, err := b.in.Observe(t.Context())
	must(t, err)
	if o.OOMKills == 0 || !o.Alive || o.Levels[task.RES] != 2 {
		t.Errorf("after an out-of-memory kill: %+v", o)
	}
	if out, code := b.run("/bin/sh", "-c", "for i in $(seq 100); do sleep 5 & done; wait"); code == 0 && !strings.Contains(out, "fork") {
		t.Errorf("pids: %d %s", code, out)
	}
}

// A machine that cannot is told apart, and how to change it.
func TestProbeSaysWhatIsMissing(t *testing.T) {
	usable(t)
	for _, c := range []struct{ name, prepare, env, why string }{
		{"switched off", "echo 0 > /proc/sys/user/max_user_namespaces", "", "user.max_user_namespaces=0"},
		{"seccomp", "true", "CAISSON_TEST_FILTER=1", "seccomp"},
		{"masked proc", "mount -t tmpfs x /proc/bus", "", "masked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := exec.Command("unshare", "-Urm", "sh", "-c", c.prepare).Run(); err != nil {
				t.Skipf("such a machine cannot be simulated here: %s: %v", c.prepare, err)
			}
			if _, err := os.Stat(wholeProc); err == nil && c.name == "masked proc" {
				t.Skipf("no machine without a whole /proc can be simulated here: %s is one", wholeProc)
			}
			cmd := exec.Command("unshare", "-Urm", "sh", "-c", c.prepare+` && exec "$0"`, os.Args[0])
			cmd.Env = []string{"CAISSON_TEST_ROLE=probe", workerEnv + "=" + workerPath, "PATH=" + os.Getenv("PATH"), c.env}
			out, err := cmd.CombinedOutput()
			var caps backend.Capabilities
			if err != nil || json.Unmarshal(out, &caps) != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if caps.Usable || !strings.Contains(caps.Why, c.why) || caps.Fix == "" || len(caps.Levels) > 0 {
				t.Errorf("%+v", caps)
			}
			t.Logf("%s | %s", caps.Why, caps.Fix)
		})
	}
}

// A package manager replaces files of /etc while boundaries are made.
func TestReplacedEtc(t *testing.T) {
	usable(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: an /etc of the test's own")
	}
	dir := t.TempDir()
	cmd := exec.Command("unshare", "-m", "sh", "-c", `cp -a /etc "$1/etc" && mount --bind "$1/etc" /etc && exec "$0"`, os.Args[0], dir)
	cmd.Env = []string{"CAISSON_TEST_ROLE=churn", workerEnv + "=" + workerPath, "PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// As root, the same tests once more as an unprivileged user.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this process is unprivileged already")
	}
	dir := publicTemp(t)
	home := filepath.Join(dir, "home")
	must(t, os.MkdirAll(home, 0o700))
	must(t, os.Chown(home, 65534, 65534))
	self, err := os.ReadFile(os.Args[0])
	must(t, err)
	bin := filepath.Join(dir, "test")
	must(t, os.WriteFile(bin, self, 0o755))
	cmd := exec.Command(bin, "-test.run=^(TestSuite|TestMounts|TestHost|TestSwapped|TestInherited|TestKilled|TestDestroy|TestTerminal|TestFiles|TestLimits|TestLinked|TestProbe|TestCheckPaths|TestHierarchies|TestUsernsGrant|TestPtraceGrant|TestSeed|TestRootfs|TestScope)", "-test.v")
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, workerEnv + "=" + workerPath, "PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{}}}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "no boundary can be made") {
		t.Errorf("%v\n%s", err, out)
	}
}
