package boundary

import (
	"context"
	"fmt"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

const (
	// diskInterval is how often the space a task takes is looked at without a
	// reason, times ten the look's own cost on large trees: the watch must not
	// become the load.
	diskInterval = 2 * time.Second
	// spaceInterval is how often the file system is asked what is free, which
	// costs next to nothing: a quick disk takes gigabytes in diskInterval.
	spaceInterval = 100 * time.Millisecond
	// lookStep is the least that must have gone from the file system for a look
	// between two.
	lookStep = 1 << 20
	// entryBytes is what an entry of a folder counts at least, as in Config.Usage.
	entryBytes = 4096
)

// limits starts the watchers of what the kernel does not limit: duration, and
// the space of source and output store.
func (m *Manager) limits(l *live) {
	if d := l.spec.Limits.Timeout; d > 0 {
		if l.until.IsZero() {
			l.until = time.Now().Add(d)
		}
		l.watch.Go(func() {
			t := time.NewTimer(time.Until(l.until))
			defer t.Stop()
			select {
			case <-l.ctx.Done():
			case <-t.C:
				m.limitHit(l, "timeout", fmt.Sprintf("the time limit of %s is over", d))
				l.cancel(task.Errorf(task.CodeLimit, "limits", "timeout"))
			}
		})
	}
	m.watchRest(l)
	l.watch.Go(func() { m.watchFolder(l, l.lock.Deleted()) })
	if max := l.spec.Limits.DiskBytes; max > 0 && m.cfg.Usage != nil {
		w := diskWatch{
			max:  max,
			used: func() (int64, error) { return m.cfg.Usage(l.ctx, l.dir) },
			free: func() (int64, int64, error) { return sys.Space(l.dir) },
			over: func(used int64) { m.diskOver(l, used, max) },
			failed: func(err error) {
				m.cfg.Log("task " + string(l.id) + ": the space it takes cannot be measured: " + err.Error())
			},
		}
		l.watch.Go(func() { w.run(l.ctx) })
	}
}

// diskOver kills what runs when source and output store outgrow the limit.
// The task stays, so that a person can look and delete; only further growth
// kills again. The kill does not wait for the record: what fills a disk also
// makes every sync on it slow.
func (m *Manager) diskOver(l *live, used, max int64) {
	recorded := make(chan struct{})
	text := fmt.Sprintf("source and output store take %d bytes, the limit is %d", used, max)
	l.hit(text)
	go func() {
		defer close(recorded)
		m.recordLimit(l, "disk", text)
	}()
	ctx, done := sys.Detach(l.ctx, killTime)
	defer done()
	_, wk := l.standing()
	if err := wk.KillAll(ctx, killTime); err != nil {
		m.condemn(l, err)
	}
	<-recorded
}

// diskWatch notices that a folder outgrows a limit. Measuring the folder takes
// time, so it is done now and then, and at once when the file system it lies in
// has lost enough to matter. Others write there too: only the folder decides.
type diskWatch struct {
	max    int64                                 // bytes it may take
	used   func() (int64, error)                 // measures it
	free   func() (bytes, inodes int64, e error) // of its file system
	over   func(used int64)                      // called whenever it is over max and has grown
	failed func(error)                           // it could not be measured
}

// run watches until ctx ends.
func (w *diskWatch) run(ctx context.Context) {
	tick := time.NewTicker(spaceInterval)
	defer tick.Stop()
	var last int64 // the size at which over was called
	room := w.max  // what it might still take at the last look; nothing is known yet
	gone := int64(0)
	bytes, inodes, ferr := w.free()
	looked, cost := time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b, i, err := w.free()
		if err == nil && ferr == nil {
			// What others give back must not hide what the task takes.
			gone += max(bytes-b, 0) + max(inodes-i, 0)*entryBytes
		}
		bytes, inodes, ferr = b, i, err
		wait := diskInterval + 10*cost
		switch {
		case gone >= max(room, lookStep):
			wait = cost // it may be over already: half of the time may go into looking
		case gone >= max(room/2, lookStep):
			wait = 4 * cost
		}
		if time.Since(looked) < wait {
			continue
		}
		begun := time.Now()
		gone = 0 // what goes from here on may have escaped the look
		used, err := w.used()
		looked = time.Now()
		cost = looked.Sub(begun)
		if err != nil {
			if ctx.Err() == nil {
				w.failed(err)
			}
			continue
		}
		room = max(w.max-used, 0)
		switch {
		case used <= w.max:
			last = 0 // somebody made room
		case used > last:
			last = used
			w.over(used)
		}
	}
}

func (m *Manager) limitHit(l *live, limit, text string) {
	m.recordLimit(l, limit, text)
	l.hit(text)
}

func (m *Manager) recordLimit(l *live, limit, text string) {
	ctx, done := sys.Detach(context.Background(), time.Minute)
	defer done()
	if _, err := l.log.Append(ctx, evidence.LimitHit, self, map[string]any{"limit": limit, "text": text}); err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
}

// hit says that commands which end from now on may have been ended by a limit.
func (l *live) hit(text string) {
	l.mu.Lock()
	l.limit, l.limitAt = text, time.Now()
	l.mu.Unlock()
}
