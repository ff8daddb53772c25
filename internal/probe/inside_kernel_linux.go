package probe

import (
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// badFD is a descriptor that is never open.
const badFD = ^uintptr(0)

// quickFamilies are tried where nothing filters: trying all would make the
// kernel load a module for each.
var quickFamilies = []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET, unix.AF_ALG, unix.AF_VSOCK}

// families makes a socket of every family and type. Only inet and inet6 stream
// and datagram, unix and netlink may succeed.
func (in *inside) families(string) Result {
	if in.status["Seccomp"] == "" {
		return Result{Outcome: Failed, Detail: "no line Seccomp"}
	}
	list := quickFamilies
	if in.status["Seccomp"] == "2" {
		list = list[:0:0]
		for f := range 46 {
			list = append(list, f)
		}
	}
	var bad, odd []string
	for _, f := range list {
		for _, t := range socketTypes(f) {
			fd, err := unix.Socket(f, t|unix.SOCK_CLOEXEC, 0)
			name := strconv.Itoa(f) + "/" + strconv.Itoa(t)
			if err != nil {
				// These say that the filter let a family through which the kernel
				// then had no use for. Not reachable, so no way out, but noted.
				if e := errnoOf(err); !denyErrnos[e] && !plainFamily(f) {
					odd = append(odd, name+" "+errnoName(e))
				}
				continue
			}
			unix.Close(fd)
			in.facts.Socketable = append(in.facts.Socketable, name)
			if !plainSocket(f, t) {
				bad = append(bad, name)
			}
		}
	}
	switch {
	case len(bad) > 0:
		return Result{Outcome: Allowed, Detail: "family/type " + strings.Join(bad[:min(len(bad), 12)], " ")}
	case len(odd) > 0:
		return Result{Outcome: Failed, Detail: "not filtered: family/type " + strings.Join(odd[:min(len(odd), 12)], ", ")}
	}
	return Result{Outcome: Denied, Detail: "family/type that work: " + strings.Join(in.facts.Socketable, " ")}
}

// socketTypes are the types to try of a family. Those that the plain families
// do not have are left out: where nothing filters them the kernel would start a
// program to look for a module, once for each.
func socketTypes(f int) []int {
	switch f {
	case unix.AF_UNIX:
		return []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET}
	case unix.AF_INET:
		return []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_PACKET} // the last is a packet socket in disguise
	case unix.AF_INET6:
		return []int{unix.SOCK_STREAM, unix.SOCK_DGRAM}
	case unix.AF_NETLINK:
		return []int{unix.SOCK_RAW, unix.SOCK_DGRAM}
	}
	return []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_RDM, unix.SOCK_SEQPACKET, 6 /* DCCP */, unix.SOCK_PACKET}
}

func plainFamily(f int) bool {
	return f == unix.AF_UNIX || f == unix.AF_INET || f == unix.AF_INET6 || f == unix.AF_NETLINK
}

func plainSocket(f, t int) bool {
	switch f {
	case unix.AF_UNIX:
		return true
	case unix.AF_INET, unix.AF_INET6:
		return t == unix.SOCK_STREAM || t == unix.SOCK_DGRAM
	case unix.AF_NETLINK:
		return t == unix.SOCK_RAW || t == unix.SOCK_DGRAM
	}
	return false
}

// netlink tries the other protocols; SOCK_DIAG, AUDIT, NETFILTER, CONNECTOR,
// KOBJECT_UEVENT, GENERIC, CRYPTO.
func (in *inside) netlink(string) Result {
	var open []string
	for _, p := range []int{4, 9, 12, 11, 15, 16, 21} {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, p)
		if err == nil {
			unix.Close(fd)
			open = append(open, strconv.Itoa(p))
		} else if e := errnoOf(err); !denyErrnos[e] && e != unix.EPROTONOSUPPORT {
			return failed(err, "protocol "+strconv.Itoa(p))
		}
	}
	return boolResult(len(open) == 0, "protocols "+strings.Join(open, " "))
}

