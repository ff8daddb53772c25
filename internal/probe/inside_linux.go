package probe

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Inside makes every attempt that spec asks for, as the process that calls it,
// and returns the encoded Report. It is run as an ordinary tool. The standard
// set is harmless and leaves nothing behind, also where an attempt succeeds.
// The error is about spec only: what cannot be attempted is in the report.
func Inside(spec []byte) ([]byte, error) {
	var s Spec
	if err := decodeStrict(spec, SpecSchema, &s, &s.Schema); err != nil {
		return nil, fmt.Errorf("probe: specification: %v", err)
	}
	began := time.Now()
	in := &inside{spec: &s, pid: os.Getpid(), ppid: os.Getppid()}
	in.readSelf()
	r := Report{Schema: ReportSchema, Nonce: s.Nonce}
	list := items(&s)
	r.Checks = make([]Result, 0, len(list))
	for _, it := range list {
		got := in.attempt(it)
		got.ID, got.Axis, got.What = it.id, it.check.Axis, it.target
		r.Checks = append(r.Checks, got)
	}
	in.dropThread()
	for _, fd := range in.udp {
		unix.Close(fd)
	}
	r.Facts = in.facts
	r.Micros = time.Since(began).Microseconds()
	b, err := json.Marshal(&r)
	if err != nil {
		return nil, fmt.Errorf("probe: report: %v", err)
	}
	return b, nil
}

// inside is one run of the attempts.
type inside struct {
	spec      *Spec
	pid, ppid int
	status    map[string]string
	mounts    []Mount
	facts     Facts
	thread    chan func() Result // of onThread; nil: none
	answers   chan Result
	udp       map[int]int // sockets of dialUDP by family
}

// tries maps checks to what they do. A check that is not in it reports an
// error, so that it can never count.
var tries map[string]func(*inside, string) Result

func init() {
	tries = map[string]func(*inside, string) Result{
		"P01.abs":        func(in *inside, t string) Result { return in.absent("", t) },
		"P01.selfroot":   func(in *inside, t string) Result { return in.absent("/proc/self/root", t) },
		"P01.initroot":   func(in *inside, t string) Result { return in.absent("/proc/1/root", t) },
		"P01.parentroot": func(in *inside, t string) Result { return in.absent("/proc/"+strconv.Itoa(in.ppid)+"/root", t) },
		"P01.cwd":        func(in *inside, t string) Result { return in.absent("/proc/self/cwd"+strings.Repeat("/..", 40), t) },
		"P63.open":       func(in *inside, t string) Result { return openWrite(t) },
		"P63.create":     func(in *inside, t string) Result { return in.create(t) },
		"fs.writable":    func(in *inside, t string) Result { return in.create(t) },
		"fs.mounts":      (*inside).mountTable,
		"fs.agents":      func(in *inside, t string) Result { return connectUnix(t) },
		"fs.agentsroot":  func(in *inside, t string) Result { return connectUnix("/proc/self/root" + t) },
		"P19":            func(in *inside, t string) Result { return connectUnix(t) },
		"P19.root":       func(in *inside, t string) Result { return connectUnix("/proc/self/root" + t) },
		"P19.initroot":   func(in *inside, t string) Result { return connectUnix("/proc/1/root" + t) },
		"P19.known":      func(in *inside, t string) Result { return connectUnix(t) },
		"P17.connect":    func(in *inside, t string) Result { return connectUnix("\x00" + t) },
		"P17.list":       (*inside).listUnix,
		"P12":            (*inside).descriptors,
		"P14.write":      func(in *inside, t string) Result { return openWrite(t) },
		"P14.read":       func(in *inside, t string) Result { return readPath(t) },
		"P27.see":        (*inside).seeHost,
		"P27.ptrace":     (*inside).traceHost,
		"P27.vmread":     func(in *inside, _ string) Result { return in.vmHost(unix.SYS_PROCESS_VM_READV) },
		"P27.vmwrite":    func(in *inside, _ string) Result { return in.vmHost(unix.SYS_PROCESS_VM_WRITEV) },
		"P27.getfd":      (*inside).getfdHost,
		"P27.kcmp":       (*inside).kcmpHost,
		"P27.selftrace":  (*inside).selfTrace,
		"P27.initmem":    (*inside).initMem,
		"P28.kill":       (*inside).killHost,
		"P28.pidfd":      (*inside).pidfdHost,
		"P31.nnp":        func(in *inside, _ string) Result { return in.statusIs("NoNewPrivs", "1") },
		"P31.caps":       (*inside).capability,
		"P31.uid":        (*inside).identity,
		"P31.seccomp":    func(in *inside, _ string) Result { return in.statusIs("Seccomp", "2") },
		"P32.dev":        (*inside).devices,
		"P32.mknod":      (*inside).mknod,
		"res.core":       (*inside).coreLimit,
		"P21.families":   (*inside).families,
		"P21.netlink":    (*inside).netlink,
		"P21.raw":        (*inside).rawSocket,
		"P23":            func(_ *inside, t string) Result { return ioUring(t) },
		"P25.userns":     (*inside).userns,
		"P25.unshare":    (*inside).unshare,
		"P25.setns":      (*inside).setns,
		"P25.mount":      (*inside).mount,
		"P25.umount":     (*inside).umount,
		"P25.chroot":     (*inside).chroot,
		"P26":            func(_ *inside, t string) Result { return mountAPI(t) },
		"P29":            func(_ *inside, t string) Result { return dangerous(t) },
		"P30":            func(_ *inside, t string) Result { return terminal(t) },
		"P30.setd":       func(_ *inside, _ string) Result { return terminal("TIOCSETD") },
		"krn.boot": func(in *inside, _ string) Result {
			return otherThan("/proc/sys/kernel/random/boot_id", in.spec.HostKernel[0])
		},
		"krn.version":    func(in *inside, _ string) Result { return otherThan("/proc/version", in.spec.HostKernel[1]) },
		"syslog":         (*inside).syslog,
		"net.interfaces": (*inside).interfaces,
		"net.routes":     (*inside).routeTable,
		"P41.tcp":        (*inside).dialTCP,
		"P41.udp":        (*inside).dialUDP,
		"crd.env":        (*inside).environment,
	}
	for _, n := range nsNames {
		tries["ns."+n] = func(in *inside, _ string) Result { return in.namespace(n) }
	}
}

