package boundary

import (
	"context"
	"sync"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// furnish makes the task's files and the boundary around them, and begins to look at
// what of the user's checkout the task does not have; the caller stops that, also
// after an error. The decision that the log has taken down is durable before
// anything is made.
func (m *Manager) furnish(ctx context.Context, l *live, d *decided, progress func(string)) (*source.Prepared, *besides, *standing, error) {
	// A private clone or copy is mounted as one folder, whatever is in it: its
	// files and the boundary are made at the same time. Elsewhere the boundary
	// depends on what the files are, or on where something must be mounted in them.
	if st := d.repo.Ref.Strategy; (st == task.StrategyClone || st == task.StrategyCopy) && len(wantedPoints(&l.spec)) == 0 {
		return m.furnishTogether(ctx, l, d, progress)
	}
	if err := l.log.Flush(); err != nil {
		return nil, nil, nil, err
	}
	tell(progress, "preparing the source")
	prep, err := m.prepare(ctx, l, d, progress, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := m.points(ctx, l, prep.Ref); err != nil {
		return nil, nil, nil, err
	}
	if err := m.unpackRoot(ctx, l, d, progress); err != nil {
		return nil, nil, nil, err
	}
	tell(progress, "building the boundary")
	if err := m.announce(ctx, l, d); err != nil {
		return nil, nil, nil, err
	}
	look := m.lookBeside(ctx, l, d)
	st, err := m.stand(ctx, d.driver, &l.spec, func(cause error) { m.poisoned(l, cause) })
	if st != nil {
		l.stands(st)
	}
	return prep, look, st, err
}

// furnishTogether is furnish for a source that the boundary does not depend on.
func (m *Manager) furnishTogether(ctx context.Context, l *live, d *decided, progress func(string)) (*source.Prepared, *besides, *standing, error) {
	if err := m.announce(ctx, l, d); err != nil {
		return nil, nil, nil, err
	}
	var mu sync.Mutex // both tell how far they are
	if told := progress; told != nil {
		progress = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			told(text)
		}
	}
	tell(progress, "preparing the source")
	whole := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	framed, ended := make(chan struct{}), make(chan struct{})
	var prep *source.Prepared
	var look *besides
	var perr error
	go func() {
		defer close(ended)
		if prep, perr = m.prepare(ctx, l, d, progress, func() { close(framed) }); perr != nil {
			cancel(perr) // no boundary is needed then
			return
		}
		look = m.lookBeside(whole, l, d)
	}()
	if err := framedOr(framed, ended, &perr); err != nil {
		return nil, nil, nil, err
	}
	var st *standing
	err := m.unpackRoot(ctx, l, d, progress)
	if err == nil {
		st, err = m.stand(ctx, d.driver, &l.spec, func(cause error) { m.poisoned(l, cause) })
	}
	if st != nil {
		l.stands(st)
	}
	if err != nil {
		cancel(err)
	}
	<-ended
	// The one that failed first is the reason of the other.
	if perr != nil && (err == nil || task.CodeOf(perr) != task.CodeCanceled) {
		err = perr
	}
	return prep, look, st, err
}

// framedOr waits until a source has its frame. It returns the error of one that
// ended without; a quick one may have ended well before anybody looks.
func framedOr(framed, ended <-chan struct{}, err *error) error {
	select {
	case <-framed:
		return nil
	case <-ended:
		return *err
	}
}

// prepare makes the task's files; framed is as in source.Inside.
func (m *Manager) prepare(ctx context.Context, l *live, d *decided, progress func(string), framed func()) (*source.Prepared, error) {
	ws := l.ws
	ws.Progress = progress
	prep, err := source.Prepare(ctx, d.repo, ws, source.Inside{ObjectsDir: backend.ObjectsDir, UID: insideUID, GID: insideUID, Disk: l.spec.Limits.DiskBytes, Framed: framed})
	if err != nil {
		return nil, err
	}
	if _, err := l.log.AppendBulk(ctx, evidence.SourcePrepared, self, map[string]any{"source": prep.Ref, "pins": prep.Pins}); err != nil {
		return nil, err
	}
	return prep, sys.Fault("open.source")
}

// announce puts on record, durably, that a boundary is about to be made.
func (m *Manager) announce(ctx context.Context, l *live, d *decided) error {
	if _, err := l.log.Append(ctx, evidence.BoundaryIntent, self, map[string]any{"backend": d.driver.Name()}); err != nil {
		return err
	}
	return sys.Fault("open.intended")
}

// besides is a look at what of the user's checkout the task does not have. It needs
// the task's repository, so it follows the files, but nothing waits for it before the
// task is put on record: the boundary is made and measured meanwhile.
type besides struct {
	cancel context.CancelFunc
	done   chan struct{} // closed once text is set
	text   string
}

func (m *Manager) lookBeside(ctx context.Context, l *live, d *decided) *besides {
	ctx, cancel := context.WithCancel(ctx)
	k := &besides{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		text, err := source.Uncommitted(ctx, d.repo, l.ws)
		if err != nil && ctx.Err() == nil {
			text = "whether your checkout has uncommitted files could not be told: " + err.Error()
		}
		k.text = text
	}()
	return k
}

// said waits for what the look tells.
func (k *besides) said() string {
	<-k.done
	return k.text
}

// stop ends the look, if it goes on still. nil: none was begun.
func (k *besides) stop() {
	if k != nil {
		k.cancel()
		<-k.done
	}
}
