//go:build linux

package attack

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// sysCall is one system call with arguments that do no harm.
type sysCall struct {
	prop, name string
	nr         uintptr
	args       []uintptr
	root, lack bool
}

// kernel holds the calls that ask for parts of the kernel no task needs. Bad
// arguments keep them harmless outside: that the kernel looks at them is enough.
func kernel() {
	for _, x := range append(archCalls, []sysCall{
		{"P23", "io_uring_setup", 425, []uintptr{8, 0}, false, true},
		{"P23", "io_uring_enter", 426, []uintptr{minus, 1, 0, 0}, false, true},
		{"P23", "io_uring_register", 427, []uintptr{minus, 0, 0, 0}, false, true},

		{"P26", "open_tree", 428, []uintptr{minus, 0, 0}, false, false},
		{"P26", "move_mount", 429, []uintptr{minus, 0, minus, 0, 0}, true, false},
		{"P26", "fsopen", 430, []uintptr{0, 0}, true, false},
		{"P26", "fsconfig", 431, []uintptr{minus, 0, 0, 0, 0}, false, false},
		{"P26", "fsmount", 432, []uintptr{minus, 0, 0}, true, false},
		{"P26", "fspick", 433, []uintptr{minus, 0, 0}, true, false},
		{"P26", "mount_setattr", 442, []uintptr{minus, 0, 0, 0, 0}, false, false},
		{"P26", "statmount", 457, []uintptr{0, 0, 0, 0}, false, true},
		{"P26", "listmount", 458, []uintptr{0, 0, 0, 0}, false, true},
		{"P26", "open_tree_attr", 467, []uintptr{minus, 0, 0, 0, 0}, false, true},

		{"P25", "mount", unix.SYS_MOUNT, []uintptr{0, 0, 0, 0, 0}, false, false},
		{"P25", "umount2", unix.SYS_UMOUNT2, []uintptr{0, 0xff00}, false, false},
		{"P25", "pivot_root", unix.SYS_PIVOT_ROOT, []uintptr{0, 0}, true, false},
		{"P25", "chroot", unix.SYS_CHROOT, []uintptr{0}, false, false},
		{"P25", "setns", unix.SYS_SETNS, []uintptr{minus, 0}, false, false},
		{"P25", "unshare of a user namespace", unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWUSER}, false, false},
		{"P25", "unshare of a user namespace with a high bit", unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWUSER | 1<<32}, false, false},

		{"P27", "ptrace", unix.SYS_PTRACE, []uintptr{0x4206, minus, 0, 0}, false, false},
		{"P27", "process_vm_readv", unix.SYS_PROCESS_VM_READV, []uintptr{1 << 30, 0, 0, 0, 0, 1}, false, false},
		{"P27", "process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, []uintptr{1 << 30, 0, 0, 0, 0, 1}, false, false},
		{"P27", "pidfd_getfd", 438, []uintptr{minus, 0, 0}, false, false},
		{"P27", "kcmp", unix.SYS_KCMP, []uintptr{uintptr(os.Getpid()), 1 << 30, 0, 0, 0}, false, true},
		{"P27", "process_madvise", 440, []uintptr{minus, 0, 0, 0, 0}, false, true},

		{"P29", "bpf", unix.SYS_BPF, []uintptr{0, 0, 0}, true, true},
		{"P29", "bpf, an invalid command", unix.SYS_BPF, []uintptr{999, 0, 0}, true, true},
		{"P29", "perf_event_open", unix.SYS_PERF_EVENT_OPEN, []uintptr{0, 0, 0, 0, 0}, false, true},
		{"P29", "userfaultfd", unix.SYS_USERFAULTFD, []uintptr{0xff}, true, true},
		{"P29", "keyctl", unix.SYS_KEYCTL, []uintptr{9999, 0}, false, true},
		{"P29", "keyctl, the session keyring", unix.SYS_KEYCTL, []uintptr{0, ^uintptr(2), 1}, false, true},
		{"P29", "add_key", unix.SYS_ADD_KEY, []uintptr{0, 0, 0, 0, 0}, false, true},
		{"P29", "request_key", unix.SYS_REQUEST_KEY, []uintptr{0, 0, 0, 0}, false, true},
		{"P29", "kexec_load", unix.SYS_KEXEC_LOAD, []uintptr{0, 17, 0, 0xffff}, true, true},
		{"P29", "kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, []uintptr{minus, minus, 0, 0, 0xff00}, true, true},
		{"P29", "init_module", unix.SYS_INIT_MODULE, []uintptr{0, 0, 0}, true, true},
		{"P29", "finit_module", unix.SYS_FINIT_MODULE, []uintptr{minus, 0, 0}, true, true},
		{"P29", "delete_module", unix.SYS_DELETE_MODULE, []uintptr{0, 0}, true, true},
		{"P29", "open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, []uintptr{minus, 0, 0}, true, true},
		{"P29", "name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, []uintptr{minus, 0, 0, 0, 0xff0000}, false, true},
		{"P29", "swapon", unix.SYS_SWAPON, []uintptr{0, 0}, true, true},
		{"P29", "reboot", unix.SYS_REBOOT, []uintptr{0, 0, 0, 0}, true, false},
		{"P29", "acct", unix.SYS_ACCT, []uintptr{1}, true, true},
		{"P29", "syslog", unix.SYS_SYSLOG, []uintptr{10, 0, 0}, true, true},
		{"P29", "quotactl", unix.SYS_QUOTACTL, []uintptr{0, 0, 0, 0}, false, true},
		{"P29", "settimeofday", unix.SYS_SETTIMEOFDAY, []uintptr{1, 0}, false, false},
		{"P29", "clock_settime", unix.SYS_CLOCK_SETTIME, []uintptr{99, 0}, false, false},
		{"P29", "sethostname", unix.SYS_SETHOSTNAME, []uintptr{0, minus}, true, false},
		{"P29", "setdomainname", unix.SYS_SETDOMAINNAME, []uintptr{0, minus}, true, false},
		{"P29", "fanotify_init", unix.SYS_FANOTIFY_INIT, []uintptr{0xffff, 0}, false, true},
		{"P29", "mbind of another's pages", unix.SYS_MOVE_PAGES, []uintptr{1 << 30, 1, 0, 0, 0, 0xff}, false, true},
		{"P29", "lookup_dcookie", unix.SYS_LOOKUP_DCOOKIE, []uintptr{0, 0, 0}, false, true},
		{"P29", "quotactl_fd", 443, []uintptr{minus, 0, 0, 0}, false, true},
		{"P29", "lsm_set_self_attr", 460, []uintptr{0, 0, 0, 0}, false, true},
	}...) {
		for _, gate := range []struct {
			name string
			bit  uintptr
		}{{"", 0}, {" by its x32 number", x32}} {
			if gate.bit == 0 && gate.name != "" {
				continue
			}
			t := add(x.prop, x.name+gate.name, func() error { return call(x.nr|gate.bit, x.args...) }).reached()
			t.Root, t.Kernel = x.root, x.lack || gate.bit != 0
		}
	}
	for _, x := range []struct {
		prop, name string
		nr         uint32
		args       [3]uint32
		root       bool
	}{
		{"P29", "getpid", 20, [3]uint32{}, false}, {"P29", "keyctl", 288, [3]uint32{9999}, false}, {"P29", "add_key", 286, [3]uint32{}, false},
		{"P27", "ptrace", 26, [3]uint32{0x4206, ^uint32(0)}, false}, {"P25", "unshare", 310, [3]uint32{unix.CLONE_NEWUSER}, false},
		{"P25", "mount", 21, [3]uint32{}, false}, {"P21", "vsock", 359, [3]uint32{40, 1, 0}, false}, {"P21", "socketcall", 102, [3]uint32{1, 0, 0}, false},
		{"P23", "io_uring_setup", 425, [3]uint32{8}, false}, {"P30", "ioctl TIOCSTI", 54, [3]uint32{0, 0x5412, 0}, false}, {"P26", "open_tree", 428, [3]uint32{^uint32(0)}, false},
	} {
		name := fmt.Sprintf("int80-%s", x.name)
		subs[name] = func([]string) (err error) {
			// A kernel without the gate faults the instruction: nothing was reached.
			debug.SetPanicOnFault(true)
			defer func() {
				if recover() != nil {
					err = unix.ENOSYS
				}
			}()
			if r := int80(x.nr, x.args[0], x.args[1], x.args[2], 0, 0); r < 0 {
				return syscall.Errno(-r)
			}
			return nil
		}
		t := add(x.prop, x.name+" by the 32-bit gate", func() error { return in(name) }).reached().kernel()
		t.Root = x.root
		if x.name == "vsock" {
			t.marks("it may load a module into the machine's kernel")
		}
	}
	add("P29", "a handle of a file of the host", func() error {
		_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/usr", 0)
		return err
	}).kernel()
	for _, p := range []uintptr{0x0400000, 0x0100000, 0x0004000, 0x0800000} { // READ_IMPLIES_EXEC and the like
		add("P29", fmt.Sprintf("personality %#x", p), func() error { return in("personality", fmt.Sprint(p)) })
	}
	subs["personality"] = func(a []string) error {
		var p uintptr
		fmt.Sscan(a[0], &p)
		return call(unix.SYS_PERSONALITY, p)
	}
}

// namespaces is P25 and P26 with arguments that would work.
func namespaces() {
	for n, f := range map[string]uintptr{"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": 0x80} {
		if n != "user" {
			add("P25", "unshare "+n, func() error { return in("unshare", fmt.Sprint(f)) }).root()
		}
		if n == "time" {
			continue
		}
		t := add("P25", "clone with a new "+n+" namespace", func() error { return fork(f, 0) })
		t.Root = n != "user"
		t = add("P25", "clone with a new "+n+" namespace and a high bit", func() error { return fork(f, 1<<40) })
		t.Root = n != "user"
		t = add("P25", "clone3 with a new "+n+" namespace", func() error { return fork3(uint64(f)) })
		t.Root = n != "user"
		for _, pid := range []string{"1", "self", fmt.Sprint(c.Pid)} {
			file := "/proc/" + pid + "/ns/" + map[bool]string{true: "mnt", false: n}[n == "mount"]
			t := add("P25", "join the "+n+" namespace of "+who(pid), func() error { return in("setns", file) }).root()
			t.Kernel = pid == "1" // which may have more rights than root here
		}
	}
	subs["unshare"] = func(a []string) error {
		var f uintptr
		fmt.Sscan(a[0], &f)
		return call(unix.SYS_UNSHARE, f)
	}
	subs["setns"] = func(a []string) error {
		fd, err := unix.Open(a[0], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		if err := unix.Setns(fd, 0); err != unix.EINVAL {
			return err
		}
		return nil // the kernel has its own reasons against a process with threads
	}
	subs["setns-pidfd"] = func(a []string) error {
		var pid int
		fmt.Sscan(a[0], &pid)
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		return unix.Setns(fd, unix.CLONE_NEWNET|unix.CLONE_NEWUTS)
	}
	add("P25", "join namespaces by a pidfd of 1", func() error { return in("setns-pidfd", "1") }).root().kernel()
	add("P25", "join namespaces by a pidfd of the sleeper", func() error { return in("setns-pidfd", fmt.Sprint(c.Pid)) }).root()

	// In namespaces of its own where it gets them, so that the host keeps its mounts.
	mount := func(name string, f func() error) {
		subs[name] = func([]string) error {
			if unix.Unshare(unix.CLONE_NEWNS) == nil {
				_ = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
			}
			return f()
		}
		prop := "P25"
		if name[:3] == "new" {
			prop = "P26"
		}
		add(prop, name, func() error { return in(name) }).root()
		add(prop, name+", in a new user namespace", func() error {
			cmd := again("sub", name)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
			return child(cmd)
		})
	}
	dir := c.Work + "/mnt"
	_ = os.Mkdir(dir, 0o755)
	mount("mount a tmpfs", func() error { return unix.Mount("none", dir, "tmpfs", 0, "") })
	mount("bind /usr", func() error { return unix.Mount("/usr", dir, "", unix.MS_BIND|unix.MS_REC, "") })
	if known, _ := os.ReadFile("/proc/filesystems"); !careful() || strings.Contains(string(known), "\toverlay\n") {
		mount("overlay on /usr", func() error {
			return unix.Mount("none", dir, "overlay", 0, "lowerdir=/usr/bin:/usr/sbin")
		})
	}
	mount("new mount API: a tmpfs", func() error {
		fs, err := unix.Fsopen("tmpfs", 0)
		if err != nil {
			return err
		}
		if err := unix.FsconfigCreate(fs); err != nil {
			return err
		}
		m, err := unix.Fsmount(fs, 0, 0)
		if err != nil {
			return err
		}
		return unix.MoveMount(m, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
	mount("new mount API: a copy of /usr, writable", func() error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/usr", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE)
		if err != nil {
			return err
		}
		return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: 0})
	})
	for _, p := range []string{"/proc/keys", "/proc/kallsyms", "/proc/sys", "/usr", "/dev/null", "/proc", "/"} {
		add("P25", "unmount "+p, func() error { return unix.Unmount(p, unix.MNT_DETACH) }).harms("it would take the machine's own away")
	}
	add("P25", "remount /usr writable", func() error { return unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, "") }).harms("it is the machine's own")
	add("P25", "mount a second proc", func() error { return unix.Mount("proc", dir, "proc", 0, "") }).harms("it would stay on the machine")
	add("P25", "change the loopback interface", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		r, _ := unix.NewIfreq("lo")
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r) // as it is
	}).root().marks("it is the machine's own")
	add("P25", "add an interface", func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// RTM_NEWLINK, create, exclusive, acknowledged; no attributes.
		msg := make([]byte, 32)
		*(*uint32)(unsafe.Pointer(&msg[0])) = 32
		*(*uint16)(unsafe.Pointer(&msg[4])) = unix.RTM_NEWLINK
		*(*uint16)(unsafe.Pointer(&msg[6])) = unix.NLM_F_REQUEST | unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_EXCL
		if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		buf := make([]byte, 4096)
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || n < 20 {
			return err
		}
		if e := *(*int32)(unsafe.Pointer(&buf[16])); e != 0 {
			return syscall.Errno(-e)
		}
		return nil
	}).reached().root()
}

