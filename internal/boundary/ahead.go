package boundary

import (
	"context"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// ahead is what a decision needs to know of the machine. None of it depends on
// the repository, so it is looked at while git answers.
type ahead struct {
	done chan struct{} // closed once the rest is set

	caps    backend.Capabilities
	capsErr error

	path     string // the PATH that was searched; empty: none was
	mounts   []backend.Mount
	tools    []task.Tool
	findings []task.Finding
	toolsErr error
}

// lookAhead begins to look; the returned func ends it and waits until it has
// ended.
func (d *decided) lookAhead(ctx context.Context, m *Manager, id task.ID) (stop func()) {
	a := &ahead{done: make(chan struct{})}
	d.ahead = a
	ctx, cancel := context.WithCancel(ctx)
	req := d.req
	go func() {
		defer close(a.done)
		a.caps, a.capsErr = d.driver.Probe(ctx)
		env, _, err := environment(req, id, m.cfg.Identity, m.cfg.Environ, nil)
		if err != nil || req.Rootfs != "" || req.Image != "" {
			return // said in its turn, or not wanted
		}
		a.path = valueOf(env, "PATH")
		a.mounts, a.tools, a.findings, a.toolsErr = m.cfg.Toolchains(ctx, a.path, m.cfg.Identity.Home)
	}()
	return func() { cancel(); <-a.done }
}

// probe returns what the backend can do here.
func (d *decided) probe(ctx context.Context) (backend.Capabilities, error) {
	if d.ahead == nil {
		return d.driver.Probe(ctx)
	}
	<-d.ahead.done
	return d.ahead.caps, d.ahead.capsErr
}

// toolchains returns what PATH offers.
func (d *decided) toolchains(ctx context.Context, m *Manager, path string) ([]backend.Mount, []task.Tool, []task.Finding, error) {
	if a := d.ahead; a != nil {
		if <-a.done; a.path == path && path != "" {
			return a.mounts, a.tools, a.findings, a.toolsErr
		}
	}
	return m.cfg.Toolchains(ctx, path, m.cfg.Identity.Home)
}
