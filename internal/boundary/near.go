package boundary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// A command in an open task needs nothing of the inventory when the task's
// supervisor itself says that it is meant. See docs/adr/0029.

// execNear asks the supervisor that a hint leads to. It reports false when there
// is none, or none that knows itself meant: then nothing was begun and the files
// in io are as they were.
func (m *Manager) execNear(ctx context.Context, ref string, cmd task.Command, io *door.ExecIO) (task.Outcome, error, bool) {
	r := m.cfg.Near(ref)
	if r == nil {
		return task.Outcome{}, nil, false
	}
	// What is due is looked for beside the command, and not by every one of many
	// commands that follow each other.
	var due sync.WaitGroup
	if !m.lookedLately() {
		due.Go(func() {
			dctx, done := sys.Detach(ctx, cleanupTime)
			defer done()
			m.ReapDue(dctx)
		})
	}
	out, err := r.Exec(ctx, cmd, io)
	due.Wait()
	if errors.Is(err, door.ErrElsewhere) {
		return task.Outcome{}, nil, false
	}
	return out, err, true
}

// Answers reports whether this process holds the task id, commands are let in,
// and Find would say that ref means it: its id, or its name, which no other task
// can have while it is ready.
func (m *Manager) Answers(id task.ID, ref string) bool {
	l := m.lookup(id)
	if l == nil || ref == "" || ref != string(id) && ref != l.name {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready && !l.closing
}

// dueEvery is how long a command in an open task relies on the look for what is
// due that another command took. Every other command looks at its start.
const dueEvery = 10 * time.Second

func (m *Manager) duePath() string { return filepath.Join(m.cfg.StateDir, "reaped") }

// lookedLately reports whether somebody looked. A clock that was set back makes
// it false.
func (m *Manager) lookedLately() bool {
	i, err := os.Stat(m.duePath())
	return err == nil && time.Since(i.ModTime()).Abs() < dueEvery
}

// looked notes that this process looks now. It is a hint: what cannot be noted
// makes others look once more.
func (m *Manager) looked() {
	now := time.Now()
	if os.Chtimes(m.duePath(), now, now) == nil {
		return
	}
	if f, err := os.OpenFile(m.duePath(), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
}
