package wire

import (
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend/linux"
	"github.com/caisson-dev/caisson/internal/boundary"
)

// linuxParts gives the manager what only the linux backend knows.
func linuxParts(cfg *boundary.Config) {
	cfg.Defaults = linux.Defaults
	cfg.CheckPaths = linux.CheckPaths
	cfg.Toolchains, cfg.Screen = linux.RememberedToolchains(cfg.StateDir), linux.Screen
}

func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// endSession ends a child that leads a session, with all that stayed in it. It
// was not waited for yet, so its number is its own.
func endSession(p *os.Process) error { return unix.Kill(-p.Pid, unix.SIGKILL) }

// sealDescriptors marks every descriptor above stderr as close-on-exec.
func sealDescriptors() error {
	return unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

func dup(f *os.File, to int) { _ = unix.Dup3(int(f.Fd()), to, 0) }

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// nameless makes an empty file in memory.
func nameless() (*os.File, error) {
	fd, err := unix.MemfdCreate("baton", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "baton"), nil
}

// named is what lists of processes call this one.
func named(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
