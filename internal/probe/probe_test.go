//go:build linux

package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestMain plays the inside half when it is started as "inside": the same code
// in a process of its own, as the worker's probe role does.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "inside-wait" {
		if os.Args[3] == "sealed" {
			seal()
		}
		spec, err := os.ReadFile(os.Args[2])
		if err == nil {
			var out []byte
			if out, err = Inside(spec); err == nil {
				_, err = os.Stdout.Write(out)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Stdout.Close()
		_, _ = io.Copy(io.Discard, os.Stdin) // stays to be looked at
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "inside" {
		spec, err := io.ReadAll(os.Stdin)
		if err == nil {
			var out []byte
			if out, err = Inside(spec); err == nil {
				_, err = os.Stdout.Write(out)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// What this program inherited must not look like a leak of the tests.
	if err := unix.CloseRange(3, ^uint(0)>>1&0x7fffffff, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		fmt.Fprintln(os.Stderr, "close_range:", err)
	}
	os.Exit(m.Run())
}

// world is a set of sentinels and a spec that asks for them.
type world struct {
	dir    string
	plants *Plants
	spec   Spec
}

// newWorld plants sentinels that everybody may reach, and names a sleeper as
// the process to attack.
func newWorld(t *testing.T, uid int) *world {
	t.Helper()
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(d, os.TempDir()) && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Plant(dir, task.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range []string{p.File, p.Socket} {
		if err := os.Chmod(f, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	sleeper := exec.Command("sleep", "1000")
	sleeper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if uid != os.Getuid() {
		sleeper.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() })
	start, err := StartTime(sleeper.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dir: dir, plants: p, spec: Spec{Nonce: task.NewToken(), HostNS: OwnNamespaces(), HostPID: sleeper.Process.Pid, HostStart: start,
		UID: 1000, GID: 1000, Home: dir, Source: dir, Writable: []string{dir}, ReadOnly: []string{"/", "/usr", "/etc"}, Env: []string{"HOME"}}}
	p.Apply(&w.spec)
	w.spec.Agents = append(w.spec.Agents, p.Socket)
	return w
}

// run makes the attempts in a child process, with what attr adds.
func (w *world) run(t *testing.T, uid int, attr *syscall.SysProcAttr) ([]byte, *Report) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The test program lies in a folder that other users cannot enter.
	own := filepath.Join(w.dir, "inside-"+task.NewToken())
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, data, 0o755); err != nil {
		t.Fatal(err)
	}
	spec, err := w.spec.Encode()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(own, "inside")
	cmd.Stdin = bytes.NewReader(spec)
	cmd.Dir = w.dir
	cmd.Env = []string{"HOME=" + w.dir, "SSH_AUTH_SOCK=/nowhere"}
	var errb bytes.Buffer
	cmd.Stderr = &errb
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	if uid != os.Getuid() && attr.Cloneflags == 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	cmd.SysProcAttr = attr
	root, err := os.Open("/") // a leak for P12 to find
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cmd.ExtraFiles = []*os.File{root}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("inside: %v\n%s", err, errb.String())
	}
	r, err := Decode(&w.spec, out)
	if err != nil {
		t.Fatal(err)
	}
	return out, r
}

// leftovers compares the folder before and after.
func names(t *testing.T, dir string) string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var l []string
	for _, e := range es {
		if !strings.HasPrefix(e.Name(), "inside-") {
			l = append(l, e.Name())
		}
	}
	return strings.Join(l, " ")
}

// TestControl runs the attempts outside any boundary. There they must succeed:
// an attempt that succeeds nowhere would prove nothing inside.
func TestControl(t *testing.T) {
	confined(t)
	for _, uid := range []int{os.Getuid(), 65534} {
		root := uid == 0
		t.Run(fmt.Sprintf("uid%d", uid), func(t *testing.T) {
			if uid != os.Getuid() && os.Getuid() != 0 {
				t.Skip("only root can become another user")
			}
			w := newWorld(t, uid)
			before := names(t, w.dir)
			raw, rep := w.run(t, uid, nil)
			if after := names(t, w.dir); after != before {
				t.Errorf("left behind: before %q, after %q", before, after)
			}
			got := map[string]*Result{}
			for i := range rep.Checks {
				got[rep.Checks[i].ID] = &rep.Checks[i]
			}
			for _, it := range items(&w.spec) {
				r := got[it.id]
				if r == nil {
					t.Errorf("%s: not attempted", it.id)
					continue
				}
				success := r.Outcome == Allowed || r.Outcome == Same
				why := exempt(it, root, uid == os.Getuid())
				if testing.Verbose() {
					t.Logf("%-18s %-9s %-12s %s %s", it.id, r.Outcome, r.Errno, it.target, r.Detail)
				}
				if !success && why == "" {
					t.Errorf("%s (%s): %s outside a boundary: a dead attempt", it.id, it.target, answer(r))
				}
			}
			t.Logf("inside took %d µs", rep.Micros)
			if touched := w.plants.Touched(); len(touched) < 3 {
				t.Errorf("sentinels reached: %v, want all", touched)
			}
			v, err := ObserveHost(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			levels, seen, findings := Judge(&w.spec, raw, &Observation{Worker: &v, Touched: []string{"127.0.0.1"}})
			if len(levels) != 0 {
				t.Errorf("levels outside a boundary: %v %v", levels, seen)
			}
			if len(findings) == 0 {
				t.Error("no findings outside a boundary")
			}
		})
	}
}

// confined skips what needs this process to be free: nothing here proves that
// an attempt succeeds outside a boundary when the test itself is inside one.
func confined(t *testing.T) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err == nil && strings.Contains(string(status), "\nSeccomp:\t2") {
		t.Skip("this process runs under a system call filter already, so attempts fail outside the boundary too")
	}
}

// exempt says why an attempt need not succeed outside.
func exempt(it item, root, sameUser bool) string {
	if c := it.check.Control; c != "" && !(root && c == needRoot) {
		return c
	}
	switch it.check.ID + " " + it.target {
	case "P63.open /etc/ld.so.preload":
		return "most machines have none"
	case "P31.caps CapInh", "P31.caps CapAmb":
		return "most processes hold none"
	case "P27.initmem /proc/1/mem":
		return otherInit
	case "P29 kexec_load", "P29 init_module", "P29 finit_module", "P29 userfaultfd", "P25.unshare time":
		return kernelBuild
	}
	switch it.check.ID {
	case "P14.write", "P14.read":
		return kernelBuild
	case "P01.parentroot":
		if !sameUser {
			return "the parent is another user's"
		}
	}
	return ""
}

const kernelBuild = "depends on how this kernel was built"

// TestNamespaces runs the attempts in namespaces of their own, nothing else
// done. What rests on them must turn, what does not must stay.
func TestNamespaces(t *testing.T) {
	confined(t)
	w := newWorld(t, os.Getuid())
	attr := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
	}
	if err := exec.Command("unshare", "-U", "true").Run(); err != nil {
		t.Skip("this machine makes no user namespaces:", err)
	}
	raw, rep := w.run(t, os.Getuid(), attr)
	got := map[string]Outcome{}
	for _, r := range rep.Checks {
		got[r.ID] = r.Outcome
	}
	for _, id := range []string{"ns.pid", "ns.net", "ns.user", "ns.mnt", "P17.connect#0", "P41.tcp#0", "P41.tcp#1", "net.interfaces", "net.routes", "P27.vmread", "P28.kill", "P28.pidfd", "P31.uid", "P32.mknod"} {
		if !got[id].proves() {
			t.Errorf("%s: %s in namespaces of its own", id, got[id])
		}
	}
	// The same files, sockets with a path, kernel: nothing was done about those.
	for _, id := range []string{"P01.abs#0", "P19#0", "P27.see", "P23#0", "P30#0", "crd.env", "P31.nnp", "P31.seccomp"} {
		if got[id].proves() {
			t.Errorf("%s: %s although nothing prevents it", id, got[id])
		}
	}
	if touched := w.plants.Touched(); strings.Join(touched, " ") != "unix socket" {
		t.Errorf("sentinels reached: %v, want the one with a path", touched)
	}
	levels, _, _ := Judge(&w.spec, raw, &Observation{})
	if len(levels) != 0 {
		t.Errorf("levels without a look by the host: %v", levels)
	}
}

// TestObserveHost looks at a process in namespaces of its own.
func TestObserveHost(t *testing.T) {
	if err := exec.Command("unshare", "-U", "true").Run(); err != nil {
		t.Skip("this machine makes no user namespaces:", err)
	}
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("cat")
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer cmd.Wait()
	defer wr.Close()
	v, err := ObserveHost(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Unread) > 0 {
		t.Errorf("unread: %v", v.Unread)
	}
	for _, n := range []string{"user", "pid", "net", "ipc", "uts"} {
		if v.NS[n] == 0 || v.NS[n] == v.Own[n] {
			t.Errorf("namespace %s: %d, ours %d", n, v.NS[n], v.Own[n])
		}
	}
	if v.NS["mnt"] != v.Own["mnt"] {
		t.Error("mount namespace differs and should not")
	}
	if strings.Join(v.Interfaces, " ") != "lo" || len(v.Routes) != 0 {
		t.Errorf("interfaces %v routes %v", v.Interfaces, v.Routes)
	}
	if len(v.UIDMap) != 1 || !strings.HasPrefix(v.UIDMap[0], "1000 ") || len(v.Mounts) == 0 {
		t.Errorf("uid map %v, %d mounts", v.UIDMap, len(v.Mounts))
	}
	if _, err := ObserveHost(0x3ffffff); task.CodeOf(err) != task.CodeUnavailable {
		t.Errorf("a process that is not there: %v", err)
	}
}

// TestDescriptors hands a descriptor down, which P12 must see.
func TestDescriptors(t *testing.T) {
	w := newWorld(t, os.Getuid())
	exe, _ := os.Executable()
	spec, _ := w.spec.Encode()
	for _, leak := range []bool{false, true} {
		cmd := exec.Command(exe, "inside")
		cmd.Stdin = bytes.NewReader(spec)
		if leak {
			f, err := os.Open("/")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd.ExtraFiles = []*os.File{f}
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Checks {
			if c.ID == "P12" && c.Outcome.proves() == leak {
				t.Errorf("leak %v: %s %s", leak, c.Outcome, c.Detail)
			}
		}
	}
}

// seal puts a filter on this process that denies what the standard set tries,
// much as a boundary's own filter does.
func seal() {
	deny := []uint32{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2,
		unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
		unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_NAME_TO_HANDLE_AT,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_REBOOT, unix.SYS_SYSLOG, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD}
	ins := func(code uint16, k uint32, jt, jf uint8) unix.SockFilter {
		return unix.SockFilter{Code: code, K: k, Jt: jt, Jf: jf}
	}
	const ld, jeq, jset, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	eperm := ins(ret, unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM), 0, 0)
	allow := ins(ret, unix.SECCOMP_RET_ALLOW, 0, 0)
	prog := []unix.SockFilter{ins(ld, 0, 0, 0)}
	for _, nr := range deny {
		prog = append(prog, ins(jeq, nr, 0, 1), eperm)
	}
	// socket: families unix, inet, inet6; netlink only for routes.
	prog = append(prog, ins(jeq, unix.SYS_SOCKET, 0, 9),
		ins(ld, 16, 0, 0), ins(jeq, unix.AF_UNIX, 6, 0), ins(jeq, unix.AF_INET, 5, 0), ins(jeq, unix.AF_INET6, 4, 0), ins(jeq, unix.AF_NETLINK, 0, 2),
		ins(ld, 32, 0, 0), ins(jeq, 0, 1, 0), eperm, allow)
	// ioctl requests that push input; clone with a user namespace.
	prog = append(prog, ins(jeq, unix.SYS_IOCTL, 0, 6),
		ins(ld, 24, 0, 0), ins(jeq, unix.TIOCSTI, 2, 0), ins(jeq, unix.TIOCLINUX, 1, 0), ins(jeq, unix.TIOCSETD, 0, 1), eperm, allow)
	prog = append(prog, ins(jeq, unix.SYS_CLONE, 0, 4),
		ins(ld, 16, 0, 0), ins(jset, unix.CLONE_NEWUSER, 0, 1), eperm, allow)
	prog = append(prog, allow)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		panic(e)
	}
}
