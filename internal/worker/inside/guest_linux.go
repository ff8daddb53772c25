package inside

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/crossing"
	"github.com/caisson-dev/caisson/internal/worker/frame"
	"github.com/caisson-dev/caisson/internal/worker/guest"
	"github.com/caisson-dev/caisson/internal/worker/mux"
	"github.com/caisson-dev/caisson/internal/worker/tools"
)

// settingsFD is foreign.settings in a guardian, until it has read it.
const settingsFD = treeFD + 1

// foreign is what I must know of a root that another program made.
type foreign struct {
	uid, gid int // of tools
	settings int // a descriptor for guest.Drop
}

// runGuest is W where an engine or runtime made the root and the namespaces: the
// channel is its standard input and output, and no namespace can be nested in
// which tools would be apart. W is process 1 and its user id is another than the
// tools'; it keeps what it needs to start them under theirs and to end them. I
// is a part of it, so that nothing but guardians has the tools' user.
func runGuest() int {
	if unix.Getpid() != 1 {
		complain("a guest is process 1, which ends everything else")
		return ExitUsage
	}
	syscall.Clearenv()
	unignore()
	in, out, err := takeStandard()
	if err != nil {
		complain(err.Error())
		return ExitInherit
	}
	small(2)
	unix.Umask(0o022)
	p, settings, err := guest.Enter(in, out)
	if err != nil {
		complain(err.Error())
		return ExitSetup
	}
	if notDumpable() != nil {
		return ExitSetup
	}
	// Where the host reads frames, it has the answer of Enter behind it.
	prewarm(8 + quickTools + slowTools + tools.Helpers)
	setSignals(false)
	return serveGuest(&p, settings, in, out)
}

// takeStandard takes hold of the channel. What stands at 0, 1 and 2 from then on
// is nothing, for everything that is started.
func takeStandard() (in, out *os.File, err error) {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var own [2]int
	for i := range own {
		// Above every place that has a meaning in a guardian.
		if own[i], err = unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 16); err != nil {
			return nil, nil, err
		}
		if err = unix.SetNonblock(own[i], true); err != nil {
			return nil, nil, err
		}
	}
	for i := range 2 {
		if err = unix.Dup3(null, i, 0); err != nil {
			return nil, nil, err
		}
	}
	return os.NewFile(uintptr(own[0]), "channel"), os.NewFile(uintptr(own[1]), "channel"), nil
}

// standard joins the two halves of the channel and counts what it brings.
type standard struct {
	in, out *os.File
	garbage *collector
	came    int
}

func (s *standard) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if s.came += n; s.came > collectAt {
		s.garbage.collect()
		s.came = 0
	}
	return n, err
}

func (s *standard) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s *standard) Close() error {
	err := s.in.Close()
	if oerr := s.out.Close(); err == nil {
		err = oerr
	}
	return err
}

func serveGuest(p *guest.Plan, settings int, in, out *os.File) int {
	about := Space{Env: p.Env, Dir: p.Workdir}
	for _, l := range p.Rlimits {
		about.Rlimits = append(about.Rlimits, frame.Rlimit{Resource: l.Resource, Soft: l.Soft, Hard: l.Hard})
	}
	s := &space{about: about, guest: &foreign{uid: p.UID, gid: p.GID, settings: settings}, lastOp: firstOp, calls: map[uint64]*call{}, guards: map[int]*guardian{}, born: make(chan struct{}, 1), alone: make(chan struct{}, 1)}
	s.scores = guestScores()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ExitInternal
	}
	s.garbage.byHand()
	end := make(chan int, 3)
	go func() {
		sock, err := frame.NewSocket(pair[1], unix.Getpid())
		if err == nil {
			s.conn, err = frame.Accept(sock)
		}
		if err != nil {
			end <- ExitInternal
			return
		}
		go s.reap()
		end <- s.serve()
	}()
	sock, err := frame.NewSocket(pair[0], unix.Getpid())
	if err != nil {
		return ExitInternal
	}
	space, err := frame.Dial(sock)
	if err != nil {
		return ExitInternal
	}
	if len(p.Kept) > 0 {
		ended := new(atomic.Int64)
		c := &crossing.Carrier{Path: p.Door, Key: [crossing.KeySize]byte(p.Carry), Done: func() {
			if ended.Add(1)%64 == 0 {
				s.garbage.collect()
			}
		}}
		if err := c.Carry(p.Kept); err != nil {
			return ExitSetup
		}
	}
	host, err := frame.Accept(mux.Inside(&standard{in: in, out: out, garbage: &s.garbage}))
	if err != nil {
		return ExitChannel
	}
	begin(host, space, p.Workdir, s.garbage.rest, end)
	return <-end
}

// guestScores takes hold of the scores, where they can be had.
func guestScores() *scores {
	own, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	tree, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(own)
		return nil
	}
	return holdScores(own, tree)
}

// runGuestCall is C under the tools' user: it sheds what they must not have.
func runGuestCall() int {
	if err := guest.Drop(settingsFD); err != nil {
		complain(err.Error())
		return ExitSetup
	}
	_ = unix.Close(settingsFD)
	return runCall()
}

// killPrograms ends every process but guardians, and gives these the time to tell
// how their programs ended: nobody else knows it here. A program that forks faster
// than it is found is left to who kills everything.
func (s *space) killPrograms(limit time.Duration) {
	deadline := time.Now().Add(min(limit, 2*time.Second))
	for time.Now().Before(deadline) {
		guards := map[int]bool{}
		s.guardMu.Lock()
		for pid := range s.guards {
			guards[pid] = true
		}
		s.unlockGuards()
		left := 0
		for _, sig := range []syscall.Signal{unix.SIGSTOP, unix.SIGKILL} {
			left = 0
			for _, p := range descendants(unix.Getpid()) {
				if guards[p.pid] || p.state == 'Z' || p.state == 'X' {
					continue
				}
				left++
				signalProcess(p, sig)
			}
		}
		s.mu.Lock()
		calls := len(s.calls)
		s.mu.Unlock()
		if left == 0 && calls == 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
