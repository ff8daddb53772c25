//go:build linux

package attack

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pids lists every process that can be seen.
func pids() []int {
	var out []int
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, n := range names {
		if p, err := strconv.Atoi(filepath.Base(n)); err == nil {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// targets are the sleeper on the host and, inside, every process but this one.
func targets() []int {
	out := []int{c.Pid}
	if c.Inside && !c.Foreign {
		for _, p := range pids() {
			if p != os.Getpid() {
				out = append(out, p)
			}
		}
	}
	return out
}

// processes is P27 and P28.
func processes() {
	ptrace := func(req, pid, addr, data uintptr) error { return call(unix.SYS_PTRACE, req, pid, addr, data) }
	each := func(prop, what string, f func(pid int) error) []*try {
		var all []*try
		for _, p := range targets() {
			who := fmt.Sprint(p)
			switch p {
			case c.Pid:
				who = "the sleeper"
			case os.Getppid():
				who = "the parent"
			}
			do := func() error { return f(p) }
			if p == c.Pid {
				do = ofSleeper(do)
			}
			all = append(all, add(prop, what+" "+who, do))
		}
		return all
	}
	each("P27", "attach to", func(p int) error { return in("attach", fmt.Sprint(p), "16") })
	each("P27", "seize", func(p int) error { return in("attach", fmt.Sprint(p), fmt.Sprint(0x4206)) })
	subs["attach"] = func(a []string) error {
		p, _ := strconv.Atoi(a[0])
		req, _ := strconv.Atoi(a[1])
		if err := ptrace(uintptr(req), uintptr(p), 0, 0); err != nil {
			return err
		}
		if req == 16 {
			var ws unix.WaitStatus
			_, _ = unix.Wait4(p, &ws, 0x40000000, nil)
			_ = ptrace(unix.PTRACE_DETACH, uintptr(p), 0, 0)
		}
		return nil
	}
	each("P27", "read memory of", func(p int) error { return in("vm", fmt.Sprint(p), fmt.Sprint(unix.SYS_PROCESS_VM_READV)) })
	each("P27", "write memory of", func(p int) error { return in("vm", fmt.Sprint(p), fmt.Sprint(unix.SYS_PROCESS_VM_WRITEV)) })
	subs["vm"] = func(a []string) error {
		p, _ := strconv.Atoi(a[0])
		nr, _ := strconv.Atoi(a[1])
		buf := make([]byte, 8)
		iov := unix.Iovec{Base: &buf[0], Len: 8}
		// At an address where nothing is: the kernel checks the right before that.
		far := unix.RemoteIovec{Base: 0x10, Len: 8}
		err := call(uintptr(nr), uintptr(p), ptr(&iov), 1, ptr(&far), 1, 0)
		if err == unix.EFAULT {
			return nil
		}
		return err
	}
	each("P27", "take a descriptor of", func(p int) error {
		fd, err := unix.PidfdOpen(p, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		got, err := unix.PidfdGetfd(fd, 0, 0)
		if err == nil {
			unix.Close(got)
		}
		return err
	})
	each("P27", "compare with", func(p int) error { return call(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(p), 0, 0, 0) })
	for _, f := range []string{"mem", "environ", "maps", "auxv", "root/", "cwd/", "exe", "fd/0"} {
		each("P27", "open "+f+" of", func(p int) error {
			return open(fmt.Sprintf("/proc/%d/%s", p, f), unix.O_RDONLY)()
		})
	}

	// The name alone of a namespace: to join one is P25.
	for _, t := range each("P27", "open ns/pid of", func(p int) error { return open(fmt.Sprintf("/proc/%d/ns/pid", p), unix.O_RDONLY)() }) {
		t.level(3)
	}

	// Outside each of these changes nothing about the sleeper.
	host := func(what string, f func() error) *try { return add("P28", what, ofSleeper(f)) }
	host("stop", func() error {
		if err := unix.Kill(c.Pid, unix.SIGSTOP); err != nil {
			return err
		}
		return unix.Kill(c.Pid, unix.SIGCONT)
	})
	host("stop by pidfd", func() error {
		fd, err := unix.PidfdOpen(c.Pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
	})
	host("signal a thread", func() error { return unix.Tgkill(c.Pid, c.Pid, unix.SIGCONT) })
	host("signal by the old call", func() error { return call(unix.SYS_TKILL, uintptr(c.Pid), uintptr(unix.SIGCONT)) })
	host("queue a signal", func() error {
		var info [128]byte
		*(*int32)(unsafe.Pointer(&info[0])) = int32(unix.SIGCONT)
		*(*int32)(unsafe.Pointer(&info[8])) = -1
		*(*int32)(unsafe.Pointer(&info[16])) = int32(os.Getpid())
		*(*int32)(unsafe.Pointer(&info[20])) = int32(os.Getuid())
		return call(unix.SYS_RT_SIGQUEUEINFO, uintptr(c.Pid), uintptr(unix.SIGCONT), ptr(&info))
	})
	host("signal a process group of the host", func() error { return unix.Kill(-c.Group, unix.SIGCONT) })
	host("kill a process group of the host", func() error { return unix.Kill(-c.Group, unix.SIGKILL) }).harms("it would end the sleeper")
	host("kill the sleeper", func() error { return unix.Kill(c.Pid, unix.SIGKILL) }).harms("it would end the sleeper")
	host("change its limits", func() error {
		var l unix.Rlimit
		return unix.Prlimit(c.Pid, unix.RLIMIT_CORE, nil, &l)
	})
	host("change its priority", func() error { return unix.Setpriority(unix.PRIO_PROCESS, c.Pid, 19) })
	host("change its processors", func() error {
		var s unix.CPUSet
		if err := unix.SchedGetaffinity(c.Pid, &s); err != nil {
			return err
		}
		return unix.SchedSetaffinity(c.Pid, &s)
	})
	host("change its scheduling", func() error {
		var prio int32
		return call(unix.SYS_SCHED_SETSCHEDULER, uintptr(c.Pid), 0, ptr(&prio))
	})
	host("change its input and output class", func() error { return call(unix.SYS_IOPRIO_SET, 1, uintptr(c.Pid), 2<<13|7) })
	host("join its process group", func() error { return unix.Setpgid(0, c.Group) }).harms("another session: the kernel refuses it anyhow")
	host("have its session", func() error { _, err := unix.Getsid(c.Pid); return err })
}

// modes are whole programs that a test runs.
var modes = map[string]func([]string){
	"sleep":     sleeper,
	"inventory": inventory,
	"killall":   killAll,
	"signal":    signalOne,
	"orphans":   orphans,
	"forks":     forks,
	"memory":    memory,
	"files":     files,
	"fill":      fill,
	"fds":       fds,
	"spin":      spin,
	"tty":       tty,
	"setid":     setid,
	"whoami":    whoami,
	"serve":     serve,
}

// sleeper is S_PID: anybody of the same user may trace it.
func sleeper([]string) {
	_ = unix.Prctl(unix.PR_SET_PTRACER, minus, 0, 0, 0)
	fmt.Println("ready")
	for {
		time.Sleep(time.Hour)
	}
}

// inventory prints everything that can be seen.
func inventory([]string) {
	type process struct {
		Pid                                           int
		Comm, State, Cmdline, Environ, Exe, Root, Cwd string
		Errors                                        map[string]string
		Status                                        map[string]string
		Fds                                           map[string]string
	}
	var out struct {
		Self      int
		Parent    int
		Processes []process
		Mounts    []string
		Dev       map[string]string
		Env       []string
		Proc      []string
		Unix      []string
		Links     []string
		Routes    string
		Domain    string
		Sysvipc   []string
		Umask     int
	}
	mine := map[string]string{} // before this program opens more
	links, _ := os.ReadDir("/proc/self/fd")
	for _, l := range links {
		if t, err := os.Readlink("/proc/self/fd/" + l.Name()); err == nil {
			mine[l.Name()] = t
		}
	}
	out.Self, out.Parent = os.Getpid(), os.Getppid()
	out.Umask = unix.Umask(0)
	unix.Umask(out.Umask)
	for _, p := range pids() {
		d := fmt.Sprintf("/proc/%d/", p)
		x := process{Pid: p, Errors: map[string]string{}, Status: map[string]string{}, Fds: map[string]string{}}
		get := func(n string) string {
			b, err := os.ReadFile(d + n)
			if err != nil {
				x.Errors[n] = name(err)
			}
			return strings.ReplaceAll(string(b), "\x00", "\n")
		}
		link := func(n string) string {
			t, err := os.Readlink(d + n)
			if err != nil {
				x.Errors[n] = name(err)
			}
			return t
		}
		x.Comm, x.Cmdline, x.Environ = strings.TrimSpace(get("comm")), get("cmdline"), get("environ")
		x.Exe, x.Root, x.Cwd = link("exe"), link("root"), link("cwd")
		for _, l := range strings.Split(get("status"), "\n") {
			if k, v, ok := strings.Cut(l, ":"); ok {
				x.Status[k] = strings.TrimSpace(v)
			}
		}
		ents, err := os.ReadDir(d + "fd")
		if err != nil {
			x.Errors["fd"] = name(err)
		}
		for _, e := range ents {
			x.Fds[e.Name()] = link("fd/" + e.Name())
		}
		if p == out.Self {
			x.Fds = mine
		}
		out.Processes = append(out.Processes, x)
	}
	data, _ := os.ReadFile("/proc/self/mountinfo")
	out.Mounts = strings.Split(strings.TrimSpace(string(data)), "\n")
	out.Dev = map[string]string{}
	_ = filepath.WalkDir("/dev", func(p string, d os.DirEntry, err error) error {
		var st unix.Stat_t
		if unix.Lstat(p, &st) == nil && p != "/dev" {
			text := fmt.Sprintf("%#o", st.Mode&unix.S_IFMT)
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFCHR, unix.S_IFBLK:
				text += fmt.Sprintf(" %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
			case unix.S_IFLNK:
				t, _ := os.Readlink(p)
				text += " " + t
			}
			out.Dev[p] = text
		}
		return nil
	})
	out.Env = os.Environ()
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			out.Proc = append(out.Proc, e.Name())
		}
	}
	list := func(n string) []string {
		b, _ := os.ReadFile(n)
		return strings.Split(strings.TrimSpace(string(b)), "\n")
	}
	out.Unix, out.Links = list("/proc/net/unix"), list("/proc/net/dev")
	out.Routes = strings.Join(append(list("/proc/net/route"), list("/proc/net/ipv6_route")...), "\n")
	var u unix.Utsname
	_ = unix.Uname(&u)
	out.Domain = unix.ByteSliceToString(u.Domainname[:])
	for _, k := range []string{"shm", "msg", "sem"} {
		out.Sysvipc = append(out.Sysvipc, list("/proc/sysvipc/" + k)[1:]...)
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}

// killAll sends a signal to everything that it may signal.
func killAll(a []string) {
	n, _ := strconv.Atoi(a[0])
	signal.Ignore(syscall.Signal(n))
	fmt.Println(unix.Kill(-1, syscall.Signal(n)))
}

// signalOne sends every signal to one process.
func signalOne(a []string) {
	pid, _ := strconv.Atoi(a[0])
	if a[0] == "parent" {
		pid = os.Getppid()
	}
	first, last := 1, 64
	if len(a) > 1 {
		first, _ = strconv.Atoi(a[1])
		last = first
	}
	for s := first; s <= last; s++ {
		if err := unix.Kill(pid, syscall.Signal(s)); err != nil {
			fmt.Println(s, err)
		}
	}
	fmt.Println("sent")
}

// whoami prints who this program is now.
func whoami([]string) {
	data, _ := os.ReadFile("/proc/self/status")
	var caps, nnp string
	for _, l := range strings.Split(string(data), "\n") {
		if v, ok := strings.CutPrefix(l, "CapEff:\t"); ok {
			caps = v
		}
		if v, ok := strings.CutPrefix(l, "NoNewPrivs:\t"); ok {
			nnp = v
		}
	}
	fmt.Printf("%d %d %d %d %s %s\n", os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid(), caps, nnp)
}

// serve listens on a Unix socket until it is killed.
func serve(a []string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: a[0]})
	}
	if err == nil {
		err = unix.Listen(fd, 8)
	}
	fmt.Println("ready", err)
	for {
		time.Sleep(time.Hour)
	}
}
