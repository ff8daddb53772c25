package stage

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// SetupCaps are the capabilities, over the boundary's own user namespace only,
// that W needs until it is sealed: mounts and host name, loopback and its routes,
// sockets at low ports, the maps of I, dropping the bounding set, the limits of
// its user namespace.
var SetupCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SYS_RESOURCE}

// SpaceAttr returns how W must start I. The map is one line, inside id to the
// same inside id, which needs no privilege.
func SpaceAttr(p *Plan) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags:                 unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: p.UID, HostID: p.UID, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: p.GID, HostID: p.GID, Size: 1}},
		GidMappingsEnableSetgroups: false,
		AmbientCaps:                SetupCaps,
	}
	if sys.Without("userns") {
		a.Cloneflags &^= unix.CLONE_NEWUSER
		a.UidMappings, a.GidMappings = nil, nil
	}
	if sys.Without("pidns") {
		a.Cloneflags &^= unix.CLONE_NEWPID
	}
	return a
}

// DropSpace makes the calling thread of I what every tool will be. It must run
// before anything else, on a thread that its goroutine is locked to and that
// then execs I anew: what is started so inherits the result on every thread. An
// error means that I must end. It returns descriptors of I's own oom_score_adj
// and of a /proc in which those of tools can be written; -1 where they cannot be
// had. The caller owns them.
func DropSpace(p *Plan) (own, tree int, err error) {
	if own, tree, err = openScores(); err == nil {
		err = dropSpace(p, tree)
	}
	return own, tree, err
}

func dropSpace(p *Plan, tree int) error {
	const step = "tool space"
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fail(step, "make mounts private", err)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(step, "open the root", err)
	}
	b := &builder{step: step, root: root}
	defer unix.Close(root)
	unix.Umask(0)
	for _, s := range p.Space {
		if s.Op == "proc" && (sys.Without("proc") || sys.Without("pidns")) {
			continue
		}
		if err := b.run(s, -1); err != nil {
			return err
		}
	}
	unix.Umask(0o022)

	if err := newKeyring(); err != nil {
		return fail(step, "join a new session keyring", err)
	}
	if err := noNewPrivs(); err != nil {
		return fail(step, "set no_new_privs", err)
	}
	// A domain that handles any right on files refuses every mount, also in
	// namespaces that a tool makes for itself; one with scopes alone makes renames
	// between folders fail (EXDEV) in each domain that a tool adds. So with that
	// grant there is none: mounts, which stay read-only and locked, say what can be
	// changed.
	if !p.NoLandlock && !p.Userns && !sys.Without("landlock") {
		if err := landlock(p, tree); err != nil {
			return fail(step, "apply Landlock", err)
		}
		// Its capabilities would still allow this mount: only Landlock refuses it.
		if err := unix.Mount("", "/dev/shm", "", unix.MS_PRIVATE, ""); !errors.Is(err, unix.EPERM) {
			return &Error{Step: step, Op: "verify Landlock", Detail: "a mount that it must refuse was allowed"}
		}
	}
	if err := dropCaps(step); err != nil {
		return err
	}
	return filter(step, p.ToolFilter)
}

// VerifySpace looks at I after its exec, before anything is started in it.
func VerifySpace(userns bool) error { return verify("tool space", userns) }

// DropWorker takes from the calling thread of W what W needs no more once the
// maps of I are written. W is then to be exec'd anew from that thread.
func DropWorker() error {
	const step = "worker"
	if err := newKeyring(); err != nil {
		return fail(step, "join a new session keyring", err)
	}
	if err := noNewPrivs(); err != nil {
		return fail(step, "set no_new_privs", err)
	}
	return dropCaps(step)
}

// SealWorker makes W harmless to tools and tools harmless to it. It must run
// after W's exec; afterwards W cannot start a program, and reaches of the file
// system what its file tools may and no more.
func SealWorker(r *Rest) error {
	const step = "worker"
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fail(step, "set the parent death signal", err)
	}
	if err := filter(step, r.Filter); err != nil {
		return err
	}
	if err := verify(step, false); err != nil {
		return err
	}
	if r.NoLandlock || sys.Without("landlock") {
		return nil
	}
	if err := landlockWorker(r.Landlock); err != nil {
		return fail(step, "apply Landlock", err)
	}
	for _, p := range []string{"/proc/self/status", "/dev/null"} {
		if fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EACCES) {
			unix.Close(fd)
			return &Error{Step: step, Op: "verify Landlock", Detail: p + " can be opened"}
		}
	}
	return nil
}

// newKeyring leaves the session keyring that was inherited from the host:
// keyrings follow credentials, not namespaces.
func newKeyring() error {
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno == unix.ENOSYS {
		return nil // a kernel without keyrings has nothing to leak
	}
	return errnoErr(errno)
}

func noNewPrivs() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// dropCaps empties every capability set of the calling thread and makes the
// process non-dumpable, so that nobody of the same user looks into it.
func dropCaps(step string) error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // past the kernel's last capability
		}
		if err != nil {
			return fail(step, "drop the bounding set", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fail(step, "clear ambient capabilities", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fail(step, "drop capabilities", err)
	}
	if sys.Without("dumpable") {
		return nil
	}
	return fail(step, "become non-dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// filter loads a seccomp program, on all threads there are.
func filter(step string, prog []byte) error {
	if sys.Without("seccomp") {
		return nil
	}
	if len(prog) == 0 || len(prog)%8 != 0 {
		return &Error{Step: step, Op: "load the system call filter", Detail: "the plan has none"}
	}
	insns := make([]unix.SockFilter, len(prog)/8)
	for i := range insns {
		b := prog[i*8:]
		insns[i] = unix.SockFilter{Code: uint16(b[0]) | uint16(b[1])<<8, Jt: b[2], Jf: b[3], K: uint32(b[4]) | uint32(b[5])<<8 | uint32(b[6])<<16 | uint32(b[7])<<24}
	}
	fprog := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if errno == 0 && r != 0 {
		return &Error{Step: step, Op: "load the system call filter", Detail: fmt.Sprintf("thread %d could not be joined", r)}
	}
	return fail(step, "load the system call filter", errnoErr(errno))
}

// verify attempts what must be impossible now, and reads back what the kernel
// says about every thread.
func verify(step string, userns bool) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, 0, 0); !sys.Without("seccomp") && errno != unix.EPERM && (!userns || errno != unix.ENOSYS) {
		return &Error{Step: step, Op: "verify the system call filter", Detail: "a refused call was allowed"}
	}
	if !userns && !sys.Without("seccomp") {
		if err := unix.Unshare(unix.CLONE_NEWUSER); !errors.Is(err, unix.EPERM) {
			return &Error{Step: step, Op: "verify the system call filter", Detail: "a new user namespace was allowed"}
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fail(step, "verify every thread", err)
	}
	want := []string{"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n",
		"CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"}
	if sys.Without("seccomp") {
		want = want[:len(want)-1]
	}
	for _, t := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + t.Name() + "/status")
		if errors.Is(err, os.ErrNotExist) {
			continue // that thread has ended
		}
		if err != nil {
			return fail(step, "verify every thread", err)
		}
		for _, w := range want {
			if !strings.Contains(string(status), w) {
				return &Error{Step: step, Op: "verify every thread", Detail: "thread " + t.Name() + " lacks " + strings.TrimSpace(w)}
			}
		}
	}
	return nil
}

func errnoErr(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}
