package swap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// maxTurns bounds how often one path is exchanged while somebody keeps saving
// there.
const maxTurns = 1000

// Recover ends what a killed Run left: it finishes when the mark is set, else it
// takes everything back. It can be repeated. A path that is neither as it was
// nor as it should have become belongs to somebody else now: it is left alone
// and reported, with what was there before kept beside the journal. lock is
// asked for the open, locked folder.
func Recover(journalDir string, lock func(root string) (*os.File, error)) (recovered bool, left []Left, err error) {
	j, err := readJournal(journalDir)
	if err != nil {
		return false, nil, err
	}
	if j == nil {
		return false, nil, dropMark(journalDir)
	}
	root, err := lock(j.Root)
	if err != nil {
		return false, nil, err
	}
	defer root.Close()
	// Again under the lock: the process that wrote it may have gone on.
	if j, err = readJournal(journalDir); err != nil || j == nil {
		return false, nil, err
	}
	r := &runner{job: Job{Root: root, RootPath: j.Root, Journal: journalDir}, j: j, root: int(root.Fd())}
	defer r.close()
	dev, _, ino, err := place(r.root, "")
	if err != nil {
		return false, nil, err
	}
	if dev != j.RootDev || ino != j.RootIno {
		return false, nil, fmt.Errorf("%w: %s", ErrMoved, j.Root)
	}
	if !j.Ready || exists(filepath.Join(journalDir, commitFile)) || !exists(j.Stage) {
		return true, nil, r.remove()
	}
	if err := r.open(); err != nil {
		return false, nil, err
	}
	left, err = r.back()
	return err == nil, left, err
}

// dropMark removes a mark without a journal: all was done.
func dropMark(dir string) error {
	if !exists(filepath.Join(dir, commitFile)) {
		return nil
	}
	return drop(dir)
}

// back takes every step back, last one first, and ends the record.
func (r *runner) back() (left []Left, err error) {
	for i := len(r.j.Steps) - 1; i >= 0; i-- {
		s := &r.j.Steps[i]
		dir, name, err := parent(r.root, string(s.Path))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, ErrUnsafe) {
			dir, err = -1, nil // nowhere to put it; what we hold is kept
		}
		if err != nil {
			return left, err
		}
		ok, err := r.undo(i, dir, name)
		if dir >= 0 {
			unix.Close(dir)
		}
		if err != nil {
			return left, fmt.Errorf("%s: %w", strconv.QuoteToGraphic(string(s.Path)), err)
		}
		if !ok {
			kept, err := r.keep(i)
			if err != nil {
				return left, err
			}
			left = append(left, Left{Path: string(s.Path), Kept: kept})
		}
		if err := sys.Fault("swap.undone"); err != nil {
			return left, err
		}
	}
	if err := r.sync(); err != nil {
		return left, err
	}
	// From here the staging folder holds nothing of anybody's, so a removal of
	// it that is cut short is not taken for steps to be undone.
	r.j.Ready = false
	if err := r.j.write(r.job.Journal); err != nil {
		return left, err
	}
	return left, r.remove()
}

// undo takes one step back. It reports false when somebody else's version is at
// the path and stays there.
func (r *runner) undo(i, dir int, name string) (bool, error) {
	s, slot := &r.j.Steps[i], strconv.Itoa(i)
	held, _, err := look(r.slot(), slot, false)
	if err != nil {
		return false, err
	}
	switch {
	case s.New == nil && s.Old.Kind == Dir:
		return r.undoRmdir(s, dir, name)
	case s.New == nil:
		return r.undoDelete(held, slot, dir, name)
	case s.Old == nil:
		return r.undoAdd(s, held, slot, dir, name)
	}
	if held == nil {
		return true, nil
	}
	if held.is(s.New) {
		// Not done, or undone already. Or killed in between: see below.
		if ok, err := settled(r.slot(), slot, s.New); ok || err != nil {
			return ok, err
		}
	}
	if dir < 0 {
		return false, nil
	}
	at, err := lookAt(dir, name)
	if err != nil {
		return false, err
	}
	switch {
	case at != nil && at.same(s.New, false):
		return r.turn(s, slot, dir, name)
	case at.is(s.Old):
		// Killed after the old file was put back and had pushed out something
		// that somebody saved in that moment: theirs is the newer one.
		err := unix.Renameat2(dir, name, r.slot(), slot, unix.RENAME_EXCHANGE)
		return false, err
	}
	return false, nil
}

