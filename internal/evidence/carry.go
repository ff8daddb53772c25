package evidence

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Carried is an open log on its way into the program that this process becomes.
// It holds the values that are kept out of the record.
type Carried struct {
	Head  Head
	Size  int64
	Known []string
	// Descriptors of the open file and of the lock on it, to stay open.
	File, Lock int
}

// Carry makes all that was recorded durable and returns what Take needs. Whoever
// wants to record more waits until Stay, unless Carry fails.
func (l *Log) Carry() (c Carried, err error) {
	l.syncMu.Lock()
	l.mu.Lock()
	defer func() {
		if err != nil {
			l.Stay()
		}
	}()
	if l.failed != nil {
		return Carried{}, l.failed
	}
	if l.durable != l.written {
		if err := l.sync(l.f); err != nil {
			return Carried{}, l.latchLocked(err)
		}
		l.durable = l.written
	}
	c = Carried{Head: l.durable, Size: l.size}
	l.redact.mu.RLock()
	c.Known = slices.Clone(l.redact.known)
	l.redact.mu.RUnlock()
	if c.File, err = sys.FD(l.f); err == nil {
		c.Lock, err = sys.FD(l.lock.File())
	}
	return c, err
}

// Stay goes on in this program after Carry.
func (l *Log) Stay() {
	l.mu.Unlock()
	l.syncMu.Unlock()
}

// Take is Open for a log that this process held as another program.
func Take(dir string, id task.ID, c Carried) (*Log, error) {
	const op = "evidence.take"
	f := os.NewFile(uintptr(c.File), FileName)
	lock, err := sys.AdoptLock(os.NewFile(uintptr(c.Lock), FileName), filepath.Join(dir, FileName))
	if err != nil {
		return nil, fail(op, "cannot continue the evidence of task %s: %w", id, err)
	}
	held, err := lock.File().Stat()
	if err == nil {
		var fi os.FileInfo
		if fi, err = f.Stat(); err == nil && (!os.SameFile(fi, held) || fi.Size() != c.Size) {
			err = ErrAltered
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fail(op, "cannot continue the evidence of task %s: %w", id, errors.Join(err, lock.Unlock()))
	}
	l := writer(id, lock, &Redactor{known: c.Known})
	l.f, l.size, l.written, l.durable = f, c.Size, c.Head, c.Head
	return l, nil
}
