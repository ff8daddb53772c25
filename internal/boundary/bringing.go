package boundary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

var _ = sys.RegisterFaults("rescue.intended", "rescue.standing", "rescue.bundled", "rescue.destroyed")

// maxBundle bounds what a task can bring out as commits.
const maxBundle = 4 << 30

// rescueTime bounds the throwaway boundary that writes the bundle.
const rescueTime = 5 * time.Minute

// bundle runs git in a throwaway boundary that sees the task's source
// read-only, and has take read what it writes. typ announces it on the record.
func (m *Manager) bundle(ctx context.Context, l *live, t inventory.Task, typ evidence.Type, take func(context.Context, io.Reader) error) error {
	argv, env, err := source.BundleCommand(ctx, l.ws)
	if err != nil {
		return err
	}
	return m.bringing(ctx, l, t, bundling{argv: argv, env: env, typ: typ, take: take})
}

// bringing carries out b in a throwaway boundary.
func (m *Manager) bringing(ctx context.Context, l *live, t inventory.Task, b bundling) (err error) {
	ctx, done := context.WithTimeout(ctx, rescueTime)
	defer done()
	d, err := m.driver(t.View.Backend)
	if err != nil {
		return err
	}
	s, err := m.throwaway(ctx, l, t)
	if err != nil {
		return err
	}
	rs := backendResources(d, s)
	if err := m.cfg.DB.Intend(ctx, l.id, rs); err != nil {
		return err
	}
	if err := sys.Fault("rescue.intended"); err != nil {
		return err
	}
	err, left := m.standFor(ctx, d, &s, func(st *standing) error {
		b.st, b.spec = st, &s
		return m.bundleIn(ctx, l, b, t)
	})
	err = errors.Join(err, left, sys.Fault("rescue.destroyed"))
	mctx, mdone := sys.Detach(ctx, time.Minute)
	defer mdone()
	return errors.Join(err, m.mark(mctx, l.id, gone(rs, left)))
}

// throwaway is the spec of a boundary that only reads the task's source.
func (m *Manager) throwaway(ctx context.Context, l *live, t inventory.Task) (backend.Spec, error) {
	id := t.View.Identity
	out := filepath.Join(l.dir, "rescue-out")
	if err := os.Mkdir(out, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return backend.Spec{}, task.Errorf(task.CodeStateStore, "close", "cannot make a folder for the rescue: %w", err)
	}
	env, _, err := environment(task.Request{}, l.id, id, m.cfg.Environ, nil)
	if err != nil {
		return backend.Spec{}, err
	}
	s := backend.Spec{
		Task: l.id, Instance: m.cfg.DB.Instance(), Token: task.NewToken(), Identity: id, Home: id.Home, Env: env, Hostname: string(l.id),
		Source: backend.Mount{Source: filepath.Join(l.dir, "source"), Target: t.View.Source.Target},
		Out:    backend.Mount{Source: out, Target: backend.OutDir, Writable: true},
		Limits: m.cfg.Defaults(task.Limits{}), Absent: []string{m.cfg.StateDir, m.cfg.RuntimeDir},
	}
	for i, o := range t.View.Objects {
		s.Objects = append(s.Objects, backend.Mount{Source: o, Target: fmt.Sprintf("%s/%d", backend.ObjectsDir, i)})
	}
	return s, nil
}

// bundling is one bundle being written in a throwaway boundary.
type bundling struct {
	st        *standing
	spec      *backend.Spec
	argv, env []string
	stdin     string // what the program reads
	typ       evidence.Type
	take      func(context.Context, io.Reader) error
}

// textFile is a file without a name that holds a text, open to be read; the
// caller closes it.
func textFile(dir, text string) (*os.File, error) {
	if text == "" {
		return os.Open(os.DevNull)
	}
	f, err := os.CreateTemp(dir, ".tmp-task.json-*") // the removal knows the name
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "close", "a temporary file cannot be made: %w", err)
	}
	_, err = f.WriteString(text)
	var in *os.File
	if err == nil {
		in, err = os.Open(f.Name())
	}
	if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		if in != nil {
			_ = in.Close()
		}
		return nil, task.Errorf(task.CodeStateStore, "close", "a temporary file cannot be written: %w", err)
	}
	return in, nil
}

func (m *Manager) bundleIn(ctx context.Context, l *live, b bundling, t inventory.Task) error {
	_, _, _, report, err := m.probe(ctx, b.st, b.spec, hostLevels(t.View.Source, nil), nil)
	if err != nil {
		return err
	}
	if l.log != nil {
		if _, err := l.log.Append(ctx, b.typ, self, map[string]any{"argv": b.argv, "probe": json.RawMessage(report)}); err != nil {
			return err
		}
	}
	if err := sys.Fault("rescue.standing"); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	in, err := textFile(l.dir, b.stdin)
	if err != nil {
		return err
	}
	defer in.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	call, err := b.st.wk.Exec(ctx, worker.Command{Argv: b.argv, Dir: b.spec.Source.Target, Env: append(append([]string{}, b.spec.Env...), b.env...)}, []*os.File{in, w, null})
	_ = w.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.Close() })
	defer stop()
	if err := b.take(ctx, r); err != nil {
		if cause := context.Cause(ctx); cause != nil { // which closed the pipe
			err = task.Errorf(task.CodeCanceled, "rescue", "taking the commits out was stopped: %w", cause)
		}
		_ = call.Cancel(ctx, 0)
		return err
	}
	if err := sys.Fault("rescue.bundled"); err != nil {
		return err
	}
	_, werr := call.Wait(ctx) // its status says nothing that take did not check
	return werr
}