// turn exchanges until what comes out is what we had put there. Anything else
// that comes out was saved there by somebody after our step, so it is newer
// than what was just put back, and goes back in its turn.
func (r *runner) turn(s *step, slot string, dir int, name string) (bool, error) {
	var put *Seen // what our last exchange but one left at the path
	for n := range maxTurns {
		mine, err := lookAt(r.slot(), slot)
		if err != nil {
			return false, err
		}
		err = unix.Renameat2(dir, name, r.slot(), slot, unix.RENAME_EXCHANGE)
		if errors.Is(err, unix.ENOENT) {
			return false, nil // removed by somebody: that is how it stays
		}
		if err != nil {
			return false, err
		}
		if n == 0 {
			if ok, err := settled(r.slot(), slot, s.New); ok || err != nil {
				return ok, err
			}
		} else {
			out, err := lookAt(r.slot(), slot)
			if err != nil {
				return false, err
			}
			if out.is(put) {
				return false, nil // the newest is at the path
			}
		}
		put = mine
	}
	return false, nil
}

func lookAt(dir int, name string) (*Seen, error) {
	s, _, err := look(dir, name, false)
	return s, err
}

func (r *runner) undoRmdir(s *step, dir int, name string) (bool, error) {
	if dir < 0 {
		return false, nil
	}
	err := unix.Mkdirat(dir, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if int(s.Old.UID) != unix.Geteuid() || int(s.Old.GID) != unix.Getegid() {
		_ = unix.Fchown(fd, int(s.Old.UID), int(s.Old.GID))
	}
	return true, unix.Fchmod(fd, s.Old.Perm())
}

func (r *runner) undoDelete(held *Seen, slot string, dir int, name string) (bool, error) {
	if held == nil {
		return true, nil
	}
	if dir < 0 {
		return false, nil
	}
	err := unix.Renameat2(r.slot(), slot, dir, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return err == nil, err
}

func (r *runner) undoAdd(s *step, held *Seen, slot string, dir int, name string) (bool, error) {
	switch {
	case held != nil && held.Kind == Dir:
		return true, nil
	case held != nil:
		if ok, err := settled(r.slot(), slot, s.New); ok || err != nil || dir < 0 {
			return ok, err
		}
		return r.giveBack(slot, dir, name)
	case dir < 0:
		return true, nil // gone together with its folder
	}
	at, err := lookAt(dir, name)
	if err != nil || at == nil {
		return err == nil, err
	}
	if s.New.Kind == Dir {
		if !at.is(s.New) {
			return true, nil // ours is gone already
		}
		err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return false, nil
		}
		return err == nil, err
	}
	if !at.same(s.New, false) {
		return false, nil
	}
	err = unix.Renameat2(dir, name, r.slot(), slot, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if ok, err := settled(r.slot(), slot, s.New); ok || err != nil {
		return ok, err
	}
	return r.giveBack(slot, dir, name)
}

// giveBack returns what somebody saved into an added file in the moment when it
// was taken away.
func (r *runner) giveBack(slot string, dir int, name string) (bool, error) {
	err := unix.Renameat2(r.slot(), slot, dir, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return false, nil // and saved again: the older one is kept
	}
	return false, err
}

// keep moves what the staging folder holds of a step beside the journal, and
// returns its name; empty when there is nothing of somebody else's.
func (r *runner) keep(i int) (string, error) {
	slot := strconv.Itoa(i)
	held, _, err := look(r.slot(), slot, false)
	if err != nil || held == nil || held.Kind == Dir || held.Kind == Special {
		return "", err
	}
	if n := r.j.Steps[i].New; held.is(n) {
		if ok, err := settled(r.slot(), slot, n); ok || err != nil {
			return "", err
		}
	}
	dir := filepath.Join(r.job.Journal, keptFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	from := filepath.Join(r.j.Stage, slot)
	for n := 0; ; n++ {
		to := filepath.Join(dir, slot)
		if n > 0 {
			to += "." + strconv.Itoa(n)
		}
		if exists(to) {
			continue // of an earlier job
		}
		if held.Kind == Link {
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				return "", err
			}
		} else if err := keepFile(from, to); err != nil {
			return "", err
		}
		return to, errors.Join(sys.SyncDir(dir), os.Remove(from))
	}
}

// keepFile copies: the journal may be on another file system.
func keepFile(from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := to + ".new"
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp, to)
}