// who keeps a number that changes from run to run out of a name.
func who(pid string) string {
	if pid == fmt.Sprint(c.Pid) {
		return "the sleeper"
	}
	return pid
}

// fork makes a copy of this process that ends at once.
//
//go:norace
func fork(flags, high uintptr) error {
	pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE, flags|high|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e == 0 && pid == 0 {
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	if e != 0 {
		return e
	}
	_, err := syscall.Wait4(int(pid), nil, 0, nil)
	return err
}

//go:norace
func fork3(flags uint64) error {
	args := [11]uint64{0: flags, 4: uint64(unix.SIGCHLD)}
	pid, _, e := syscall.RawSyscall(unix.SYS_CLONE3, ptr(&args), 64, 0)
	if e == 0 && pid == 0 {
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	if e != 0 {
		return e
	}
	_, err := syscall.Wait4(int(pid), nil, 0, nil)
	return err
}

func keys() {
	if c.Key == "" {
		return
	}
	read := func(ring int) error {
		id, err := unix.KeyctlSearch(ring, "user", c.Key, 0)
		if err != nil {
			return err
		}
		buf := make([]byte, 256)
		_, err = unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
		return err
	}
	add("KEY", "read a key of the host's session keyring", func() error { return read(unix.KEY_SPEC_SESSION_KEYRING) })
	add("KEY", "ask for a key of the host by its name", func() error {
		_, err := unix.RequestKey("user", c.Key, "", 0)
		return err
	})
}
