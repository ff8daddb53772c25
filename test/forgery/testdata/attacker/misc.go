//go:build linux

package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	probes["F8"] = func([]string) { spawned() }
	probes["F8forker"] = forker
	probes["F9"] = oldFrames
	probes["F12leave"] = leave
	probes["F12serve"] = serve
	probes["F12fetch"] = fetch
	probes["F16"] = ring
	probes["F17fds"] = exhaustFDs
	probes["F17starve"] = starve
	probes["F17memory"] = exhaustMemory
	probes["F17pids"] = exhaustPids
	probes["F19"] = garbage
	probes["F20"] = crosstalk
	probes["F21"] = secondWorker
	probes["F22"] = clocks
}

// spawned prints what a freshly started program has that it should not.
func spawned() {
	for _, fd := range own() {
		t, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		say(line{What: fmt.Sprintf("descriptor %d, %s, was left open", fd, t), Did: "possible"})
	}
	done("look at what is open")
}

// forker forks for as long as its input is open: children that keep everything.
func forker([]string) {
	go func() {
		for {
			cmd := exec.Command("/proc/self/exe", "F8")
			out, _ := cmd.Output()
			if strings.Contains(string(out), "possible") {
				fmt.Print(string(out))
			}
		}
	}()
	_, _ = stdin.ReadString('\n')
	done("fork before and after other operations")
}

// oldFrames is F9: frames as they went over the channel, printed.
func oldFrames(a []string) {
	for _, h := range a {
		b, _ := hex.DecodeString(h)
		for _, fd := range []int{1, 2} {
			_, err := unix.Write(fd, b)
			if err == nil && fd == 2 {
				continue
			}
		}
	}
	fmt.Println()
	done(fmt.Sprintf("print %d old frames on stdout and stderr", len(a)))
}

// leave is the first half of F12: a server that stays and holds what this
// program has.
func leave([]string) {
	cmd := exec.Command("/proc/self/exe", "F12serve")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, fd := range own() {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), "own"))
	}
	if err := cmd.Start(); err != nil {
		try("leave a server behind", "", -1, err)
		return
	}
	done("leave a server behind")
	time.Sleep(50 * time.Millisecond)
}

const meeting = "@forgery-f12"

func serve([]string) {
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Bind(l, &unix.SockaddrUnix{Name: meeting})
	}
	if err == nil {
		err = unix.Listen(l, 4)
	}
	if err != nil {
		return
	}
	for {
		c, _, err := unix.Accept(l)
		if err != nil {
			return
		}
		fds := []int{0, 1, 2}
		for _, fd := range own() {
			if fd != c && fd != l {
				fds = append(fds, fd)
			}
		}
		_ = unix.Sendmsg(c, []byte{byte(len(fds))}, unix.UnixRights(fds...), nil, 0)
		unix.Close(c)
	}
}

// fetch is the second half: what the other operation had, in this one.
func fetch([]string) {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	for range 200 {
		if err = unix.Connect(s, &unix.SockaddrUnix{Name: meeting}); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		try("reach the server of an earlier operation", "", -1, err)
		return
	}
	var b [1]byte
	oob := make([]byte, 1024)
	_, n, _, _, err := unix.Recvmsg(s, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		try("receive descriptors of an earlier operation", "", -1, err)
		return
	}
	msgs, _ := unix.ParseSocketControlMessage(oob[:n])
	for i := range msgs {
		fds, _ := unix.ParseUnixRights(&msgs[i])
		done(fmt.Sprintf("receive %d descriptors of an earlier operation", len(fds)))
		for _, fd := range fds {
			if isSocket(fd) {
				say(line{What: "an earlier operation had a socket", Did: "possible"})
				speak(fd, "SCM_RIGHTS", "somebody")
			}
		}
	}
}

