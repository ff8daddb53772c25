package inside

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// guardian is one C as I holds it.
type guardian struct {
	*os.File // the control socket
	pid      int32
}

// startGuardian starts C. The program's own descriptors follow with the
// command, so that it can be started ahead of its call.
//
// C shares its uid and process table with the tools. What it says is taken
// only when the kernel names C as the sender, and not any more once C was
// reaped: a tool that kills C and gets hold of its socket while it dies
// (the kernel drops a process's memory, and with it the protection, before its
// descriptors) has a socket that nobody listens to.
func (s *space) startGuardian() (*guardian, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|sockClosing, 0)
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	if err == nil {
		err = unix.SetNonblock(pair[0], true)
	}
	g := &guardian{File: os.NewFile(uintptr(pair[0]), "call")}
	if err == nil {
		// One lock with the reaper's look-up: a guardian that dies at once is
		// reaped after it was entered.
		s.guardMu.Lock()
		s.garbage.mu.Lock()
		files := []uintptr{0, 1, 2, uintptr(pair[1])}
		if s.scores != nil {
			files = append(files, uintptr(s.scores.tree))
		}
		role, attr := RoleCall, &syscall.SysProcAttr{Setsid: true}
		if g := s.guest; g != nil {
			if s.scores == nil {
				files = append(files, 0)
			}
			files = append(files, uintptr(g.settings))
			role, attr.Credential = RoleGuestCall, &syscall.Credential{Uid: uint32(g.uid), Gid: uint32(g.gid)}
		}
		var pid int
		s.scores.lend()
		pid, err = syscall.ForkExec(self, []string{"caisson-worker", role}, &syscall.ProcAttr{Files: files, Sys: attr})
		s.scores.back()
		s.garbage.mu.Unlock()
		if err == nil {
			g.pid = int32(pid)
			s.guards[pid] = g
		}
		s.unlockGuards()
	}
	_ = unix.Close(pair[1])
	if err != nil {
		_ = g.Close()
		return nil, err
	}
	s.wakeReaper()
	return g, nil
}

// reaped ends the conversation with a guardian that is no more. What it had
// sent is still read.
//
// It must not wait for guardMu: a guardian that is being started may be stopped
// by a tool, and only the reaper, which calls this, wakes it. Who holds the lock
// then does it on letting go.
func (s *space) reaped(pid int) {
	s.endedMu.Lock()
	s.ended = append(s.ended, pid)
	s.endedMu.Unlock()
	s.settleEnded()
}

// unlockGuards lets go of guardMu.
func (s *space) unlockGuards() {
	s.guardMu.Unlock()
	s.settleEnded()
}

// settleEnded does what reaped promises, or leaves it to who holds guardMu.
func (s *space) settleEnded() {
	for {
		s.endedMu.Lock()
		none := len(s.ended) == 0
		s.endedMu.Unlock()
		if none || !s.guardMu.TryLock() {
			return
		}
		s.endedMu.Lock()
		ended := s.ended
		s.ended = nil
		s.endedMu.Unlock()
		for _, pid := range ended {
			g := s.guards[pid]
			delete(s.guards, pid)
			if g == nil {
				continue
			}
			if raw, err := g.SyscallConn(); err == nil {
				_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
			}
		}
		s.guardMu.Unlock()
	}
}

// refill keeps one guardian ready: starting a program takes a millisecond or
// two, and the next call need not wait for that. A spare knows nothing yet.
func (s *space) refill() {
	s.mu.Lock()
	busy := s.spare != nil || s.filling || s.killing
	s.filling = s.filling || !busy
	s.mu.Unlock()
	if busy {
		return
	}
	g, err := s.startGuardian()
	s.mu.Lock()
	s.filling = false
	if err == nil && !s.killing {
		s.spare, g = g, nil
	}
	s.mu.Unlock()
	if g != nil {
		_ = g.Close() // it ends when it reads that
	}
}

func (s *space) takeSpare() *guardian {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.spare
	s.spare = nil
	return g
}

// hand gives a guardian its command and the program's descriptors. False: it
// was gone before it could have read any of it.
func hand(g *guardian, cmd []byte, fds []int) bool {
	if sys.Canary {
		sys.Mirror("guardian command", pidBytes(int(g.pid)), cmd)
	}
	raw, err := g.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	var werr error
	if err := raw.Write(func(fd uintptr) bool {
		for {
			n, werr = unix.SendmsgN(int(fd), cmd, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			if werr != unix.EINTR {
				return werr != unix.EAGAIN
			}
		}
	}); err != nil || werr != nil {
		return false
	}
	_, _ = g.Write(cmd[n:]) // a failure shows as the guardian's end
	return true
}
