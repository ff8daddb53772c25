package probe

import (
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (in *inside) namespace(name string) Result {
	host := in.spec.HostNS[name]
	own, err := nsInode("/proc/self/ns/" + name)
	switch {
	case err != nil:
		return failed(err, "own namespace")
	case host == 0:
		return Result{Outcome: Failed, Detail: "the host's is not known"}
	case host == own:
		return Result{Outcome: Same}
	}
	return Result{Outcome: Different}
}

func (in *inside) statusIs(key, want string) Result {
	v, ok := in.status[key]
	if !ok {
		return Result{Outcome: Failed, Detail: "no line " + key}
	}
	return boolResult(v == want, key+" "+v)
}

func (in *inside) capability(key string) Result {
	v, ok := in.status[key]
	if !ok {
		return Result{Outcome: Failed, Detail: "no line " + key}
	}
	return boolResult(parseHex(v) == 0, v)
}

func (in *inside) identity(string) Result {
	ok := in.facts.UID == in.spec.UID && in.facts.GID == in.spec.GID && in.facts.UID > 0
	return boolResult(ok, "user "+strconv.Itoa(in.facts.UID)+" group "+strconv.Itoa(in.facts.GID))
}

// hostVisible reports whether the supervisor is what its number names here. A
// number that names something else inside is no sight of the host.
func (in *inside) hostVisible() (visible, otherProcess bool) {
	start, err := StartTime(in.spec.HostPID)
	if err != nil {
		return false, false
	}
	return start == in.spec.HostStart, start != in.spec.HostStart
}

// towardsHost judges an attempt on the supervisor's number.
func (in *inside) towardsHost(try func(pid int) Result) Result {
	if in.spec.HostPID <= 0 || in.spec.HostStart == 0 {
		return Result{Outcome: Failed, Detail: "no process was named"}
	}
	if _, other := in.hostVisible(); other {
		return Result{Outcome: Denied, Detail: "its number names another process here"}
	}
	return try(in.spec.HostPID)
}

func (in *inside) seeHost(string) Result {
	return in.towardsHost(func(int) Result {
		visible, _ := in.hostVisible()
		return boolResult(!visible, "")
	})
}

// traceHost attaches without stopping; the attachment ends with the thread.
func (in *inside) traceHost(string) Result {
	return in.towardsHost(func(pid int) Result {
		return in.onThread(func() Result {
			return verdict(call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0)).also(unix.ESRCH)
		})
	})
}

// vmHost names an address that nothing is mapped at: EFAULT comes only after
// the permission was given.
func (in *inside) vmHost(nr uintptr) Result {
	return in.towardsHost(func(pid int) Result {
		var b [1]byte
		local := unix.Iovec{Base: &b[0], Len: 1}
		remote := unix.RemoteIovec{Base: 0, Len: 1}
		e := call(nr, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
		return verdict(e, unix.EFAULT).also(unix.ESRCH)
	})
}

// getfdHost asks for a descriptor number that no process has.
func (in *inside) getfdHost(string) Result {
	return in.towardsHost(func(pid int) Result {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return verdict(errnoOf(err)).also(unix.ESRCH)
		}
		defer unix.Close(fd)
		return verdict(call(unix.SYS_PIDFD_GETFD, uintptr(fd), 0x7ffffff0, 0), unix.EBADF).also(unix.ESRCH)
	})
}

func (in *inside) kcmpHost(string) Result {
	const vm = 1 // KCMP_VM
	return in.towardsHost(func(pid int) Result {
		return verdict(call(unix.SYS_KCMP, uintptr(pid), uintptr(in.pid), vm, 0, 0)).also(unix.ESRCH)
	})
}

func (in *inside) killHost(string) Result {
	return in.towardsHost(func(pid int) Result { return verdict(errnoOf(unix.Kill(pid, 0))).also(unix.ESRCH) })
}

func (in *inside) pidfdHost(string) Result {
	return in.towardsHost(func(pid int) Result {
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			defer unix.Close(fd)
			err = unix.PidfdSendSignal(fd, 0, nil, 0)
		}
		return verdict(errnoOf(err)).also(unix.ESRCH)
	})
}

// selfTrace asks about a process number that cannot exist: ESRCH comes only
// from a ptrace that is not filtered.
func (in *inside) selfTrace(string) Result {
	return verdict(call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 0x3fffffff, 0, 0), unix.ESRCH)
}

func (in *inside) initMem(path string) Result {
	return openRead(strings.Replace(path, "PPID", strconv.Itoa(in.ppid), 1))
}

// openRead only opens: reading another process's memory is more than needed.
func openRead(path string) Result {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return verdict(errnoOf(err))
	}
	unix.Close(fd)
	return Result{Outcome: Allowed}
}
