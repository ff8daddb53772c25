package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Probe implements backend.Driver: it makes one whole boundary without a source
// and takes it away again.
func (d *Driver) Probe(ctx context.Context) (backend.Capabilities, error) {
	c := backend.Capabilities{Version: kernelRelease(), Levels: task.Vector{}, Rootfs: task.Vector{}, How: map[task.Axis]string{}}
	sweepTrials(hierarchies(d.roots))
	worker, err := d.worker()
	if err != nil {
		c.Why, c.Fix = err.Error(), task.HintOf(err)
		return c, nil
	}
	spec := backend.Spec{
		Task: task.NewID(), Instance: trialInstance, Token: task.NewToken(), Identity: task.Identity{UID: os.Getuid(), GID: os.Getgid()},
		Source: backend.Mount{Target: "/tmp"}, Home: "/home/caisson", WorkerPath: worker,
	}
	b, err := d.Create(ctx, spec)
	var obs backend.Observation
	if err == nil {
		obs, err = b.Observe(ctx)
		cctx, cancel := sys.Detach(ctx, destroyTimeout)
		derr := b.Destroy(cctx)
		cancel()
		if derr != nil {
			return c, derr
		}
	}
	if ctx.Err() != nil {
		return c, context.Cause(ctx)
	}
	if task.CodeOf(err) == task.CodeStuck {
		return c, err
	}
	c.Features = d.features(err, obs)
	if os.Geteuid() == 0 {
		var ierr error
		if in, ok := b.(*instance); ok {
			ierr = in.idmapErr
		}
		c.Features = append(c.Features, idmapFeature(err == nil, ierr))
	}
	if err != nil {
		c.Why, c.Fix = err.Error(), task.HintOf(err)
		return c, nil
	}
	in := b.(*instance)
	if in.idmapErr != nil && !in.rootIdentity() {
		// This boundary had no files of its own; that of a task would be root's.
		c.Why = "the file system of the state folder cannot show root's files as another id's, so commands would run as the kernel's user 0: " + in.idmapErr.Error()
		c.Fix = otherIdentityFix
		return c, nil
	}
	c.Usable = true
	c.Findings = in.Findings()
	prc := 3
	for _, f := range c.Findings {
		if f.Axis == task.PRC {
			prc = min(prc, f.Cap)
		}
	}
	c.Levels = task.Vector{task.PRC: prc, task.FS: 2, task.NET: 4, task.RES: obs.Levels[task.RES], task.KRN: 1, task.CPL: 2, task.CHN: 2}
	c.Rootfs = task.Vector{task.FS: 3}
	c.How = map[task.Axis]string{
		task.PRC: "own user, pid, ipc and cgroup namespaces in two levels; fresh /proc; no capabilities; no_new_privs",
		task.FS:  "new root: read-only system folders, generated /etc, tmpfs home; Landlock" + landlockText(),
		task.NET: "own network namespace with loopback only; socket families by seccomp",
		task.RES: obs.Seen[task.RES],
		task.KRN: "the host's kernel behind a seccomp allow-list; /proc and /sys masked or absent",
		task.CPL: "no socket of the host, no daemon, no control file inside",
		task.CHN: "unnamed socket pair held by a non-dumpable worker in another user and pid namespace than every tool",
	}
	c.Userns = in.userns()
	c.Features = append(c.Features, usernsFeature(c.Userns))
	if stage.LandlockABI() < 1 {
		c.Findings = append(c.Findings, task.Finding{ID: "no-landlock", Axis: task.FS, Cap: task.MaxLevel(task.FS), Text: "the kernel has no Landlock: only mounts decide what can be read and written",
			Fix: "a kernel with Landlock (5.13 or later, in the `lsm=` list)"})
	}
	return c, nil
}

// userns says how a boundary with --grant userns differs from this one.
func (in *instance) userns() backend.Variant {
	v := backend.Variant{How: map[task.Axis]string{
		task.FS:  "new root: read-only system folders, generated /etc, tmpfs home; no Landlock, whose rules would refuse the task's own mounts",
		task.KRN: "the host's kernel behind a seccomp allow-list that lets user namespaces, mounts and network set-up of the task's own through; a /proc as an ordinary user sees it, no /sys",
	}}
	if in.rootIdentity() {
		v.Why, v.Fix = notGrantable, otherIdentityFix
	}
	return v
}

// rootIdentity reports whether processes inside are the kernel's user 0.
func (in *instance) rootIdentity() bool {
	return slices.ContainsFunc(in.Findings(), func(f task.Finding) bool { return f.ID == rootIdentityID })
}

