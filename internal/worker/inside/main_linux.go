package inside

import (
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// Main runs the role that argv names and returns the exit status.
func Main(argv []string, h Hooks) int {
	if len(argv) == 3 && argv[1] == RoleRelay {
		return runRelay(h, argv[2])
	}
	if len(argv) != 2 {
		complain("this program is started by caisson inside a boundary")
		return ExitUsage
	}
	switch argv[1] {
	case RoleInit:
		return runInit(h)
	case RoleSpace:
		return runSpace(h)
	case RoleTools:
		return runTools(h)
	case RoleCall:
		return runCall()
	case RoleProbe:
		return runProbe(h)
	case RoleGuest:
		return runGuest()
	case RoleGuestCall:
		return runGuestCall()
	}
	complain("unknown role")
	return ExitUsage
}

func complain(s string) { _, _ = unix.Write(2, []byte("caisson-worker: "+s+"\n")) }

// small tunes the runtime for a process that sleeps nearly all the time.
func small(procs int) {
	runtime.GOMAXPROCS(procs)
	debug.SetGCPercent(25)
}

// resting returns a function to call after work: when it was not called for a
// second, what the work left in memory goes back to the kernel. Most tasks sleep
// most of the time, and many sleep beside each other. A collection itself makes
// the runtime keep 0.2 MB of lists for good: nothing is collected before there
// was work, and see worthRest.
func resting() func() {
	t := time.AfterFunc(time.Hour, debug.FreeOSMemory)
	t.Stop()
	return func() { t.Reset(time.Second) }
}

// worthRest is how much garbage, as guessed, is worth a collection.
const worthRest = 1 << 20

// onlyChannel reports whether nothing came in but the channel and the standard
// descriptors. One that the host leaked would be authority nobody decided on.
func onlyChannel() bool {
	for fd := ChannelFD + 1; fd < 1024; fd++ {
		if inherited(fd) {
			return false
		}
	}
	return inherited(ChannelFD) && unix.CloseRange(1024, ^uint(0), 0) == nil
}

// inherited reports whether fd is open and came through exec. What is to be closed
// there cannot have come: the Go runtime opens a poller at the first timer, under
// load before anything of ours runs. The question holds for every kind of descriptor.
func inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}

// onlyPlaces closes what came through exec beside channel and places. To close what
// the runtime opened, which has the lowest numbers, would end the program.
func onlyPlaces() error {
	if sys.Without("close_range") {
		return nil
	}
	for fd := ChannelFD + 1; fd < firstPlace; fd++ {
		if inherited(fd) {
			_ = unix.Close(fd)
		}
	}
	return unix.CloseRange(lastPlace+1, ^uint(0), 0)
}

// become execs this program again in another role. It must run on a thread that
// its goroutine is locked to: the kernel carries on with that thread alone.
func become(argv ...string) error {
	return errors.New("start the worker again: " + syscall.Exec(self, append([]string{"caisson-worker"}, argv...), nil).Error())
}

// prewarm makes the runtime create threads now. Later, when tools have used
// up the boundary's processes, a thread could not be had and the runtime
// would end the program.
func prewarm(n int) {
	started, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			<-release
			runtime.UnlockOSThread()
			done <- struct{}{}
		}()
	}
	for range n {
		<-started
	}
	close(release)
	for range n {
		<-done
	}
}

// sigaction is the kernel's struct on the systems we build for.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

const sigIgn = 1

// setSignals gives every signal the kernel's default or, with ignore, nothing.
//
// In pid 1 the default means: not delivered when it comes from inside. The
// handlers of the Go runtime would end the program instead. In the ancestors
// of tools the default matters because "ignored" survives exec: a tool must
// not inherit that the host was started by nohup.
func setSignals(ignore bool) {
	var act sigaction
	if ignore {
		act.handler = sigIgn
	}
	for sig := uintptr(1); sig <= 64; sig++ {
		switch syscall.Signal(sig) {
		case unix.SIGKILL, unix.SIGSTOP:
			continue
		case unix.SIGCHLD, unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL:
			// ignored SIGCHLD would reap for us; the others are our own faults
			if ignore {
				continue
			}
		}
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(actPtr(&act)), 0, 8, 0, 0)
	}
}

// unignore resets signals that were inherited as ignored, leaving the
// runtime's own handlers alone.
func unignore() {
	for sig := uintptr(1); sig <= 64; sig++ {
		var act sigaction
		if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(actPtr(&act)), 8, 0, 0); e != 0 || act.handler != sigIgn {
			continue
		}
		act = sigaction{}
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(actPtr(&act)), 0, 8, 0, 0)
	}
}

func notDumpable() error {
	if sys.Without("dumpable") {
		sys.Expose()
		return nil
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// closingButPlaces marks everything above the channel to be closed on exec, but for
// the places that are taken.
func closingButPlaces(first, second bool) error {
	if sys.Without("close_range") {
		return nil
	}
	if err := unix.CloseRange(ChannelFD+1, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	for i, taken := range []bool{first, second} {
		if !taken {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(firstPlace+i), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return nil
}

// closingRange marks everything from first on to be closed on exec.
func closingRange(first uint) error {
	if sys.Without("close_range") {
		return nil
	}
	return unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
}

// What makes descriptors close on exec.
var sockClosing, msgClosing = func() (int, int) {
	if sys.Without("cloexec") {
		return 0, 0
	}
	return unix.SOCK_CLOEXEC, unix.MSG_CMSG_CLOEXEC
}()

// pidBytes is what tells guardians apart in what test builds mirror.
func pidBytes(pid int) []byte { return []byte(strconv.Itoa(pid)) }

// runProbe is what a tool would be, measured: spec on stdin, report on stdout.
func runProbe(h Hooks) int {
	// The worker's file is unreadable for us, which makes this process
	// non-dumpable from its start; a tool is not.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil || h.Probe == nil {
		complain("the probe cannot run")
		return ExitInternal
	}
	spec, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<20))
	if err != nil {
		return ExitInternal
	}
	report, err := h.Probe(spec)
	if err == nil {
		_, err = os.Stdout.Write(report)
	}
	if err != nil {
		complain(err.Error())
		return ExitInternal
	}
	return ExitOK
}