// ring is F16: descriptors that a ring keeps are nobody's to see.
func ring([]string) {
	var params [120]byte
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params[0])), 0)
	if !try("make an io_uring", "not on this machine (kernel.io_uring_disabled)", unix.SYS_IO_URING_SETUP, eno(e)) {
		return
	}
	for _, s := range own() {
		if int(fd) == s || !isSocket(s) {
			continue
		}
		n := int32(s)
		_, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, fd, 2, uintptr(unsafe.Pointer(&n)), 1, 0, 0)
		if try(fmt.Sprintf("keep socket %d in it", s), "", -1, eno(e)) {
			speak(s, "io_uring", "somebody")
		}
	}
	unix.Close(int(fd))
}

// starve is F17 by the kernel's own means: limits and priorities of others.
func starve([]string) {
	for _, p := range visible() {
		about = p
		who := fmt.Sprintf("%d (%s)", p.pid, p.role)
		for res, name := range map[int]string{unix.RLIMIT_CPU: "processor time", unix.RLIMIT_AS: "memory", unix.RLIMIT_NOFILE: "descriptors", unix.RLIMIT_NPROC: "processes", unix.RLIMIT_STACK: "stack", unix.RLIMIT_FSIZE: "file size"} {
			if p.role == "call" {
				continue // a guardian may be killed as well
			}
			try("leave no "+name+" to "+who, access, unix.SYS_PRLIMIT64, unix.Prlimit(p.pid, res, &unix.Rlimit{}, nil))
		}
		try("offer "+who+" to the out-of-memory killer", access, -1, os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.pid), []byte("1000"), 0o644))
		prio := int32(0)
		_, _, e := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(p.pid), 5, uintptr(unsafe.Pointer(&prio))) // idle
		done(fmt.Sprintf("give %s only time that nobody wants: %v, %v", who, e, unix.Setpriority(unix.PRIO_PROCESS, p.pid, 19)))
	}
	ask("exhausted")
}

func exhaustFDs([]string) {
	var l unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	l.Cur = l.Max
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	n := 0
	for ; n < 1<<17; n++ {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			break
		}
	}
	say(line{Ask: "exhausted"})
	_, _ = stdin.ReadString('\n')
	fmt.Printf("{\"What\":\"hold %d descriptors\",\"Did\":\"done\"}\n", n)
}

func exhaustMemory([]string) {
	n := 0
	for ; n < 400; n++ {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			break
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	say(line{Ask: "exhausted"})
	_, _ = stdin.ReadString('\n')
	done(fmt.Sprintf("hold %d MiB", n))
}

// exhaustPids forks until it may not, and keeps them.
func exhaustPids([]string) {
	_ = unix.Setpgid(0, 0)
	n := 0
	for ; n < 900; n++ {
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			break
		}
		if pid == 0 {
			for {
				_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
	}
	say(line{Ask: "exhausted"})
	_, _ = stdin.ReadString('\n')
	done(fmt.Sprintf("hold %d processes", n))
	_ = unix.Kill(0, unix.SIGKILL)
}

// garbage is F19 as far as a tool has something to write to.
func garbage([]string) {
	frames := [][]byte{exitEvent(1<<63, 1<<63, "\xff\xfe"), []byte("csn1\x02\x00\x00\x00"), append(exitEvent(1, 2, "x")[:24], 0xff, 0xff, 0xff, 0xff), []byte(strings.Repeat("[", 4096))}
	for _, fd := range append([]int{0, 1, 2}, own()...) {
		for _, f := range frames {
			_, _ = unix.Write(fd, f)
		}
	}
	fmt.Println()
	done("write malformed frames to everything that is open")
}

// crosstalk is F20.
func crosstalk([]string) {
	key := []byte("user\x00")
	name := []byte("forgery\x00")
	for _, ring := range []int{-2, -3, -4, -5} { // process, session, user, user session
		_, _, e := unix.Syscall6(unix.SYS_ADD_KEY, uintptr(unsafe.Pointer(&key[0])), uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&name[0])), 7, uintptr(ring), 0)
		if try(fmt.Sprintf("add a key to keyring %d", ring), "", unix.SYS_ADD_KEY, eno(e)) {
			_, _, e = unix.Syscall6(unix.SYS_KEYCTL, 6, uintptr(ring), 0, 0, 0, 0) // describe
			done(fmt.Sprintf("describe keyring %d: %v", ring, e))
		}
	}
	if b, err := os.ReadFile("/proc/keys"); err == nil && len(b) > 0 {
		say(line{What: "read /proc/keys", Did: "possible", Leak: hex.EncodeToString(b[:min(len(b), 4096)])})
	} else {
		if err == nil {
			err = unix.EACCES
		}
		try("read /proc/keys", "mask on /proc", -1, err)
	}
	fd, err := unix.MemfdCreate("forgery", 0)
	if err == nil {
		done("make a memfd of its own")
		unix.Close(fd)
	}
	for _, kind := range []string{"shm", "msg", "sem"} {
		b, err := os.ReadFile("/proc/sysvipc/" + kind)
		if err != nil {
			try("list System V "+kind, "mask on /proc", -1, err)
		} else if lines := strings.Count(string(b), "\n"); lines > 1 {
			say(line{What: "another's System V " + kind, Did: "possible", Leak: hex.EncodeToString(b[:min(len(b), 4096)])})
		} else {
			done("list System V " + kind + ": none")
		}
	}
	if id, _, e := unix.Syscall(unix.SYS_SHMGET, 0, 4096, 0o1600); e == 0 {
		done("make a System V segment of its own")
		_, _, _ = unix.Syscall(unix.SYS_SHMCTL, id, 0, 0)
	}
	for id := range uintptr(64) {
		if _, _, e := unix.Syscall(unix.SYS_SHMAT, id, 0, 0); e == 0 {
			say(line{What: fmt.Sprintf("attach segment %d", id), Did: "possible"})
		}
	}
	done("attach any System V segment")
}

