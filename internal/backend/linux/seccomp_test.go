//go:build linux

package linux

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend/internal/callfilter"
)

// tryCalls makes calls in a child, under a filter or without.
func tryCalls(t *testing.T, filter []byte, calls []call) map[string]unix.Errno {
	t.Helper()
	in, err := json.Marshal(map[string]any{"Filter": filter, "Calls": calls})
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"CAISSON_TEST_ROLE=syscalls"}
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var nums map[string]int
	must(t, json.Unmarshal(out, &nums))
	got := map[string]unix.Errno{}
	for k, v := range nums {
		got[k] = unix.Errno(v)
	}
	return got
}

const high = 1 << 32 // a bit in the upper half of an argument

// Each call is refused under the filter, with the errno that lets a libc go
// on, and is not refused that way without it.
func TestToolFilterRefuses(t *testing.T) {
	const bad = ^uintptr(0) // a pointer or descriptor that is never good
	type tc struct {
		call
		want unix.Errno
	}
	calls := []tc{
		{call{"clone user", unix.SYS_CLONE, [6]uintptr{unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}}, unix.EPERM},
		{call{"clone user, upper bits", unix.SYS_CLONE, [6]uintptr{high | unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}}, unix.EPERM},
		{call{"clone pid", unix.SYS_CLONE, [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWPID | uintptr(unix.SIGCHLD)}}, unix.EPERM},
		{call{"clone3", unix.SYS_CLONE3, [6]uintptr{bad, 0}}, unix.ENOSYS},
		{call{"unshare", unix.SYS_UNSHARE, [6]uintptr{bad}}, unix.EPERM},
		{call{"unshare nothing", unix.SYS_UNSHARE, [6]uintptr{0}}, unix.EPERM},
		{call{"setns", unix.SYS_SETNS, [6]uintptr{bad, 0}}, unix.EPERM},
		{call{"mount", unix.SYS_MOUNT, [6]uintptr{bad, bad, bad, 0, 0}}, unix.EPERM},
		{call{"umount2", unix.SYS_UMOUNT2, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"pivot_root", unix.SYS_PIVOT_ROOT, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"chroot", unix.SYS_CHROOT, [6]uintptr{bad}}, unix.EPERM},
		{call{"open_tree", unix.SYS_OPEN_TREE, [6]uintptr{bad, bad, bad}}, unix.EPERM},
		{call{"move_mount", unix.SYS_MOVE_MOUNT, [6]uintptr{bad, bad, bad, bad, bad}}, unix.EPERM},
		{call{"fsopen", unix.SYS_FSOPEN, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"fsconfig", unix.SYS_FSCONFIG, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"fsmount", unix.SYS_FSMOUNT, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"fspick", unix.SYS_FSPICK, [6]uintptr{bad, bad, bad}}, unix.EPERM},
		{call{"mount_setattr", unix.SYS_MOUNT_SETATTR, [6]uintptr{bad, bad, bad}}, unix.EPERM},
		{call{"ptrace", unix.SYS_PTRACE, [6]uintptr{unix.PTRACE_ATTACH, bad}}, unix.EPERM},
		{call{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [6]uintptr{bad, 0, 0, 0, 0, bad}}, unix.EPERM},
		{call{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, [6]uintptr{bad, 0, 0, 0, 0, bad}}, unix.EPERM},
		{call{"pidfd_getfd", unix.SYS_PIDFD_GETFD, [6]uintptr{bad, 0, 0}}, unix.EPERM},
		{call{"kcmp", unix.SYS_KCMP, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"keyctl", unix.SYS_KEYCTL, [6]uintptr{bad}}, unix.EPERM},
		{call{"add_key", unix.SYS_ADD_KEY, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"request_key", unix.SYS_REQUEST_KEY, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"bpf", unix.SYS_BPF, [6]uintptr{bad, bad, 8}}, unix.EPERM},
		{call{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [6]uintptr{bad}}, unix.EPERM},
		{call{"userfaultfd", unix.SYS_USERFAULTFD, [6]uintptr{bad}}, unix.EPERM},
		{call{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, [6]uintptr{bad, bad}}, unix.EPERM},
		{call{"fanotify_init", unix.SYS_FANOTIFY_INIT, [6]uintptr{bad}}, unix.EPERM},
		{call{"kexec_load", unix.SYS_KEXEC_LOAD, [6]uintptr{0, bad, bad, bad}}, unix.EPERM},
		{call{"init_module", unix.SYS_INIT_MODULE, [6]uintptr{bad, 0, bad}}, unix.EPERM},
		{call{"delete_module", unix.SYS_DELETE_MODULE, [6]uintptr{bad}}, unix.EPERM},
		{call{"quotactl", unix.SYS_QUOTACTL, [6]uintptr{bad, bad, bad, bad}}, unix.EPERM},
		{call{"acct", unix.SYS_ACCT, [6]uintptr{bad}}, unix.EPERM},
		{call{"swapon", unix.SYS_SWAPON, [6]uintptr{bad, 0}}, unix.EPERM},
		{call{"reboot", unix.SYS_REBOOT, [6]uintptr{1, 2, 3}}, unix.EPERM},
		{call{"sethostname", unix.SYS_SETHOSTNAME, [6]uintptr{bad, 4}}, unix.EPERM},
		{call{"settimeofday", unix.SYS_SETTIMEOFDAY, [6]uintptr{bad, 0}}, unix.EPERM},
		{call{"syslog", unix.SYS_SYSLOG, [6]uintptr{bad, 0, 0}}, unix.EPERM},
		{call{"io_uring_setup", unix.SYS_IO_URING_SETUP, [6]uintptr{1, bad}}, unix.ENOSYS},
		{call{"io_uring_enter", unix.SYS_IO_URING_ENTER, [6]uintptr{bad}}, unix.ENOSYS},
		{call{"io_uring_register", unix.SYS_IO_URING_REGISTER, [6]uintptr{bad}}, unix.ENOSYS},
		{call{"TIOCSTI", unix.SYS_IOCTL, [6]uintptr{0, unix.TIOCSTI, bad}}, unix.EPERM},
		{call{"TIOCSTI, upper bits", unix.SYS_IOCTL, [6]uintptr{0, high | unix.TIOCSTI, bad}}, unix.EPERM},
		{call{"TIOCLINUX", unix.SYS_IOCTL, [6]uintptr{0, callfilter.TIOCLINUX, bad}}, unix.EPERM},
		{call{"TIOCSETD", unix.SYS_IOCTL, [6]uintptr{0, unix.TIOCSETD, bad}}, unix.EPERM},
		{call{"personality", unix.SYS_PERSONALITY, [6]uintptr{0x40000}}, unix.EPERM},
		{call{"vsock", unix.SYS_SOCKET, [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM, 0}}, unix.EAFNOSUPPORT},
		{call{"vsock, upper bits", unix.SYS_SOCKET, [6]uintptr{high | unix.AF_VSOCK, unix.SOCK_STREAM, 0}}, unix.EAFNOSUPPORT},
		{call{"packet", unix.SYS_SOCKET, [6]uintptr{unix.AF_PACKET, unix.SOCK_RAW, 0}}, unix.EAFNOSUPPORT},
		{call{"raw", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_RAW, 1}}, unix.EPERM},
		{call{"sctp", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, 132}}, unix.EPERM},
		{call{"netlink audit", unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}}, unix.EPERM},
		{call{"prlimit of another", unix.SYS_PRLIMIT64, [6]uintptr{bad, unix.RLIMIT_CPU, bad}}, unix.EPERM},
		{call{"prlimit of another, a low pointer", unix.SYS_PRLIMIT64, [6]uintptr{1, unix.RLIMIT_CPU, 8}}, unix.EPERM},
		{call{"prlimit of another, a high pointer", unix.SYS_PRLIMIT64, [6]uintptr{1, unix.RLIMIT_CPU, high}}, unix.EPERM},
		{call{"a call of the future", 1000, [6]uintptr{}}, unix.ENOSYS},
	}
	if callfilter.X32Bit != 0 {
		calls = append(calls, tc{call{"x32 getpid", callfilter.X32Bit | unix.SYS_GETPID, [6]uintptr{}}, unix.ENOSYS})
	}
	var list []call
	for _, c := range calls {
		list = append(list, c.call)
	}
	under, without := tryCalls(t, callfilter.Tool(false, false), list), tryCalls(t, nil, list)
	same := 0
	for _, c := range calls {
		if under[c.Name] != c.want {
			t.Errorf("%s: %v, not %v", c.Name, under[c.Name], c.want)
		}
		if without[c.Name] == c.want {
			same++
			t.Logf("control: %s answers %v without the filter too", c.Name, c.want)
		}
	}
	// Some are refused to an unprivileged process anyway, with the same errno.
	if same > len(calls)/2 && seccompActive() {
		t.Logf("no control: this process runs under a filter already, %d of %d calls answer the same without ours", same, len(calls))
	} else if same > len(calls)/2 {
		t.Errorf("%d of %d calls answer the same without the filter: the test proves little", same, len(calls))
	}
}

