package inside

import (
	"encoding/hex"
	"io"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// space is I: pid 1 of the tools. It starts a guardian per call, adopts what
// calls leave behind and reaps it.
type space struct {
	conn  *frame.Conn
	about Space

	mu      sync.Mutex
	calls   map[uint64]*call
	lastOp  uint64
	killing bool
	filling bool
	spare   *guardian // without a call

	guardMu sync.Mutex
	guards  map[int]*guardian // not yet reaped

	endedMu sync.Mutex
	ended   []int // reaped, and perhaps still in guards

	born  chan struct{} // a child was started: the reaper may wait again
	alone chan struct{} // the reaper found no child at all

	filled sync.Once // the first spare is being made
	scores *scores   // nil: none

	garbage collector

	guest *foreign // nil: tools are apart by namespaces
}

// runSpace is I's builder: it makes the tool space's own mounts, takes from its
// one thread everything a tool must not have, and becomes I. A Landlock domain
// belongs to a thread: were several to restrict themselves, one call could
// neither signal a process of another nor reach its abstract sockets. What is
// inherited through exec is one domain for all.
func runSpace(h Hooks) int {
	if !onlyChannel() {
		return ExitInherit
	}
	syscall.Clearenv()
	runtime.LockOSThread()
	unignore()
	scores, err := h.DropSpace(ChannelFD)
	if err == nil {
		err = scores.leave()
	}
	if err == nil {
		err = become(RoleTools)
	}
	say(err)
	return ExitSetup
}

func runTools(h Hooks) int {
	if onlyPlaces() != nil {
		return ExitInherit // the builder left nothing else open
	}
	small(2)
	s := &space{scores: takeScores(), lastOp: firstOp, calls: map[uint64]*call{}, guards: map[int]*guardian{}, born: make(chan struct{}, 1), alone: make(chan struct{}, 1)}
	if !s.seal(h) {
		return ExitSetup
	}
	var err error
	sock, err := frame.NewSocket(ChannelFD, 0)
	if err == nil {
		s.conn, err = frame.Accept(sock)
	}
	if err != nil {
		return ExitChannel
	}
	s.garbage.byHand()
	go s.reap()
	return s.serve()
}

// seal verifies what this process inherited and says so.
func (s *space) seal(h Hooks) bool {
	about, err := h.SealSpace(ChannelFD)
	if err == nil {
		err = notDumpable()
	}
	s.about = about
	setSignals(false)
	if !say(err) || err != nil {
		return false
	}
	prewarm(6) // before the first frame is read, so before anything is started
	return true
}

func digest(body []byte) string {
	d := frame.Digest(body)
	return hex.EncodeToString(d[:])
}

// write sends a reply or an event. A failure ends the boundary soon: the
// reading side sees the same broken channel.
func (s *space) write(kind frame.Kind, op uint64, r frame.ReplyBody, fds ...int) bool {
	if s.guest != nil {
		fds = nil // a pidfd cannot go over
	}
	return s.conn.Write(frame.Frame{Kind: kind, Op: op, Body: frame.Encode(r), FDs: fds}) == nil
}

// serve reads requests until the channel ends. It never waits for a call.
func (s *space) serve() int {
	for {
		f, err := s.conn.Read()
		if err == io.EOF {
			return ExitOK
		}
		if err != nil {
			return ExitChannel
		}
		s.garbage.took(len(f.Body))
		if !s.handle(f) {
			f.CloseFDs()
			return ExitChannel
		}
	}
}

func (s *space) handle(f frame.Frame) bool {
	if f.Kind == frame.Cancel {
		var c frame.CancelBody
		if len(f.FDs) != 0 || frame.Decode(f.Body, &c) != nil || c.GraceMS < 0 || c.LimitMS < 0 {
			return false
		}
		s.cancel(f.Op, c)
		return true
	}
	var req frame.RequestBody
	// Ids only grow, so none is ever used twice.
	if f.Kind != frame.Request || f.Op <= s.lastOp || frame.Decode(f.Body, &req) != nil {
		return false
	}
	s.lastOp = f.Op
	name := digest(f.Body)
	if req.Op != frame.OpExec && len(f.FDs) != 0 {
		return false
	}
	switch req.Op {
	case frame.OpPing:
		ok := s.write(frame.Reply, f.Op, frame.ReplyBody{Req: name, OK: true, Protocol: frame.Protocol})
		s.filled.Do(func() { go s.refill() }) // the host's hello is answered first
		return ok
	case frame.OpExec:
		return s.exec(f, &req, name)
	case frame.OpSignal:
		return s.signal(f.Op, &req, name)
	case frame.OpKillAll:
		s.mu.Lock()
		again := s.killing
		s.killing = true
		s.spare = nil // it is killed with the others; its socket is collected
		s.mu.Unlock()
		if again {
			return s.write(frame.Reply, f.Op, frame.ReplyBody{Req: name, Code: frame.FailBad, Msg: "already killing"})
		}
		go s.killAll(f.Op, name, time.Duration(req.LimitMS)*time.Millisecond)
		return true
	}
	return false
}

// reap waits for every child: guardians, and what their calls left behind.
func (s *space) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		if err == nil && ws.Stopped() {
			s.resume(pid)
			continue
		}
		if err == nil {
			s.reaped(pid)
		}
		if err == nil || err == syscall.EINTR {
			continue
		}
		select {
		case s.alone <- struct{}{}:
		default:
		}
		<-s.born
	}
}

// resume wakes a guardian. A program may stop its own (kill -STOP -1 does); the
// call would then never end, though the program does.
func (s *space) resume(pid int) {
	// A lock that is held means that a guardian is being started, perhaps this
	// one: its starter waits for it and is not through before it runs.
	known := true
	if s.guardMu.TryLock() {
		known = s.guards[pid] != nil
		s.unlockGuards()
	}
	if known { // not reaped, so the number is still its own
		_ = unix.Kill(pid, unix.SIGCONT)
	}
}

// killAll ends every process here but this one, also those that earlier calls
// left on purpose. It answers when the kernel says that there is no child
// left, which for pid 1 means no process.
func (s *space) killAll(op uint64, name string, limit time.Duration) {
	deadline := time.Now().Add(limit)
	r := frame.ReplyBody{Req: name}
	if s.guest != nil {
		s.killPrograms(limit / 2)
	}
	for !r.OK && time.Now().Before(deadline) {
		select {
		case <-s.alone: // may be old news
		default:
		}
		err := unix.Kill(-1, unix.SIGKILL)
		if err == unix.ESRCH {
			s.wakeReaper()
			r.OK = true
			break
		}
		s.wakeReaper()
		select {
		case <-s.alone:
			r.OK = unix.Kill(-1, 0) == unix.ESRCH
		case <-time.After(20 * time.Millisecond):
		}
	}
	if !r.OK {
		r.Code, r.Msg = frame.FailLimit, "some processes are still there"
	}
	s.mu.Lock()
	s.killing = false
	s.mu.Unlock()
	s.write(frame.Reply, op, r)
}

func (s *space) wakeReaper() {
	select {
	case s.born <- struct{}{}:
	default:
	}
}
