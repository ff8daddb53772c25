package inside

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// A process that the kernel would end as late as W and I has the score that they
// were started with. A program is the first to go, its guardian the first after
// all programs: else a tool that uses up the task's memory could have W ended,
// and with it the task, in its place. A score is inherited, so a program that
// was started just now, before its guardian raised it, goes before W too; that
// no program lowers its own is the stage's business.
const scoreMost = 1000

// scores is I's hold on them.
type scores struct {
	own, tree  int    // as in Scores
	base, call string // as the kernel reads them: of I, and what a guardian inherits
}

// leave puts both descriptors in their places, open across exec; everything else
// closes there.
func (s Scores) leave() error {
	given := s.Own >= 0 && s.Tree >= 0
	if given {
		for _, f := range []*int{&s.Own, &s.Tree} { // by way of numbers above the places
			high, err := unix.FcntlInt(uintptr(*f), unix.F_DUPFD_CLOEXEC, lastPlace+1)
			if err != nil {
				return err
			}
			*f = high
		}
		if err := unix.Dup3(s.Tree, leftTreeFD, 0); err != nil {
			return err
		}
		if err := unix.Dup3(s.Own, ownFD, 0); err != nil {
			return err
		}
	}
	return closingButPlaces(given, given)
}

// takeScores takes hold of what the builder left; nil: it left nothing.
func takeScores() *scores {
	if !inherited(ownFD) || !inherited(leftTreeFD) {
		return nil
	}
	unix.CloseOnExec(ownFD)
	unix.CloseOnExec(leftTreeFD)
	return holdScores(ownFD, leftTreeFD)
}

// holdScores reads from where scores begin. Both descriptors are the result's.
func holdScores(own, tree int) *scores {
	var b [16]byte
	n, err := unix.Pread(own, b[:], 0)
	if err != nil || n < 2 {
		return nil
	}
	base, err := strconv.Atoi(string(b[:n-1]))
	if err != nil {
		return nil
	}
	return &scores{own: own, tree: tree, base: strconv.Itoa(base), call: strconv.Itoa(base + (scoreMost-base)/2)}
}

// lend gives I a guardian's score for as long as one is being started. In this
// time programs still go first.
func (s *scores) lend() { s.set(true) }

// back gives I its own score again.
func (s *scores) back() { s.set(false) }

func (s *scores) set(call bool) {
	if s == nil {
		return
	}
	text := s.base
	if call {
		text = s.call
	}
	_, _ = unix.Pwrite(s.own, []byte(text), 0)
}

// isProc reports whether a descriptor is a /proc: with none to be had, I starts
// its guardians without.
func isProc(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC
}

// offer makes a program that C has just started the first that the kernel ends.
// What fails leaves it with its guardian's score.
func offer(pid int) {
	fd, err := unix.Openat(treeFD, strconv.Itoa(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(strconv.Itoa(scoreMost)))
	_ = unix.Close(fd)
}