func (in *inside) rawSocket(string) Result {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err == nil {
		unix.Close(fd)
	}
	return verdict(errnoOf(err))
}

func ioUring(name string) Result {
	switch name {
	case "setup":
		return verdict(call(unix.SYS_IO_URING_SETUP, 1, 0), unix.EFAULT)
	case "enter":
		return verdict(call(unix.SYS_IO_URING_ENTER, badFD, 0, 0, 0, 0, 0), unix.EBADF)
	}
	return verdict(call(unix.SYS_IO_URING_REGISTER, badFD-7, 0, 0, 0), unix.EBADF, unix.EINVAL)
}

// userns starts a child in a new user namespace whose program does not exist:
// the start then fails with ENOENT, and the child is gone.
func (in *inside) userns(string) Result {
	pid, err := syscall.ForkExec("/proc/self/no-such-program", []string{"x"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}})
	if err == nil {
		var ws syscall.WaitStatus
		_, _ = syscall.Wait4(pid, &ws, 0, nil)
		return Result{Outcome: Failed, Detail: "a program ran that should not exist"}
	}
	e, _ := err.(syscall.Errno)
	if e == unix.ENOENT {
		return Result{Outcome: Allowed}
	}
	return verdict(e).also(unix.ENOSPC, unix.EUSERS) // the last two: no namespaces are left
}

var cloneFlags = map[string]uintptr{"mnt": unix.CLONE_NEWNS, "uts": unix.CLONE_NEWUTS, "ipc": unix.CLONE_NEWIPC, "net": unix.CLONE_NEWNET,
	"pid": unix.CLONE_NEWPID, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME}

func (in *inside) unshare(name string) Result {
	return in.onThread(func() Result { return verdict(call(unix.SYS_UNSHARE, cloneFlags[name]), unix.EINVAL) })
}

// setns enters the namespace that the caller is already in: nothing changes.
func (in *inside) setns(string) Result {
	fd, err := unix.Open("/proc/self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(err, "open")
	}
	defer unix.Close(fd)
	return in.onThread(func() Result {
		return verdict(call(unix.SYS_SETNS, uintptr(fd), unix.CLONE_NEWNS), unix.EINVAL)
	})
}

// mount asks for two propagations at once: that is refused with EINVAL after
// the right to mount was checked, and changes nothing.
func (in *inside) mount(string) Result {
	return verdict(errnoOf(unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_PRIVATE, "")), unix.EINVAL)
}

// umount names a folder that is no mount point: EINVAL comes after the right
// was checked.
func (in *inside) umount(string) Result {
	return verdict(errnoOf(unix.Unmount("/proc/self/task", unix.MNT_DETACH)), unix.EINVAL)
}

// chroot asks for the root that it has.
func (in *inside) chroot(string) Result {
	return in.onThread(func() Result {
		return verdict(errnoOf(unix.Chroot("/")))
	})
}

// mountAPI makes calls that have no effect where they are allowed.
func mountAPI(name string) Result {
	root, empty, tmpfs := cstr("/"), cstr(""), cstr("tmpfs")
	defer runtime.KeepAlive([]*byte{root, empty, tmpfs})
	switch name {
	case "open_tree":
		return closing(unix.SYS_OPEN_TREE, ^uintptr(99), ptr(root), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	case "move_mount":
		return verdict(call(unix.SYS_MOVE_MOUNT, badFD, ptr(empty), badFD, ptr(empty), unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH), unix.EBADF)
	case "fsopen":
		return closing(unix.SYS_FSOPEN, ptr(tmpfs), unix.FSOPEN_CLOEXEC)
	case "fsmount":
		return verdict(call(unix.SYS_FSMOUNT, badFD, unix.FSMOUNT_CLOEXEC, 0), unix.EBADF)
	case "fspick":
		return closing(unix.SYS_FSPICK, ^uintptr(99), ptr(root), unix.FSPICK_CLOEXEC)
	case "mount_setattr":
		var attr unix.MountAttr // changes nothing
		return verdict(call(unix.SYS_MOUNT_SETATTR, ^uintptr(99), ptr(root), 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)))
	}
	return Result{Outcome: Failed}
}

