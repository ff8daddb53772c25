package oci

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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
	p, err := d.find()
	if err == nil {
		err = d.usable(p)
	}
	if err == nil {
		c.Version, err = p.version(ctx)
	}
	if err != nil {
		c.Features = []task.Feature{{Name: "runtime", Detail: err.Error(), Fix: task.HintOf(err)}}
		return no(err)
	}
	c.Features = []task.Feature{{Name: "runtime", OK: true, Detail: c.Version + " at " + p.path}}
	worker, err := foreign.Worker("oci.worker", d.cfg.Worker)
	if err != nil {
		return no(err)
	}
	d.sweepTrials(ctx)
	spec, err := d.trialSpec(worker)
	if err != nil {
		return no(err)
	}
	spec.Way, spec.Inward = &backend.Way{Proxy: 61080, Ports: []uint16{80, 443}}, 1
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
	f := task.Feature{Name: "boundary", OK: err == nil, Detail: "made, its worker set itself apart, removed"}
	if err != nil {
		f.Detail, f.Fix = err.Error(), task.HintOf(err)
	}
	c.Features = append(c.Features, f)
	if err != nil {
		return no(err)
	}
	if d.name == GVisor {
		c.Version += ", " + in.shape.platform
		c.Features = append(c.Features, task.Feature{Name: "kernel", OK: obs.Levels[task.KRN] >= 2, Detail: obs.Seen[task.KRN]})
	}
	if in.made.Hide {
		c.Features = append(c.Features, task.Feature{Name: "mixed-cgroups", OK: true, Detail: "crun starts in a mount namespace of its own in which " + unified + " is not: beside groups of version 1 it refuses to start anything"})
	}
	c.Features = append(c.Features, task.Feature{Name: "limits", OK: obs.Levels[task.RES] >= 2, Detail: obs.Seen[task.RES]},
		task.Feature{Name: "grant-userns", Detail: noUserns, Fix: noUsernsFix})
	c.Usable = true
	c.Findings = in.Findings()
	c.Levels = task.Vector{task.PRC: 2, task.FS: 2, task.NET: 4, task.RES: obs.Levels[task.RES], task.KRN: 1, task.CPL: 2, task.CHN: 1}
	c.Rootfs = task.Vector{task.FS: 3}
	c.How = map[task.Axis]string{
		task.PRC: "pid, ipc and uts namespaces of its own; tools under another user than the worker, without capabilities; no_new_privs",
		task.FS:  "read-only root, declared folders, HOME and /tmp in memory; no path of the host but these",
		task.NET: "a network namespace with loopback alone",
		task.RES: obs.Seen[task.RES],
		task.KRN: "the host's kernel behind this program's system call filter",
		task.CPL: "no socket of the runtime or of the host inside",
		task.CHN: "a socket pair as standard streams, held by a worker of another user id than every tool",
	}
	if d.name == GVisor {
		c.Levels[task.KRN] = obs.Levels[task.KRN]
		c.How[task.KRN] = obs.Seen[task.KRN]
	}
	c.Userns = backend.Variant{Why: noUserns, Fix: noUsernsFix}
	c.Way, c.Inward = in.crossings.Variant(), in.crossings.Variant()
	if d.name == GVisor {
		c.Inward = backend.Variant{Why: noInward, Fix: noInwardFix}
	}
	c.Features = append(c.Features, in.crossings.Feature("sockets came from inside the boundary"))
	return c, nil
}

// kvmTime bounds a trial of KVM: where a machine has no more than the node, nothing
// ever answers.
const kvmTime = 8 * time.Second

// Fresh implements backend.Fresher: beside what Probe tries, gVisor is also started on
// KVM where there is a node of it, since the node proves nothing.
func (d *Driver) Fresh(ctx context.Context) (backend.Capabilities, error) {
	c, err := d.Probe(ctx)
	if err != nil || !c.Usable || d.name != GVisor || d.getenv(PlatformVariable) != "" {
		return c, err
	}
	f := task.Feature{Name: "platform", OK: true, Detail: "systrap"}
	if unix.Access("/dev/kvm", unix.R_OK|unix.W_OK) == nil {
		f.Detail = "systrap; KVM works too, and " + PlatformVariable + "=kvm takes it"
		if err := d.kvm(ctx); err != nil {
			if ctx.Err() != nil || task.CodeOf(err) == task.CodeStuck {
				return c, err
			}
			f.Detail = "systrap; there is /dev/kvm, but gVisor does not start with it: " + foreign.Printable(err.Error(), 200)
		}
	}
	c.Features = append(c.Features, f)
	return c, nil
}

// kvm makes one boundary on KVM and takes it away.
func (d *Driver) kvm(ctx context.Context) error {
	worker, err := foreign.Worker("oci.worker", d.cfg.Worker)
	if err != nil {
		return err
	}
	getenv := func(k string) string {
		if k == PlatformVariable {
			return "kvm"
		}
		return d.getenv(k)
	}
	cfg := d.cfg
	cfg.Getenv = getenv
	spec, err := d.trialSpec(worker)
	if err != nil {
		return err
	}
	tctx, done := context.WithTimeoutCause(ctx, kvmTime, fmt.Errorf("nothing answered within %s", kvmTime))
	defer done()
	in, err := (&Driver{name: d.name, cfg: cfg}).create(tctx, spec, true)
	if err != nil {
		return err
	}
	cctx, cancel := sys.Detach(ctx, destroyTimeout)
	defer cancel()
	return in.Destroy(cctx)
}

func (d *Driver) trialSpec(worker string) (backend.Spec, error) {
	instance, err := foreign.TrialInstance(programs[d.name])
	return backend.Spec{
		Task: task.NewID(), Instance: instance, Token: task.NewToken(), Identity: task.Identity{UID: os.Getuid(), GID: os.Getgid()},
		Source: backend.Mount{Target: "/tmp"}, Home: "/home/caisson", WorkerPath: worker,
	}, err
}

// sweepTrials takes away what trials left whose process died in one. What cannot be
// taken away now is the next one's.
func (d *Driver) sweepTrials(ctx context.Context) {
	for _, l := range foreign.LeftTrials(d.cfg.Dir, prefix, programs[d.name]) {
		if len(l.Token) < 16 {
			_ = foreign.Remove(l.Dir, "") // empty: nothing was made yet
			continue
		}
		in, err := d.Attach(ctx, []backend.Resource{
			{Kind: kindBundle, Name: l.Dir, Token: l.Token, External: "folder"},
			{Kind: kindContainer, Name: d.stateOf(l.Token), Token: l.Token},
		})
		if err == nil {
			_ = in.Destroy(ctx)
		}
	}
}

// version is what the runtime says it is, on one line.
func (p *program) version(ctx context.Context) (string, error) {
	out, err := p.run(ctx, call{args: []string{"--version"}})
	if err != nil {
		return "", fmt.Errorf("it does not say its version: %w", err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return foreign.Printable(first, 100), nil
}
