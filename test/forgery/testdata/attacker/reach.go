//go:build linux

package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	probes["F1"] = listeners
	probes["F2"] = walk
	probes["F3"] = func([]string) { take() }
	probes["F4"] = func([]string) { trace() }
	probes["F5"] = func([]string) { memory() }
	probes["F6"] = secrets
	probes["F7"] = signals
	probes["F7guardian"] = guardian
	probes["F13"] = image
	probes["F14"] = cores
	probes["F15"] = usernamespace
	probes["F15in"] = func([]string) {
		done("a process with CAP_SYS_PTRACE in its own user namespace")
		take()
		trace()
		memory()
	}
}

// listeners is F1.
func listeners([]string) {
	mine, err := net.Listen("unix", "@forgery-control")
	if err != nil {
		try("listen as the control", "", -1, err)
		return
	}
	defer mine.Close()
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil || !bytes.Contains(table, []byte("@forgery-control")) {
		try("enumerate unix sockets", "", -1, fmt.Errorf("the control is not listed: %v", err))
		return
	}
	done("enumerate unix sockets; this program's own is listed")
	for l := range strings.Lines(string(table)) {
		f := strings.Fields(l)
		if len(f) < 8 || f[7] == "@forgery-control" || f[3] != "00010000" {
			continue
		}
		c, err := net.Dial("unix", f[7])
		if try("connect to "+f[7], access, -1, err) {
			c.Close()
		}
	}
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6", "packet", "netlink", "vsock"} {
		table, err := os.ReadFile("/proc/net/" + file)
		if err != nil {
			try("enumerate "+file, "", -1, err)
			continue
		}
		done("enumerate " + file)
		for l := range strings.Lines(string(table)) {
			f := strings.Fields(l)
			if len(f) < 4 || f[3] != "0A" || !strings.HasPrefix(file, "tcp") {
				continue
			}
			_, port, _ := strings.Cut(f[1], ":")
			n, _ := strconv.ParseUint(port, 16, 16)
			c, err := net.DialTimeout("tcp", fmt.Sprintf("localhost:%d", n), time.Second)
			if try(fmt.Sprintf("connect to port %d", n), access, -1, err) {
				c.Close()
			}
		}
	}
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	l := "no such family"
	if err == unix.EAFNOSUPPORT {
		l = "seccomp"
	}
	if try("a vsock socket", l, -1, err) {
		for _, cid := range []uint32{0, 1, 2} {
			try(fmt.Sprintf("connect to vsock %d", cid), "no such peer", -1, unix.Connect(fd, &unix.SockaddrVM{CID: cid, Port: 1}))
		}
	}
}

// walk is F2: the descriptors that this program has, then everybody's.
func walk([]string) {
	for _, fd := range own() {
		done(fmt.Sprintf("look at descriptor %d that was left to this program", fd))
		if isSocket(fd) {
			say(line{What: fmt.Sprintf("a socket was left open as %d", fd), Did: "possible"})
			speak(fd, "inheritance", "somebody")
		}
	}
	for _, p := range visible() {
		about = p
		dir := fmt.Sprintf("/proc/%d/fd", p.pid)
		ents, err := os.ReadDir(dir)
		who := fmt.Sprintf("%d (%s)", p.pid, p.role)
		try("list the descriptors of "+who, access, -1, err)
		for fd := range 16 {
			path := fmt.Sprintf("%s/%d", dir, fd)
			_, lerr := os.Readlink(path)
			_, oerr := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if fd > 4 && lerr != nil && len(ents) == 0 {
				continue
			}
			try(fmt.Sprintf("read descriptor %d of %s", fd, who), access, -1, lerr)
			if oerr != unix.ENXIO && oerr != unix.ENOENT { // a socket cannot be opened so; a number that is not there neither
				try(fmt.Sprintf("open descriptor %d of %s", fd, who), access, -1, oerr)
			}
		}
	}
}

