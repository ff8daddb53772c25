//go:build linux

package attack

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inherited lists the descriptors that this program was started with, before
// it opens any of its own.
func inherited() []int {
	var out []int
	for fd := 3; fd <= 4096; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil {
			if link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); !strings.HasPrefix(link, "anon_inode:[event") {
				out = append(out, fd)
			}
		}
	}
	return out
}

func descriptors(fds []int) {
	any := func(f func(fd int) error) func() error {
		return func() error {
			var last error = unix.EPERM
			for _, fd := range fds {
				if last = f(fd); last == nil {
					return nil
				}
			}
			return last
		}
	}
	add("P12", "have a descriptor above 2", any(func(int) error { return nil }))
	add("P12", "read a file through a descriptor", any(func(fd int) error {
		buf := make([]byte, 4096)
		n, err := unix.Pread(fd, buf, 0)
		if err != nil {
			return err
		}
		return secret(buf[:n])
	}))
	add("P12", "walk up from a folder descriptor", any(func(fd int) error {
		d, err := unix.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err == nil {
			unix.Close(d)
		}
		return err
	}))
	add("P12", "accept on a listener's descriptor", any(func(fd int) error {
		v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if err == nil && v == 0 {
			err = unix.EINVAL
		}
		return err
	}))
}

func secret(data []byte) error {
	if c.Secret != "" && strings.Contains(string(data), c.Secret) {
		return nil
	}
	return errConfined
}

func read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return err
	}
	return secret(data)
}

