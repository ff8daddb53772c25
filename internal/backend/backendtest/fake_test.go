package backendtest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// fake is a backend that behaves without a boundary: what it makes are files in a
// folder, which other processes see. broken is the one promise that a twin does not
// keep; empty: it keeps all.
type fake struct {
	dir    string
	broken string
	made   *atomic.Int32 // creations, or probes
}

func (f *fake) Name() string { return "fake" }

func (f *fake) Probe(context.Context) (backend.Capabilities, error) {
	c := backend.Capabilities{
		Usable: true, Version: "fake", Levels: task.Vector{task.RES: 2, task.NET: 1},
		How:      map[task.Axis]string{task.RES: "it says so", task.NET: "it says so"},
		Features: []task.Feature{{Name: "nothing", OK: true}},
	}
	switch f.broken {
	case "a level off its chain":
		c.Levels[task.NET] = 99
	case "a promise without how":
		delete(c.How, task.NET)
	case "no feature told":
		c.Features = nil
	case "usable only at times":
		c.Usable = f.made.Add(1) == 1
	}
	return c, nil
}

var count atomic.Int32

func (f *fake) Resources(s backend.Spec) []backend.Resource {
	name := "fake-" + s.Instance + "-" + s.Token[:8]
	if f.broken == "another name each time" {
		name += strconv.Itoa(int(count.Add(1)))
	}
	rs := []backend.Resource{{Kind: "file", Name: name, Token: s.Token}}
	switch f.broken {
	case "naming makes":
		_ = os.WriteFile(filepath.Join(f.dir, name), []byte(s.Token), 0o600)
	case "names without the token":
		rs[0].Token = ""
	}
	return rs
}

func (f *fake) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	if ctx.Err() != nil && f.broken != "created though cancelled" {
		return nil, task.Errorf(task.CodeCanceled, "fake.create", "%w", context.Cause(ctx))
	}
	if f.made.Add(1) > 1 && f.broken == "makes one only" {
		return nil, task.Errorf(task.CodeUnavailable, "fake.create", "busy")
	}
	in := &made{fake: f, rs: f.Resources(s), mine: true}
	path := filepath.Join(f.dir, in.rs[0].Name)
	if err := os.WriteFile(path, []byte(s.Token), 0o600); err != nil {
		return nil, err
	}
	for _, m := range s.RO {
		if _, err := os.Stat(m.Source); err != nil && f.broken != "mounts what is not there" {
			if f.broken != "leaves what failed" {
				_ = os.Remove(path)
			}
			if f.broken == "errors without a code" {
				return nil, err
			}
			return nil, task.Errorf(task.CodeNotFound, "fake.create", "%w", err)
		}
	}
	if f.broken != "made without an identity" {
		in.rs[0].External = "file"
	}
	if f.broken == "says it made something else" {
		in.rs[0].Kind = "thing"
	}
	return in, nil
}

func (f *fake) Attach(_ context.Context, rs []backend.Resource) (backend.Instance, error) {
	if f.broken == "finds nothing again" {
		return nil, backend.ErrNotFound
	}
	for _, r := range rs {
		token, err := os.ReadFile(filepath.Join(f.dir, r.Name))
		if err == nil && (string(token) == r.Token || f.broken == "takes a name for proof") {
			return &made{fake: f, rs: rs}, nil
		}
	}
	if f.broken == "finds what is not there" {
		return &made{fake: f, rs: rs}, nil
	}
	return nil, backend.ErrNotFound
}

func (f *fake) List(_ context.Context, instance string) ([]backend.Resource, error) {
	entries, err := os.ReadDir(f.dir)
	var out []backend.Resource
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "fake-"+instance+"-") {
			out = append(out, backend.Resource{Kind: "file", Name: e.Name(), External: "file"})
		}
	}
	return out, err
}

// made is an instance: it lives as long as its file.
type made struct {
	*fake
	rs     []backend.Resource
	mine   bool // not found again
	dialed atomic.Bool
	gone   atomic.Bool
}

func (m *made) path() string { return filepath.Join(m.dir, m.rs[0].Name) }

func (m *made) Resources() []backend.Resource { return append([]backend.Resource(nil), m.rs...) }

func (m *made) Dial(context.Context) (net.Conn, error) {
	if m.dialed.Swap(true) && m.broken != "a channel for everybody" || !m.mine && m.broken != "a channel for the finder" {
		return nil, task.Errorf(task.CodeChannel, "fake.dial", "taken")
	}
	a, b := net.Pipe()
	_ = b.Close()
	return a, nil
}

func (m *made) Observe(context.Context) (backend.Observation, error) {
	o := backend.Observation{MemoryBytes: -1, Levels: task.Vector{task.RES: 2}, Seen: map[task.Axis]string{}}
	_, err := os.Stat(m.path())
	o.Alive = err == nil
	switch m.broken {
	case "dead from the start":
		o.Alive = false
	case "alive after its end":
		o.Alive = true
	case "nothing observed":
		o.Levels = task.Vector{}
	}
	return o, nil
}

func (m *made) Destroy(context.Context) error {
	switch {
	case m.broken == "ends only once" && m.gone.Swap(true):
		return errors.New("it is gone already")
	case m.broken == "says gone and is not":
		return nil
	}
	if err := os.Remove(m.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// TestFake: the suite passes where every promise is kept. It is the twins' program
// too.
func TestFake(t *testing.T) {
	dir := t.TempDir()
	twin := os.Getenv("BACKENDTEST_TWIN")
	Run(t, Config{
		New: func(*testing.T) backend.Driver { return &fake{dir: dir, broken: twin, made: new(atomic.Int32)} },
		Spec: func(t *testing.T, instance string) backend.Spec {
			return backend.Spec{Task: task.NewID(), Instance: instance, Token: task.NewToken(), Source: backend.Mount{Source: t.TempDir(), Target: "/w", Writable: true}, Home: "/home"}
		},
	})
}