// secondWorker is F21: another worker, from the real one's file and from one of
// this program's own, that greets wherever it can.
func secondWorker([]string) {
	for _, p := range visible() {
		about = p
		for _, role := range []string{"init", "relay", "space", "tools", "call", "probe"} {
			cmd := exec.Command(fmt.Sprintf("/proc/%d/exe", p.pid))
			cmd.Args = []string{"caisson-worker", role}
			err := cmd.Start()
			if err == nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
			try(fmt.Sprintf("start the worker of %d (%s) as %s", p.pid, p.role, role), access, -1, err)
		}
	}
	about = proc{}
	self, _ := os.ReadFile("/proc/self/exe")
	for _, dir := range []string{".", "/tmp", "/usr/bin", "/usr/local/bin"} {
		err := os.WriteFile(dir+"/caisson-worker", self, 0o755)
		if err == nil {
			done("plant a caisson-worker in " + dir)
		} else {
			try("plant a caisson-worker in "+dir, "read-only mount", -1, err)
		}
	}
	cmd := exec.Command("/tmp/caisson-worker")
	cmd.Args = []string{"caisson-worker", "F2"}
	out, err := cmd.Output()
	done(fmt.Sprintf("run it under the worker's name: %d bytes, %v", len(out), err))
	if strings.Contains(string(out), "a socket was left") {
		fmt.Print(string(out))
	}
}

// clocks is F22 as far as a tool can try.
func clocks([]string) {
	now := unix.NsecToTimeval(time.Now().UnixNano())
	try("set the time of day", "no capability", unix.SYS_SETTIMEOFDAY, unix.Settimeofday(&now))
	ts := unix.NsecToTimespec(time.Now().UnixNano())
	try("set the clock", "no capability", unix.SYS_CLOCK_SETTIME, unix.ClockSettime(unix.CLOCK_REALTIME, &ts))
	tx := unix.Timex{Modes: 1}
	_, err := unix.Adjtimex(&tx)
	try("adjust the clock", "no capability", unix.SYS_ADJTIMEX, err)
	try("a time namespace", "no capability", unix.SYS_UNSHARE, unix.Unshare(unix.CLONE_NEWTIME))
}