// take is F3.
func take() {
	list := visible()
	for pid := 2; pid < 64; pid++ {
		list = append(list, proc{pid, "number"})
	}
	named := map[int]bool{}
	for _, p := range list {
		about = p
		if named[p.pid] || p.pid == os.Getpid() {
			continue
		}
		named[p.pid] = true
		h, err := unix.PidfdOpen(p.pid, 0)
		if err != nil {
			if p.role != "number" {
				try(fmt.Sprintf("pidfd_open %d", p.pid), access, unix.SYS_PIDFD_OPEN, err)
			}
			continue
		}
		for fd := range 16 {
			got, err := unix.PidfdGetfd(h, fd, 0)
			if err == unix.EBADF && fd > 0 {
				continue
			}
			if err != nil && fd > 0 && fd != 3 {
				continue
			}
			if p.role == "number" {
				if err == nil {
					unix.Close(got)
				}
				continue // another tool's: the same power
			}
			if try(fmt.Sprintf("take descriptor %d of %d (%s)", fd, p.pid, p.role), access, unix.SYS_PIDFD_GETFD, err) {
				if fd >= 3 && isSocket(got) {
					speak(got, "pidfd_getfd", p.role)
				}
				unix.Close(got)
			}
		}
		unix.Close(h)
	}
}

// trace is F4.
func trace() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, p := range visible() {
		about = p
		who := fmt.Sprintf("%d (%s)", p.pid, p.role)
		_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(p.pid), 0, 0, 0, 0)
		if try("seize "+who, access, unix.SYS_PTRACE, eno(e)) {
			_ = unix.PtraceInterrupt(p.pid)
			_, _ = syscall.Wait4(p.pid, nil, unix.WALL, nil)
			_ = unix.PtraceDetach(p.pid)
			continue
		}
		err := unix.PtraceAttach(p.pid)
		if try("attach to "+who, access, unix.SYS_PTRACE, err) {
			_, _ = syscall.Wait4(p.pid, nil, unix.WALL, nil)
			_ = unix.PtraceDetach(p.pid)
		}
	}
}

func eno(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// memory is F5. At an address where nothing is: the kernel checks the right
// before that.
func memory() {
	for _, p := range visible() {
		about = p
		who := fmt.Sprintf("%d (%s)", p.pid, p.role)
		buf := make([]byte, 8)
		local, far := []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x10, Len: 8}}
		reached := func(err error) error {
			if err == unix.EFAULT {
				return nil
			}
			return err
		}
		_, err := unix.ProcessVMWritev(p.pid, local, far, 0)
		try("write the memory of "+who, access, unix.SYS_PROCESS_VM_WRITEV, reached(err))
		_, err = unix.ProcessVMReadv(p.pid, local, far, 0)
		try("read the memory of "+who, access, unix.SYS_PROCESS_VM_READV, reached(err))
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", p.pid), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if try("open the memory of "+who, access, -1, err) {
			unix.Close(fd)
		}
	}
}

// secrets is F6.
func secrets([]string) {
	for _, p := range visible() {
		about = p
		for _, f := range []string{"environ", "cmdline", "maps", "auxv", "stack", "syscall", "pagemap", "smaps", "stat"} {
			fd, err := os.Open(fmt.Sprintf("/proc/%d/%s", p.pid, f))
			if err == nil {
				var b []byte
				b, err = io.ReadAll(io.LimitReader(fd, 64<<10))
				fd.Close()
				if err == nil && len(b) > 0 {
					did := "possible"
					if f == "cmdline" || f == "stat" || became() { // anybody's to read; there must be nothing in it
						did = "done"
					}
					say(line{What: fmt.Sprintf("read %s of %d (%s)", f, p.pid, p.role), Did: did, Leak: hex.EncodeToString(b)})
					continue
				}
				if err == nil {
					err = unix.EACCES // an empty file is how the kernel refuses some of them
				}
			}
			try(fmt.Sprintf("read %s of %d (%s)", f, p.pid, p.role), access, -1, err)
		}
	}
}

// signals is F7 for what must not end: process 1, and W where it has a number.
func signals([]string) {
	for _, p := range visible() {
		about = p
		if p.pid == os.Getppid() {
			continue // F7guardian
		}
		for _, s := range []syscall.Signal{unix.SIGSTOP, unix.SIGKILL, unix.SIGTSTP, unix.SIGSEGV, unix.SIGTERM, unix.SIGQUIT} {
			if p.role == "call" {
				continue // the spare's end is no harm, and another's is that call's
			}
			err := unix.Kill(p.pid, s)
			if err != nil {
				try(fmt.Sprintf("signal %d to %d (%s)", s, p.pid, p.role), access, unix.SYS_KILL, err)
			} else {
				done(fmt.Sprintf("signal %d to %d (%s)", s, p.pid, p.role))
			}
		}
	}
	for _, fd := range own() {
		if isSocket(fd) {
			say(line{What: fmt.Sprintf("a socket was left open as %d", fd), Did: "possible"})
			speak(fd, "inheritance", "somebody")
		}
	}
}