func TestToolFilterSocketFamilies(t *testing.T) {
	types := map[int]string{unix.SOCK_STREAM: "stream", unix.SOCK_DGRAM: "dgram", unix.SOCK_RAW: "raw", unix.SOCK_RDM: "rdm", unix.SOCK_SEQPACKET: "seqpacket", unix.SOCK_DCCP: "dccp", 10: "packet"}
	var list []call
	for family := 0; family <= 46; family++ {
		for typ, name := range types {
			list = append(list, call{fmt.Sprintf("%d %s", family, name), unix.SYS_SOCKET, [6]uintptr{uintptr(family), uintptr(typ | unix.SOCK_CLOEXEC), 0}})
		}
	}
	got := tryCalls(t, callfilter.Tool(false, false), list)
	for _, c := range list {
		family, typ := int(c.Args[0]), int(c.Args[1])&0xf
		inet := (family == unix.AF_INET || family == unix.AF_INET6) && (typ == unix.SOCK_STREAM || typ == unix.SOCK_DGRAM)
		may := inet || family == unix.AF_UNIX || family == unix.AF_NETLINK
		if got[c.Name] == 0 && !may {
			t.Errorf("socket %s was made", c.Name)
		}
		if inet && got[c.Name] != 0 {
			t.Errorf("socket %s: %v", c.Name, got[c.Name])
		}
	}
}

