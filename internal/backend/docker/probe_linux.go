package docker

import (
	"context"
	"fmt"
	"os"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Probe implements backend.Driver: it makes one whole boundary without a source
// and takes it away again.
func (d *Driver) Probe(ctx context.Context) (backend.Capabilities, error) {
	c := backend.Capabilities{Levels: task.Vector{}, Rootfs: task.Vector{}, How: map[task.Axis]string{}}
	no := func(err error) (backend.Capabilities, error) {
		if ctx.Err() != nil {
			return c, context.Cause(ctx)
		}
		c.Why, c.Fix = err.Error(), task.HintOf(err)
		return c, nil
	}
	e, k, err := d.engine(ctx)
	if err != nil {
		c.Features = []task.Feature{{Name: "engine", Detail: err.Error(), Fix: task.HintOf(err)}}
		return no(err)
	}
	kind := "Docker Engine"
	if k.version.podman() {
		kind = "Podman"
	}
	c.Version = fmt.Sprintf("%s %s, API %s", kind, k.version.Version, e.version)
	c.Features = []task.Feature{{Name: "engine", OK: true, Detail: c.Version + " at " + e.at.String() + rootlessText(k)}}
	worker, err := foreign.Worker(d.name+".worker", d.cfg.Worker)
	if err != nil {
		return no(err)
	}
	instance, err := foreign.TrialInstance(d.name)
	if err != nil {
		return no(err)
	}
	d.sweepTrials(ctx)
	spec := backend.Spec{
		Task: task.NewID(), Instance: instance, Token: task.NewToken(), Identity: task.Identity{UID: os.Getuid(), GID: os.Getgid()},
		Source: backend.Mount{Target: "/tmp"}, Home: "/home/caisson", WorkerPath: worker,
		Way: &backend.Way{Proxy: 61080, Ports: []uint16{80, 443}}, Inward: 1,
	}
	in, err := d.create(ctx, spec, true)
	var obs backend.Observation
	if err == nil {
		obs, err = in.Observe(ctx)
		cctx, cancel := sys.Detach(ctx, destroyTimeout)
		derr := in.Destroy(cctx)
		cancel()
		if derr != nil {
			return c, derr
		}
	}
	if task.CodeOf(err) == task.CodeStuck {
		return c, err
	}
	f := task.Feature{Name: "container", OK: err == nil, Detail: "made, its worker set itself apart, removed"}
	if err != nil {
		f.Detail, f.Fix = err.Error(), task.HintOf(err)
	}
	c.Features = append(c.Features, f, task.Feature{Name: "limits", OK: obs.Levels[task.RES] >= 2, Detail: obs.Seen[task.RES]})
	c.Features = append(c.Features, task.Feature{Name: "grant-userns", Detail: noUserns, Fix: noUsernsFix})
	if err != nil {
		return no(err)
	}
	c.Usable, c.Images = true, true
	c.Findings = in.Findings()
	c.Levels = task.Vector{task.PRC: 2, task.FS: 2, task.NET: 4, task.RES: obs.Levels[task.RES], task.KRN: 1, task.CPL: 2, task.CHN: 1}
	c.Rootfs = task.Vector{task.FS: 3}
	c.How = map[task.Axis]string{
		task.PRC: "a container with pid, ipc and uts namespaces of its own; tools under another user than the worker, without capabilities; no_new_privs",
		task.FS:  "read-only root, declared folders, HOME and /tmp in memory; no path of the host but these",
		task.NET: "a network namespace with loopback alone (network none)",
		task.RES: obs.Seen[task.RES],
		task.KRN: "the host's kernel behind the engine's system call filter and this program's",
		task.CPL: "no socket of the engine or of the host inside",
		task.CHN: "the container's standard streams, held by a worker of another user id than every tool",
	}
	c.Userns = backend.Variant{Why: noUserns, Fix: noUsernsFix}
	c.Way, c.Inward = in.crossings.Variant(), in.crossings.Variant()
	c.Features = append(c.Features, in.crossings.Feature("sockets came from inside the container"))
	return c, nil
}

func rootlessText(k *known) string {
	if k.rootless() {
		return ", with a user's rights"
	}
	return ", with root's rights"
}
