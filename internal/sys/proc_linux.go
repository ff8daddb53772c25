package sys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// host is what does not change while the process runs.
var host = sync.OnceValues(func() (Ident, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Ident{}, fmt.Errorf("boot id: %w", err)
	}
	// A /proc of another pid namespace would describe strangers.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return Ident{}, fmt.Errorf("/proc belongs to another pid namespace")
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return Ident{}, fmt.Errorf("pid namespace: %w", err)
	}
	return Ident{BootID: string(bytes.TrimSpace(boot)), PIDNS: st.Ino}, nil
})

// BootID returns the identity of the running kernel's boot.
func BootID() (string, error) {
	h, err := host()
	return h.BootID, err
}

// Self identifies the calling process.
func Self() (Ident, error) { return Identify(os.Getpid()) }

// Identify identifies the process that has pid now, as counted in the caller's
// pid namespace. The error matches ErrGone when there is none. The caller must
// know by other means that pid is the process it means (its child, say).
func Identify(pid int) (Ident, error) {
	id, err := host()
	if err != nil {
		return Ident{}, err
	}
	st, err := readStat(pid)
	if err != nil {
		return Ident{}, err
	}
	id.PID, id.Start = pid, st.start
	return id, nil
}

func readStat(pid int) (stat, error) {
	if pid <= 0 {
		return stat{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// Look tells whether the process of id lives. A zombie is Dead.
func Look(id Ident) Liveness {
	h, err := host()
	switch {
	case err != nil:
		return Unknown
	case id.BootID != h.BootID:
		return Dead
	case id.PIDNS != h.PIDNS:
		return Unknown
	}
	st, err := readStat(id.PID)
	switch {
	case errors.Is(err, ErrGone):
		// With hidepid a stranger's process looks absent; the kernel still
		// answers whether the pid exists.
		if kerr := unix.Kill(id.PID, 0); id.PID > 0 && !errors.Is(kerr, unix.ESRCH) {
			return Unknown
		}
		return Dead
	case err != nil:
		return Unknown
	case st.start != id.Start || st.dead():
		return Dead
	}
	return Living
}

// Stopped reports whether the process of id lives and is stopped by a signal,
// so that it does nothing until it is continued.
func Stopped(id Ident) bool {
	if Look(id) != Living {
		return false
	}
	st, err := readStat(id.PID)
	return err == nil && st.start == id.Start && st.state == 'T'
}

// Process is a hold on one process that a reused pid cannot redirect.
type Process struct {
	id Ident
	f  *os.File // pidfd, in the runtime's poller
}

// OpenProcess returns a hold on the process of id. The error matches ErrGone
// when it has ended and ErrUnknown when that cannot be told. Close it.
func OpenProcess(id Ident) (*Process, error) {
	if h, err := host(); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnknown, err)
	} else if id.BootID == h.BootID && id.PIDNS != h.PIDNS {
		return nil, fmt.Errorf("pid %d: %w: it was counted in another pid namespace", id.PID, ErrUnknown)
	}
	if id.PID <= 0 || Look(id) == Dead {
		return nil, fmt.Errorf("pid %d: %w", id.PID, ErrGone)
	}
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("pid %d: %w", id.PID, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("pid %d: pidfd: %w", id.PID, err)
	}
	p := &Process{id: id, f: os.NewFile(uintptr(fd), "pidfd")}
	// Compared after the hold is taken: had the pid been reused before that,
	// the start time would differ now.
	switch Look(id) {
	case Living:
		return p, nil
	case Dead:
		_ = p.Close()
		return nil, fmt.Errorf("pid %d: %w", id.PID, ErrGone)
	}
	_ = p.Close()
	return nil, fmt.Errorf("pid %d: %w", id.PID, ErrUnknown)
}

// Ident returns what was opened.
func (p *Process) Ident() Ident { return p.id }

// Signal sends s to exactly this process. The error matches ErrGone when it
// has ended.
func (p *Process) Signal(s os.Signal) error {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v: %w", s, ErrUnsupported)
	}
	rc, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := rc.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(serr, unix.ESRCH) {
		return fmt.Errorf("pid %d: %w", p.id.PID, ErrGone)
	}
	return serr
}

// Wait returns nil when the process has ended (as a zombie too; it is not
// reaped), or the cause of ctx. One Wait at a time.
func (p *Process) Wait(ctx context.Context) error {
	if err := p.f.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("pid %d: wait: %w", p.id.PID, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	rc, err := p.f.SyscallConn()
	if err != nil {
		return err
	}
	var perr error
	err = rc.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, e := unix.Poll(fds, 0)
			if e == unix.EINTR {
				continue
			}
			perr = e
			return e != nil || n > 0
		}
	})
	if err == nil {
		return perr
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Close lets go of the process; it does not end it.
func (p *Process) Close() error { return p.f.Close() }

// Children returns the pids whose parent is pid now. They are only a hint:
// identify each before acting on it.
func Children(pid int) ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, n := range names {
		c, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if st, err := readStat(c); err == nil && st.ppid == pid {
			out = append(out, c)
		}
	}
	return out, nil
}