func TestGrantsRelaxExactlyTheirPart(t *testing.T) {
	if seccompActive() {
		t.Skip("this process runs under a filter already: what ours lets through is refused by that one")
	}
	list := []call{
		{"ptrace", unix.SYS_PTRACE, [6]uintptr{unix.PTRACE_TRACEME}},
		{"personality", unix.SYS_PERSONALITY, [6]uintptr{0x40000}},
		{"clone user", unix.SYS_CLONE, [6]uintptr{unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}},
		{"bpf", unix.SYS_BPF, [6]uintptr{^uintptr(0), ^uintptr(0), 8}},
		{"execve", unix.SYS_EXECVE, [6]uintptr{^uintptr(0)}},
	}
	for _, c := range []struct {
		name   string
		filter []byte
		want   map[string]bool // refused with EPERM
	}{
		{"none", callfilter.Tool(false, false), map[string]bool{"ptrace": true, "personality": true, "clone user": true, "bpf": true}},
		{"ptrace", callfilter.Tool(true, false), map[string]bool{"clone user": true, "bpf": true}},
		{"userns", callfilter.Tool(false, true), map[string]bool{"ptrace": true, "personality": true, "bpf": true}},
		{"worker", callfilter.Worker(), map[string]bool{"ptrace": true, "personality": true, "clone user": true, "bpf": true, "execve": true}},
	} {
		got := tryCalls(t, c.filter, list)
		for _, l := range list {
			if (got[l.Name] == syscall.EPERM) != c.want[l.Name] {
				t.Errorf("%s: %s answers %v", c.name, l.Name, got[l.Name])
			}
		}
	}
}