// usernsFeature is the line about the grant.
func usernsFeature(v backend.Variant) task.Feature {
	if v.Why != "" {
		return task.Feature{Name: "grant-userns", Detail: v.Why, Fix: v.Fix}
	}
	return task.Feature{Name: "grant-userns", OK: true, Detail: "can be given (--grant userns); such a task has no Landlock"}
}

func (d *Driver) worker() (string, error) {
	if d.cfg.Worker == nil {
		return "", task.Errorf(task.CodeUnavailable, "linux.worker", "this build carries no worker program")
	}
	return d.cfg.Worker()
}

func landlockText() string {
	if abi := stage.LandlockABI(); abi > 0 {
		return fmt.Sprintf(" (ABI %d)", abi)
	}
	return ": none on this kernel"
}

// features turns the one trial into a line per mechanism. What comes after the
// step that failed was not tried.
func (d *Driver) features(err error, obs backend.Observation) []task.Feature {
	var se *stage.Error
	var st *startError
	errors.As(err, &se)
	errors.As(err, &st)
	why, fix := "", ""
	if err != nil {
		why, fix = err.Error(), task.HintOf(err)
	}
	order := []struct{ name, detail string }{
		{"namespaces", "user, mount, pid, ipc, uts, net and cgroup, by clone"},
		{"root", "a new root of read-only mounts, fresh /proc, loopback up"},
		{"tool-space", "user, pid, mount, ipc and cgroup namespaces nested in the worker's, with a fresh /proc and masks"},
		{"landlock", strings.TrimPrefix(landlockText(), " ") + ", a mount it must refuse was refused"},
		{"seccomp", "allow-list loaded on every thread, refused calls were refused"},
	}
	failed := len(order)
	if err != nil {
		failed = 0
		switch {
		case se == nil:
		case se.Step == "root":
			failed = 1
		case strings.Contains(se.Op, "Landlock"):
			failed = 3
		case strings.Contains(se.Op, "system call filter") || strings.HasPrefix(se.Op, "verify"):
			failed = 4
		case se.Step == "tool space" || se.Step == "worker" || se.Step == "set-up":
			failed = 2
		}
	}
	var out []task.Feature
	for i, o := range order {
		f := task.Feature{Name: o.name, OK: i < failed, Detail: o.detail}
		switch {
		case i == failed:
			f.Detail, f.Fix = why, fix
		case i > failed:
			f.Detail = "not tried: " + order[failed].name + " failed"
		case o.name == "landlock" && stage.LandlockABI() < 1:
			f.OK, f.Detail, f.Fix = false, "the kernel has none", "a kernel with Landlock (5.13 or later, in the `lsm=` list)"
		}
		out = append(out, f)
	}
	return append(out, d.groupFeature(err, obs))
}

func (d *Driver) groupFeature(err error, obs backend.Observation) task.Feature {
	gs := groups(hierarchies(d.roots), groupName(trialInstance, task.NewID(), task.NewToken()))
	f := task.Feature{Name: "cgroup"}
	for _, x := range d.groupFindings(gs) {
		f.Detail, f.Fix = x.Text, x.Fix
		return f
	}
	if err != nil {
		f.Detail = "not tried in full: no boundary could be made"
		return f
	}
	f.OK = obs.Levels[task.RES] >= 2
	f.Detail = "made, limits read back, removed: " + obs.Seen[task.RES]
	return f
}

// idmapFeature says what tryIDMap found.
func idmapFeature(tried bool, err error) task.Feature {
	f := task.Feature{Name: "id-mapped-mounts"}
	switch {
	case !tried:
		f.Detail = "not tried: no boundary could be made"
	case err != nil:
		f.Detail, f.Fix = err.Error(), "without them processes inside run as the kernel's uid 0 (finding root-identity); run as an ordinary user instead"
	default:
		f.OK, f.Detail = true, "a folder of root's appeared as another id's"
	}
	return f
}

// tryIDMap makes an id-mapped mount of the worker's folder, which is on the file
// system that the tasks' files are on, and drops it again.
func (pl *planner) tryIDMap() error {
	ns, err := pl.idmap()
	if err == nil && ns == nil {
		err = errors.New(pl.findings[0].Text)
	}
	if err != nil {
		return err
	}
	dir, err := realDir(filepath.Dir(pl.spec.WorkerPath))
	if err != nil {
		return err
	}
	seen, err := look(dir)
	if err != nil {
		return err
	}
	defer unix.Close(seen.fd)
	fd, err := seen.detach(ns)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:])
}