func (in *inside) attempt(it item) Result {
	try := tries[it.check.ID]
	if try == nil {
		return Result{Outcome: Failed, Detail: "this program does not know how"}
	}
	return try(in, it.target)
}

// denyErrnos are the refusals that count; see the conformance properties.
var denyErrnos = map[unix.Errno]bool{unix.EPERM: true, unix.EACCES: true, unix.ENOENT: true, unix.ENOSYS: true,
	unix.EROFS: true, unix.EAFNOSUPPORT: true, unix.ENETUNREACH: true, unix.ECONNREFUSED: true}

// verdict turns an errno into a result. through lists errnos that the kernel
// gives only after it let the caller past the check: they count as allowed.
func verdict(errno unix.Errno, through ...unix.Errno) Result {
	if errno == 0 {
		return Result{Outcome: Allowed}
	}
	r := Result{Outcome: Failed, Errno: errnoName(errno)}
	for _, t := range through {
		if t == errno {
			r.Outcome = Allowed
			return r
		}
	}
	if denyErrnos[errno] {
		r.Outcome = Denied
	}
	return r
}

// also counts further errnos as refusals.
func (r Result) also(errnos ...unix.Errno) Result {
	for _, e := range errnos {
		if r.Outcome == Failed && r.Errno == errnoName(e) {
			r.Outcome = Denied
		}
	}
	return r
}

func errnoName(e unix.Errno) string {
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return "errno " + strconv.Itoa(int(e))
}

// errnoOf returns the errno of an error of x/sys, EIO for another one.
func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(unix.Errno); ok {
		return e
	}
	return unix.EIO
}

func boolResult(denied bool, detail string) Result {
	if denied {
		return Result{Outcome: Denied, Detail: detail}
	}
	return Result{Outcome: Allowed, Detail: detail}
}

func failed(err error, what string) Result {
	return Result{Outcome: Failed, Errno: errnoName(errnoOf(err)), Detail: what}
}

// call makes one raw system call.
func call(nr uintptr, args ...uintptr) unix.Errno {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return e
}

// onThread runs f on a thread that does nothing else: f may change what its
// thread belongs to. A thread on which something succeeded is given up.
func (in *inside) onThread(f func() Result) Result {
	if in.thread == nil {
		calls, answers := make(chan func() Result), make(chan Result)
		in.thread, in.answers = calls, answers
		go func() {
			runtime.LockOSThread() // never unlocked: the thread dies with the goroutine
			for f := range calls {
				answers <- f()
			}
		}()
	}
	in.thread <- f
	r := <-in.answers
	if !r.Outcome.proves() {
		in.dropThread()
	}
	return r
}

func (in *inside) dropThread() {
	if in.thread != nil {
		close(in.thread)
		in.thread = nil
	}
}

// readSelf collects what several checks need.
func (in *inside) readSelf() {
	f := &in.facts
	f.UID, f.GID, f.PID, f.PPID = os.Getuid(), os.Getgid(), in.pid, in.ppid
	in.status = map[string]string{}
	if b, err := readFile("/proc/self/status"); err == nil {
		for _, l := range lines(b) {
			k, v, _ := strings.Cut(l, ":")
			v = strings.TrimSpace(v)
			in.status[k] = v
			if k == "NoNewPrivs" || strings.HasPrefix(k, "Seccomp") || strings.HasPrefix(k, "Cap") {
				f.Status = append(f.Status, k+" "+v)
			}
		}
	}
	if b, err := readFile("/proc/self/mountinfo"); err == nil {
		in.mounts = parseMounts(b)
		f.Mounts = in.mounts[:min(len(in.mounts), MaxTargets)]
	}
	if b, err := readFile("/proc/self/uid_map"); err == nil {
		f.UIDMap = fieldLines(b)
	}
	if b, err := readFile("/proc/self/gid_map"); err == nil {
		f.GIDMap = fieldLines(b)
	}
	if names, err := listDir("/proc"); err == nil {
		for _, n := range names {
			if _, err := strconv.Atoi(n); err == nil {
				f.Processes++
			}
		}
	}
	for _, l := range []struct {
		name string
		nr   int
	}{{"core", unix.RLIMIT_CORE}, {"nofile", unix.RLIMIT_NOFILE}, {"nproc", unix.RLIMIT_NPROC}, {"as", unix.RLIMIT_AS}, {"cpu", unix.RLIMIT_CPU}, {"fsize", unix.RLIMIT_FSIZE}, {"memlock", unix.RLIMIT_MEMLOCK}, {"stack", unix.RLIMIT_STACK}} {
		var r unix.Rlimit
		if unix.Getrlimit(l.nr, &r) == nil {
			f.Rlimits = append(f.Rlimits, RlimitVal{Name: l.name, Soft: r.Cur, Hard: r.Max})
		}
	}
}

// listDir returns the names in a folder.
func listDir(path string) ([]string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var names []string
	buf := make([]byte, 16<<10)
	for len(names) < 1<<16 {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil {
			return names, err
		}
		if n <= 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	return names, nil
}