// guardian is F7 for the process that watches over this one.
func guardian(a []string) {
	n, _ := strconv.Atoi(a[0])
	done(fmt.Sprintf("signal %d to the guardian: %v", n, unix.Kill(os.Getppid(), syscall.Signal(n))))
	for _, fd := range own() {
		if isSocket(fd) {
			_, _ = unix.SendmsgN(fd, exitRecord(), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
	}
	os.Exit(7)
}

// image is F13.
func image([]string) {
	for _, p := range visible() {
		about = p
		for _, flag := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR | unix.O_TRUNC} {
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/exe", p.pid), flag|unix.O_CLOEXEC, 0)
			if try(fmt.Sprintf("open the program of %d (%s) with %#x", p.pid, p.role, flag), access, -1, err) {
				unix.Close(fd)
			}
		}
		try(fmt.Sprintf("start the program of %d (%s)", p.pid, p.role), access, -1, run(fmt.Sprintf("/proc/%d/exe", p.pid), "caisson-worker", "relay", "1"))
	}
	about = proc{}
	for path, text := range map[string]string{"/etc/ld.so.preload": "/tmp/x.so\n", "/proc/sys/fs/binfmt_misc/register": ":x:M::\\x7fELF::/tmp/x:", "/etc/ld.so.conf": "/tmp\n", "/etc/ld.so.cache": "x"} {
		try("write "+path, "read-only mount", -1, os.WriteFile(path, []byte(text), 0o644))
	}
	try("mount binfmt_misc", "no capability", unix.SYS_MOUNT, unix.Mount("x", "/tmp", "binfmt_misc", 0, ""))
}

// run starts a program and reports whether it could be started.
func run(path string, argv ...string) error {
	cmd := exec.Command(path)
	cmd.Args = argv
	err := cmd.Start()
	if err == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

// cores is F14.
func cores([]string) {
	try("write core_pattern", "read-only mount", -1, os.WriteFile("/proc/sys/kernel/core_pattern", []byte("/tmp/core.%p"), 0o644))
	for _, p := range visible() {
		about = p
		who := fmt.Sprintf("%d (%s)", p.pid, p.role)
		l := unix.Rlimit{Cur: 1 << 30, Max: 1 << 30}
		err := unix.Prlimit(p.pid, unix.RLIMIT_CORE, &l, nil)
		if p.role == "call" || p.pid == os.Getppid() {
			done(fmt.Sprintf("allow %s to dump core: %v", who, err)) // one user; the kernel dumps none that is not dumpable
		} else {
			try("allow "+who+" to dump core", access, unix.SYS_PRLIMIT64, err)
		}
		try("write the dump filter of "+who, access, -1, os.WriteFile(fmt.Sprintf("/proc/%d/coredump_filter", p.pid), []byte("ff"), 0o644))
		for _, s := range []syscall.Signal{unix.SIGSEGV, unix.SIGABRT, unix.SIGQUIT, unix.SIGBUS} {
			if p.role != "relay" && p.role != "tools" {
				done(fmt.Sprintf("signal %d to %s: %v", s, who, unix.Kill(p.pid, s)))
			}
		}
	}
	about = proc{}
	for _, dir := range []string{".", "/tmp", "/var/tmp", "/"} {
		ents, _ := os.ReadDir(dir)
		for _, e := range ents {
			if strings.HasPrefix(e.Name(), "core") {
				b, _ := os.ReadFile(dir + "/" + e.Name())
				say(line{What: "a core in " + dir, Did: "possible", Leak: hex.EncodeToString(b[:min(len(b), 1<<20)])})
			}
		}
	}
	done("look for cores")
}

// usernamespace is F15.
func usernamespace([]string) {
	runtime.LockOSThread()
	try("unshare a user namespace", "no permission", unix.SYS_UNSHARE, unix.Unshare(unix.CLONE_NEWUSER))
	cmd := exec.Command("/proc/self/exe", "F15in")
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	id := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: id, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	err := cmd.Run()
	if err != nil {
		try("a child in a user namespace of its own", "seccomp", -1, err)
	} else {
		done("a child in a user namespace of its own")
	}
}
