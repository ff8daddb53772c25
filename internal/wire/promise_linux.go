package wire

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/linux"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// promiseTime is how long an answer of Probe is believed. It is a promise only:
// every boundary is measured before its first command.
const promiseTime = 12 * time.Hour

// remembered is a driver whose Probe is not repeated by every command: trying
// every layer costs as much as a whole boundary.
type remembered struct {
	backend.Driver
	path   string // of the remembered answer
	worker func() (string, error)
}

type promise struct {
	Key  string               `json:"key"`
	Time time.Time            `json:"time"`
	Caps backend.Capabilities `json:"caps"`
	// Learned is what backend.Learner says.
	Learned json.RawMessage `json:"learned,omitempty"`
}

func remember(ds []backend.Driver, state string, worker func() (string, error)) []backend.Driver {
	for i, d := range ds {
		if _, keyed := d.(backend.Keyed); keyed || d.Name() == linux.Name {
			ds[i] = &remembered{Driver: d, path: filepath.Join(state, "promise-"+d.Name()+".json"), worker: worker}
		}
	}
	return ds
}

// Probe implements backend.Driver. Only a usable answer is remembered: who has
// just mended the machine must not wait.
func (r *remembered) Probe(ctx context.Context) (backend.Capabilities, error) {
	key := r.key()
	if p, ok := r.read(); ok && key != "" && p.Key == key && p.Caps.Usable {
		if age := time.Since(p.Time); age >= 0 && age < promiseTime {
			if l, ok := r.Driver.(backend.Learner); ok {
				l.Recall(p.Learned) // a boundary is made next, most often
			}
			return p.Caps, nil
		}
	}
	return r.anew(ctx, r.Driver.Probe)
}

// Fresh implements backend.Fresher.
func (r *remembered) Fresh(ctx context.Context) (backend.Capabilities, error) {
	if f, ok := r.Driver.(backend.Fresher); ok {
		return r.anew(ctx, f.Fresh)
	}
	return r.anew(ctx, r.Driver.Probe)
}

// anew tries, and remembers what came of it.
func (r *remembered) anew(ctx context.Context, try func(context.Context) (backend.Capabilities, error)) (backend.Capabilities, error) {
	l, learns := r.Driver.(backend.Learner)
	if learns {
		l.Forget()
	}
	c, err := try(ctx)
	if err != nil || !c.Usable {
		r.forget()
		return c, err
	}
	if key := r.key(); key != "" {
		p := promise{Key: key, Time: time.Now().UTC(), Caps: c}
		if learns {
			p.Learned = l.Learned()
		}
		if b, jerr := json.Marshal(p); jerr == nil {
			_ = sys.WriteFile(r.path, b, 0o600) // only speed is lost without it
		}
	}
	return c, nil
}

// Create implements backend.Driver. A layer that was promised and does not hold
// makes the next command try everything again.
func (r *remembered) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	in, err := r.Driver.Create(ctx, s)
	if task.CodeOf(err) == task.CodeUnavailable {
		r.forget()
		if l, ok := r.Driver.(backend.Learner); ok {
			l.Forget()
		}
	}
	return in, err
}

// Take implements backend.Taker.
func (r *remembered) Take(state []byte) (backend.Instance, error) {
	t, ok := r.Driver.(backend.Taker)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return t.Take(state)
}

func (r *remembered) forget() { _ = os.Remove(r.path) }

func (r *remembered) key() string {
	w, err := r.worker()
	if err != nil {
		return ""
	}
	k, err := linux.HostKey(w)
	if err != nil {
		return ""
	}
	if d, keyed := r.Driver.(backend.Keyed); keyed {
		own := d.Key()
		if own == "" {
			return ""
		}
		k += "\n" + own
	}
	return k
}

func (r *remembered) read() (p promise, ok bool) {
	b, err := os.ReadFile(r.path)
	return p, err == nil && json.Unmarshal(b, &p) == nil
}

// FindImage implements backend.Imager.
func (r *remembered) FindImage(ctx context.Context, ref string, pull bool) (string, error) {
	im, ok := r.Driver.(backend.Imager)
	if !ok {
		return "", task.Errorf(task.CodeUnsupported, "images", "the backend %s takes no images", r.Name())
	}
	return im.FindImage(ctx, ref, pull)
}
