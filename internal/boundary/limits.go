package boundary

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// diskInterval is how often the space a task takes is looked at, times ten the
// look's own cost on large trees: the watch must not become the load.
const diskInterval = 2 * time.Second

// limits starts the watchers of what the kernel does not limit: duration, and
// the space of source and output store.
func (m *Manager) limits(l *live) {
	if d := l.spec.Limits.Timeout; d > 0 {
		l.watch.Go(func() {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-l.ctx.Done():
			case <-t.C:
				m.limitHit(l, "timeout", fmt.Sprintf("the time limit of %s is over", d))
				l.cancel(task.Errorf(task.CodeLimit, "limits", "timeout"))
			}
		})
	}
	l.watch.Go(func() { m.watchFolder(l, l.lock.Deleted()) })
	if max := l.spec.Limits.DiskBytes; max > 0 && m.cfg.Usage != nil {
		l.watch.Go(func() { m.watchDisk(l, max) })
	}
}

// watchDisk kills what runs when source and output store outgrow the limit.
// The task stays, so that a person can look and delete; only further growth
// kills again.
func (m *Manager) watchDisk(l *live, max int64) {
	var last int64
	wait := diskInterval
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(wait):
		}
		begun := time.Now()
		used, err := m.cfg.Usage(l.ctx, l.dir)
		if err != nil {
			if l.ctx.Err() == nil {
				m.cfg.Log("task " + string(l.id) + ": the space it takes cannot be measured: " + err.Error())
			}
			continue
		}
		wait = diskInterval + 10*time.Since(begun)
		if used > max && used > last {
			last = used
			m.limitHit(l, "disk", fmt.Sprintf("source and output store take %d bytes, the limit is %d", used, max))
			ctx, done := sys.Detach(l.ctx, killTime)
			_, wk := l.standing()
			if err := wk.KillAll(ctx, killTime); err != nil {
				m.condemn(l, err)
			}
			done()
		}
	}
}

func (m *Manager) limitHit(l *live, limit, text string) {
	ctx, done := sys.Detach(context.Background(), time.Minute)
	defer done()
	if _, err := l.log.Append(ctx, evidence.LimitHit, self, map[string]any{"limit": limit, "text": text}); err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
	l.mu.Lock()
	l.limit, l.limitAt = text, time.Now()
	l.mu.Unlock()
}