func readAt(fd int, path string) error {
	f, err := unix.Openat(fd, path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(f)
	buf := make([]byte, 4096)
	n, err := unix.Read(f, buf)
	if err != nil {
		return err
	}
	return secret(buf[:n])
}

var up = strings.Repeat("../", 24)

func paths() {
	for i, f := range c.Files {
		add("P01", "read "+f, func() error { return read(f) })
		link := filepath.Join(c.Work, fmt.Sprintf("link%d", i))
		add("P01", "read through a link to "+f, func() error {
			if err := os.Symlink(f, link); err != nil {
				return err
			}
			defer os.Remove(link)
			return read(link)
		})
		for _, how := range []string{"/proc/self/root", "/proc/thread-self/root", "/proc/self/cwd/" + up, "/proc/self/task/../root", "/proc/self/root/" + up, "/usr/../" + up} {
			add("P01", "read "+how+f, func() error { return read(how + f) })
		}
		add("P01", "read /proc/1/root"+f, func() error { return read("/proc/1/root" + f) }).root().kernel()
		add("P01", "read through the root of any process: "+f, func() error {
			var last error = unix.ENOENT
			for _, p := range pids() {
				for _, how := range []string{"/root", "/cwd/" + up} {
					if last = read(fmt.Sprintf("/proc/%d%s%s", p, how, f)); last == nil {
						return nil
					}
				}
			}
			return last
		})
		for _, from := range []string{"/", c.Work, "/usr"} {
			add("P01", "read from a descriptor of "+from+": "+f, func() error {
				fd, err := unix.Open(from, unix.O_PATH|unix.O_DIRECTORY, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return readAt(fd, up+f[1:])
			})
			add("P01", "read through /dev/fd of "+from+": "+f, func() error {
				fd, err := unix.Open(from, unix.O_RDONLY|unix.O_DIRECTORY, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return read(fmt.Sprintf("/dev/fd/%d/%s%s", fd, up, f))
			})
		}
		add("P01", "hard link to "+f, func() error {
			if err := os.Link(f, link+"h"); err != nil {
				return err
			}
			defer os.Remove(link + "h")
			return read(link + "h")
		})
		add("P01", "move "+f+" in", func() error {
			if err := os.Rename(f, link+"m"); err != nil {
				return err
			}
			err := read(link + "m")
			_ = os.Rename(link+"m", f)
			return err
		})
	}
	for _, f := range c.Forbidden {
		for _, how := range []string{"", "/proc/self/root", "/proc/self/cwd/" + up} {
			add("P01", "open "+how+f, func() error {
				fd, err := unix.Open(how+f, unix.O_PATH, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				var st unix.Stat_t
				if want, is := c.Ident[f]; is && unix.Fstat(fd, &st) == nil && fmt.Sprintf("%d:%d", st.Dev, st.Ino) != want {
					return errConfined // the name alone
				}
				return nil
			})
		}
	}
	if len(c.Handle) > 0 {
		// The file system of /usr may be the one of the file: no path is needed.
		add("P29", "open a file by its handle", func() error {
			d, err := unix.Open("/usr", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			defer unix.Close(d)
			fd, err := unix.OpenByHandleAt(d, unix.NewFileHandle(int32(c.HandleOn), c.Handle), unix.O_RDONLY)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			buf := make([]byte, 4096)
			n, err := unix.Read(fd, buf)
			if err != nil {
				return err
			}
			return secret(buf[:n])
		}).root()
	}
}

func open(path string, flags int) func() error {
	return func() error {
		fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		return unix.Close(fd)
	}
}

// theirs makes do an attempt at the host's own file: what worked on another one of
// that name was done to a copy of the boundary's own.
func theirs(path string, do func() error) func() error {
	return func() error {
		err := do()
		if err == nil && c.Ident != nil && !isHosts(path) {
			return errConfined
		}
		return err
	}
}

// isHosts reports whether path leads to what it leads to on the host.
func isHosts(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && c.Ident[path] == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// writes are P14 and P63. Nothing is written outside: an open file shows it.
func writes() {
	for _, p := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/ns_last_pid", "/proc/sys/vm/drop_caches",
		"/proc/sys/vm/overcommit_memory", "/proc/sys/fs/suid_dumpable", "/proc/sys/user/max_user_namespaces", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/panic",
		"/proc/sysrq-trigger", "/proc/mtrr", "/proc/irq/default_smp_affinity", "/proc/self/root/proc/sys/kernel/core_pattern", "/proc/1/oom_score_adj",
		"/proc/1/uid_map", "/proc/1/setgroups", "/proc/1/mem", "/proc/1/clear_refs", "/proc/1/autogroup",
		"/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/cgroup.procs",
		"/sys/fs/cgroup/memory/release_agent", "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state",
		"/sys/module/kernel/parameters/panic", "/proc/sys/fs/binfmt_misc/register", "/proc/scsi/scsi", "/proc/acpi/wakeup",
	} {
		t := add("P14", "write "+p, open(p, unix.O_WRONLY)).root().kernel()
		t.ours = strings.HasPrefix(p, "/proc/1/")
	}
	for p, text := range map[string]string{"/proc/1/attr/current": "x", "/proc/1/attr/keycreate": "x", "/proc/1/timerslack_ns": "50000", "/proc/1/comm": "x"} {
		// Everybody may open these; the kernel refuses on writing.
		add("P14", "change "+p, func() error { return os.WriteFile(p, []byte(text), 0) }).harms("it would change pid 1 of the machine")
	}
	for _, p := range []string{"/proc/kcore", "/proc/kmsg", "/proc/kallsyms", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/iomem", "/proc/ioports", "/proc/slabinfo",
		"/proc/vmallocinfo", "/proc/kpageflags", "/proc/sched_debug", "/proc/pagetypeinfo", "/proc/1/environ", "/proc/1/maps", "/proc/1/auxv", "/proc/1/stack", "/proc/1/syscall"} {
		t := add("P14", "learn from "+p, func() error {
			fd, err := unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			buf := make([]byte, 64)
			n, err := unix.Pread(fd, buf, 0)
			if err == unix.EAGAIN || err == nil && n > 0 {
				return nil
			}
			if err == nil {
				return errConfined
			}
			return err
		}).root().kernel()
		t.ours = strings.HasPrefix(p, "/proc/1/")
		if p == "/proc/kmsg" {
			t.marks("what is read there no other reader gets")
		}
	}
	for _, p := range []string{"/sys/kernel/security", "/sys/kernel/debug", "/sys/fs/cgroup", "/sys/class/net", "/sys/block", "/sys/firmware", "/sys/fs/bpf", "/proc/1/cwd", "/proc/1/fd", "/proc/1/map_files"} {
		add("P14", "list "+p, func() error { _, err := os.ReadDir(p); return err }).root().kernel().ours = strings.HasPrefix(p, "/proc/1/")
	}
	add("P14", "make a control group", func() error {
		var last error
		for _, d := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			p := d + "/" + unique()
			if last = os.Mkdir(p, 0o755); last == nil {
				return os.Remove(p)
			}
		}
		return last
	}).root().marks("it would make a control group on the machine")

	for _, p := range SystemFiles {
		add("P63", "open for writing "+p, theirs(p, open(p, unix.O_WRONLY))).root().kernel()
		add("P63", "open for appending, through /proc/self/root: "+p, theirs(p, open("/proc/self/root"+p, unix.O_WRONLY|unix.O_APPEND))).root().kernel()
	}
	for _, d := range SystemFolders {
		p := filepath.Join(d, unique())
		mayWrite := theirs(d, func() error { return unix.Faccessat(unix.AT_FDCWD, d, unix.W_OK, unix.AT_EACCESS) })
		add("P63", "make a file in "+d, theirs(d, func() error {
			fd, err := unix.Open(p, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			unix.Close(fd)
			return os.Remove(p)
		})).root().kernel().or(mayWrite)
		add("P63", "make a folder in "+d, theirs(d, func() error {
			if err := os.Mkdir(p, 0o755); err != nil {
				return err
			}
			return os.Remove(p)
		})).root().kernel().or(mayWrite)
		add("P63", "make a link in "+d, theirs(d, func() error {
			if err := os.Symlink("/etc/passwd", p); err != nil {
				return err
			}
			return os.Remove(p)
		})).root().kernel().or(mayWrite)
	}
	same := func(what string, f func(path string, st *unix.Stat_t) error) {
		for _, p := range []string{"/usr/bin/env", "/etc/passwd", "/usr/lib"} {
			add("P63", what+" "+p, func() error {
				var st unix.Stat_t
				if err := unix.Stat(p, &st); err != nil {
					return err
				}
				return f(p, &st)
			}).root().marks("it would touch the machine's own files")
		}
	}
	// Each sets what is already there: outside nothing changes.
	same("change the mode of", func(p string, st *unix.Stat_t) error { return unix.Chmod(p, st.Mode&0o7777) })
	same("change the owner of", func(p string, st *unix.Stat_t) error { return unix.Chown(p, int(st.Uid), int(st.Gid)) })
	same("change the times of", func(p string, st *unix.Stat_t) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{st.Atim, st.Mtim}, 0)
	})
	same("set an attribute of", func(p string, st *unix.Stat_t) error {
		if err := unix.Setxattr(p, "user.conformance", []byte("x"), 0); err != nil {
			return err
		}
		return unix.Removexattr(p, "user.conformance")
	})
	add("P63", "replace /etc/passwd by rename", func() error {
		if err := os.WriteFile(c.Work+"/passwd", []byte("x"), 0o644); err != nil {
			return err
		}
		return os.Rename(c.Work+"/passwd", "/etc/passwd")
	}).harms("it would replace the machine's own")
	add("P63", "remove /etc/hosts", func() error { return os.Remove("/etc/hosts") }).harms("it would remove the machine's own")
	add("P63", "turn off the read-only root", func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") }).harms("it would remount the machine's own root")
	if c.Inside {
		for _, d := range []string{"/run/boundary", "/run/boundary/objects", "/run/boundary/objects/0", "/run/boundary/objects/0/pack", "/run/boundary/objects/0/info"} {
			p := filepath.Join(d, unique())
			add("P63", "write in the shared object store: "+d, func() error { return os.WriteFile(p, nil, 0o644) }).harms("it exists inside only").own()
		}
	}
}

func unique() string { return fmt.Sprintf("zz-conformance-%d", os.Getpid()) }

// loading are devices whose names are there before what answers at them is.
var loading = []string{"/dev/fuse", "/dev/net/tun", "/dev/loop-control", "/dev/vhost-vsock", "/dev/vhost-net", "/dev/uinput", "/dev/snd/seq", "/dev/cuse", "/dev/mapper/control", "/dev/btrfs-control", "/dev/autofs"}

func devices() {
	mk := func(name string, mode uint32, dev uint64) {
		p := filepath.Join(c.Work, name)
		add("P32", "make the device "+name, func() error {
			if err := unix.Mknod(p, mode|0o666, int(dev)); err != nil {
				return err
			}
			return os.Remove(p)
		}).root()
		add("P32", "make the device "+name+" in /dev/shm", func() error {
			p := "/dev/shm/" + unique()
			if err := unix.Mknod(p, mode|0o666, int(dev)); err != nil {
				return err
			}
			return os.Remove(p)
		}).root()
	}
	mk("null", syscall.S_IFCHR, unix.Mkdev(1, 3))
	mk("mem", syscall.S_IFCHR, unix.Mkdev(1, 1))
	mk("kmsg", syscall.S_IFCHR, unix.Mkdev(1, 11))
	mk("disk", syscall.S_IFBLK, unix.Mkdev(254, 0))
	mk("fuse", syscall.S_IFCHR, unix.Mkdev(10, 229))
	for _, p := range []string{"/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control",
		"/dev/kmsg", "/dev/vsock", "/dev/vhost-vsock", "/dev/vhost-net", "/dev/userfaultfd", "/dev/uinput", "/dev/input/event0", "/dev/dri/card0", "/dev/snd/seq", "/dev/console", "/dev/tty0", "/dev/tty1",
		"/dev/ttyS0", "/dev/hpet", "/dev/rtc0", "/dev/cuse", "/dev/mapper/control", "/dev/btrfs-control", "/dev/autofs", "/dev/vport0p1", "/dev/hwrng", "/dev/nvram", "/dev/cpu/0/msr"} {
		t := add("P32", "open "+p, open(p, unix.O_RDONLY)).root().kernel()
		if slices.Contains(loading, p) {
			t.marks("it may load a module into the machine's kernel")
		}
	}
}