// The worker's own filter leaves neither processes nor programs nor sockets nor
// new code, and none of what file tools do not do.
func TestWorkerFilterRefuses(t *testing.T) {
	const bad = ^uintptr(0)
	anon := uintptr(unix.MAP_PRIVATE | unix.MAP_ANONYMOUS)
	list := []call{
		{"execve", unix.SYS_EXECVE, [6]uintptr{bad}},
		{"execveat", unix.SYS_EXECVEAT, [6]uintptr{bad, bad}},
		{"a child", unix.SYS_CLONE, [6]uintptr{uintptr(unix.SIGCHLD)}},
		{"a child that shares memory", unix.SYS_CLONE, [6]uintptr{unix.CLONE_VM | unix.CLONE_VFORK | uintptr(unix.SIGCHLD)}},
		{"unix socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM, 0}},
		{"internet socket", unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, 0}},
		{"socketpair", unix.SYS_SOCKETPAIR, [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM, 0, bad}},
		{"connect", unix.SYS_CONNECT, [6]uintptr{0, bad, 16}},
		{"kill", unix.SYS_KILL, [6]uintptr{1, 0}},
		{"pidfd_open", unix.SYS_PIDFD_OPEN, [6]uintptr{1, 0}},
		{"ptrace", unix.SYS_PTRACE, [6]uintptr{unix.PTRACE_TRACEME}},
		{"code", unix.SYS_MMAP, [6]uintptr{0, 4096, unix.PROT_READ | unix.PROT_EXEC, anon, bad, 0}},
		{"code, upper bits", unix.SYS_MMAP, [6]uintptr{0, 4096, high | unix.PROT_READ | unix.PROT_EXEC, anon, bad, 0}},
		{"code later", unix.SYS_MPROTECT, [6]uintptr{0, 4096, unix.PROT_READ | unix.PROT_EXEC}},
		{"mknodat", unix.SYS_MKNODAT, [6]uintptr{bad, bad, 0, 0}},
		{"symlinkat", unix.SYS_SYMLINKAT, [6]uintptr{bad, bad, bad}},
		{"linkat", unix.SYS_LINKAT, [6]uintptr{bad, bad, bad, bad, 0}},
		{"chdir", unix.SYS_CHDIR, [6]uintptr{bad}},
		{"fchownat", unix.SYS_FCHOWNAT, [6]uintptr{bad, bad, 0, 0, 0}},
		{"ioctl", unix.SYS_IOCTL, [6]uintptr{0, unix.TCGETS, bad}},
		{"setuid", unix.SYS_SETUID, [6]uintptr{uintptr(os.Getuid())}},
		{"prlimit64", unix.SYS_PRLIMIT64, [6]uintptr{0, unix.RLIMIT_NOFILE, 0, 0}},
		{"shmget", unix.SYS_SHMGET, [6]uintptr{0, 4096, 0o600}},
	}
	under, without := tryCalls(t, callfilter.Worker(), list), tryCalls(t, nil, list)
	same := 0
	for _, c := range list {
		if under[c.Name] != unix.EPERM {
			t.Errorf("%s: %v, not EPERM", c.Name, under[c.Name])
		}
		if without[c.Name] == unix.EPERM {
			same++
		}
	}
	if same > 3 && !seccompActive() {
		t.Errorf("%d of %d calls answer the same without the filter: the test proves little", same, len(list))
	}
}

// Limits of one's own may be set, and anybody's read, as far as the kernel lets
// one.
func TestToolFilterLimits(t *testing.T) {
	for name, c := range map[string]call{
		"own, set":        {"", unix.SYS_PRLIMIT64, [6]uintptr{0, unix.RLIMIT_CPU, ^uintptr(0)}},
		"another's, read": {"", unix.SYS_PRLIMIT64, [6]uintptr{1 << 30, unix.RLIMIT_CPU, 0, 0}},
	} {
		c.Name = name
		if got := tryCalls(t, callfilter.Tool(false, false), []call{c})[name]; got == unix.EPERM {
			t.Errorf("%s: %v", name, got)
		}
	}
}