// closing makes a call that may return a descriptor, and closes it.
func closing(nr uintptr, args ...uintptr) Result {
	var a [6]uintptr
	copy(a[:], args)
	fd, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if e == 0 {
		unix.Close(int(fd))
	}
	return verdict(e)
}

// dangerous makes calls with arguments that the kernel refuses after it checked
// the right to make them.
func dangerous(name string) Result {
	switch name {
	case "bpf":
		return verdict(call(unix.SYS_BPF, 0xffff, 0, 0), unix.EINVAL, unix.E2BIG, unix.EFAULT)
	case "perf_event_open":
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel}
		attr.Size = uint32(unsafe.Sizeof(attr))
		return closing(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&attr)), 0, badFD, badFD, unix.PERF_FLAG_FD_CLOEXEC)
	case "userfaultfd":
		return closing(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1)
	case "keyctl":
		return verdict(call(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 0), unix.ENOKEY)
	case "add_key":
		return verdict(call(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0), unix.EFAULT)
	case "request_key":
		return verdict(call(unix.SYS_REQUEST_KEY, 0, 0, 0, 0), unix.EFAULT)
	case "kexec_load":
		// Too many segments and unknown flags: nothing is loaded, and nothing that
		// was loaded is dropped, which a count of zero would do.
		return verdict(call(unix.SYS_KEXEC_LOAD, 0, 0xffff, 0, 0x8000), unix.EINVAL)
	case "init_module":
		return verdict(call(unix.SYS_INIT_MODULE, 0, 0, 0), unix.ENOEXEC, unix.EFAULT)
	case "finit_module":
		return verdict(call(unix.SYS_FINIT_MODULE, badFD, 0, 0), unix.EBADF, unix.EFAULT, unix.EINVAL)
	case "name_to_handle_at":
		_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
		return verdict(errnoOf(err), unix.EOVERFLOW, unix.EOPNOTSUPP)
	case "open_by_handle_at":
		// A handle of a file that cannot be: refused after the right was checked.
		h := [4]uint32{8, 1}
		r := closing(unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(99), uintptr(unsafe.Pointer(&h)), unix.O_PATH|unix.O_CLOEXEC)
		if r.Errno == "ESTALE" || r.Errno == "EOPNOTSUPP" {
			r.Outcome = Allowed
		}
		return r
	case "reboot":
		return verdict(call(unix.SYS_REBOOT, 0, 0, 0, 0), unix.EINVAL) // no magic numbers
	}
	return Result{Outcome: Failed}
}

// terminal makes the request on no descriptor at all: EBADF comes from a
// kernel that does not filter the request, and nothing is pushed anywhere.
func terminal(name string) Result {
	req := map[string]uintptr{"TIOCSTI": unix.TIOCSTI, "TIOCLINUX": unix.TIOCLINUX, "TIOCSETD": unix.TIOCSETD}[name]
	return verdict(call(unix.SYS_IOCTL, badFD, req, 0), unix.EBADF)
}

func (in *inside) syslog(string) Result {
	const sizeBuffer = 10
	return verdict(call(unix.SYS_SYSLOG, sizeBuffer, 0, 0))
}

func cstr(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

func ptr(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }

// otherThan reads a file in which a kernel says who it is.
func otherThan(path, host string) Result {
	b, err := readFile(path)
	own := strings.TrimSpace(string(b))
	if err != nil || own == "" || host == "" {
		return Result{Outcome: Failed, Detail: path + " says nothing"}
	}
	return boolResult(own != host, own)
}
