package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/backend/internal/idmapped"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/guest"
)

// instance is one container, live or found again.
type instance struct {
	driver   *Driver
	spec     backend.Spec
	engine   *engine // nil: found again without a container
	known    *known
	token    string
	limits   task.Limits
	ids      foreign.Insiders
	mapped   *idmapped.Set // nil: the task's folders are shown as they are
	attached bool          // found again: only good for Destroy
	trial    bool          // made to find out

	crossings foreign.Crossings

	mu        sync.Mutex
	findings  []task.Finding
	folder    string
	id        string // of the container
	named     bool   // it may exist under its name, though the engine did not say so
	conn      *attached
	boot      string // of the machine on which the worker runs
	begun     uint64 // when it began
	dialed    bool
	gone      bool
	resources []backend.Resource // as recorded, when found again
}

func (in *instance) maybe() {
	in.mu.Lock()
	in.named = true
	in.mu.Unlock()
}

func (in *instance) finding(f task.Finding) {
	in.mu.Lock()
	in.findings = append(in.findings, f)
	in.mu.Unlock()
}

// Findings implements backend.Qualified.
func (in *instance) Findings() []task.Finding {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.findings)
}

// Inside implements backend.Insider.
func (in *instance) Inside() (uid, gid int) { return in.ids.UID, in.ids.GID }

// Resources implements backend.Instance.
func (in *instance) Resources() []backend.Resource {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.attached {
		return slices.Clone(in.resources)
	}
	rs := in.driver.Resources(in.spec)
	for i := range rs {
		switch {
		case rs[i].Kind == kindFolder && in.folder != "":
			rs[i].External = "folder"
		case rs[i].Kind == kindContainer && in.id != "":
			rs[i].External = formatExternal(in.id, in.engine.at)
		}
	}
	return rs
}

// Dial implements backend.Instance.
func (in *instance) Dial(context.Context) (net.Conn, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conn == nil || in.dialed {
		return nil, task.Errorf(task.CodeChannel, "docker.dial", "the channel can be taken once, by the process that made the boundary")
	}
	in.dialed = true
	return in.conn, nil
}

// verify holds what the engine made to what was asked for. An engine that leaves
// out what it does not know must not pass unseen. c is its answer since it started the
// container; nil: it is asked. pid is the worker's number, as the engine has it.
func (in *instance) verify(ctx context.Context, c *containerInfo) (pid int, err error) {
	if c == nil {
		if c, err = in.engine.inspect(ctx, in.id); err != nil {
			return 0, fmt.Errorf("look at the container: %w", err)
		}
	}
	if why := in.differs(c); why != "" {
		return 0, task.Errorf(task.CodeUnavailable, "docker.verify", "the engine did not make what was asked for: %s", why).
			WithHint("nothing was executed; `caisson doctor` shows what this engine can do")
	}
	if why := in.unlimited(c.HostConfig); why != "" {
		in.finding(task.Finding{ID: "no-cgroup", Axis: task.RES, Cap: 1, Text: "the engine sets no limit on all processes together: " + why + "; sizes of folders in memory and the duration bound them",
			Fix: "root's engine, or control groups v2 that are delegated to this user"})
	}
	return c.State.Pid, nil
}

// differs says what of a running container is not as planned; empty: nothing.
func (in *instance) differs(c *containerInfo) string {
	h := c.HostConfig
	if h == nil || c.Config == nil {
		return "it does not say how the container is made"
	}
	host := func(mode string) bool { return mode == "host" || strings.HasPrefix(mode, "container:") }
	added := func() []string {
		var out []string
		for _, n := range h.CapAdd {
			n = strings.TrimPrefix(strings.ToUpper(n), "CAP_")
			if !slices.Contains(foreign.Capabilities(in.spec), n) {
				out = append(out, n)
			}
		}
		return out
	}
	switch {
	case c.Config.Labels[labelToken] != in.token:
		return "the container has another label"
	case in.spec.Image != "" && strings.TrimPrefix(c.Image, "sha256:") != strings.TrimPrefix(in.spec.Image, "sha256:"):
		return "its root is another image"
	case h.Privileged:
		return "the container is privileged"
	case h.NetworkMode != "none":
		return "its network is " + printable(h.NetworkMode, 40)
	case host(h.PidMode) || host(h.IpcMode) || host(h.UTSMode):
		return "it shares a namespace of the host"
	case !h.ReadonlyRootfs:
		return "its root can be written"
	case strayMount(c, in) != "":
		return "something can be written that was not asked for: " + strayMount(c, in)
	case loose(h.SecurityOpt) != "":
		return "it goes without a protection of the engine's: " + loose(h.SecurityOpt)
	case len(added()) > 0:
		return "it has the capabilities " + strings.Join(added(), ", ")
	}
	return ""
}

// loose names a security option that takes a protection away; empty: none does.
func loose(options []string) string {
	for _, o := range options {
		k, v, _ := strings.Cut(strings.Replace(o, ":", "=", 1), "=")
		if v == "unconfined" || k == "label" && v == "disable" || k == "no-new-privileges" && v == "false" {
			return printable(o, 80)
		}
	}
	return ""
}

// unlimited says which limit the engine did not set; empty: none. A user's engine
// cannot where control groups are not delegated to that user.
func (in *instance) unlimited(h *hostConfig) string {
	switch {
	case h.Memory != in.limits.MemoryBytes:
		return fmt.Sprintf("memory is limited to %d bytes, not %d", h.Memory, in.limits.MemoryBytes)
	case h.PidsLimit != int64(in.limits.Pids):
		return fmt.Sprintf("processes are limited to %d, not %d", h.PidsLimit, in.limits.Pids)
	}
	return ""
}

// strayMount names a place that can be written by the engine's list of mounts and
// was not planned so.
func strayMount(c *containerInfo, in *instance) string {
	s := in.spec
	for _, m := range c.Mounts {
		planned := slices.ContainsFunc(append([]backend.Mount{s.Source, s.Out}, s.Write...), func(p backend.Mount) bool { return p.Writable && p.Target == m.Destination })
		if m.RW && !planned && m.Type != "tmpfs" {
			return printable(m.Destination, 100)
		}
	}
	return ""
}

// Observe implements backend.Instance.
func (in *instance) Observe(ctx context.Context) (backend.Observation, error) {
	o := backend.Observation{MemoryBytes: -1, Levels: task.Vector{}, Seen: map[task.Axis]string{}}
	in.mu.Lock()
	e, id, gone, found := in.engine, in.id, in.gone, in.attached
	in.mu.Unlock()
	if e == nil || id == "" || gone {
		return o, nil
	}
	c, err := e.inspect(ctx, id)
	if missing(err) {
		return o, nil
	}
	if err != nil {
		return o, in.driver.noAnswer(e.at, err)
	}
	if c.State.OOMKilled {
		o.OOMKills = 1
	}
	if !c.State.Running {
		return o, nil
	}
	o.Alive = true
	g := foreign.GroupsOf(c.State.Pid, c.ID)
	if g != nil {
		g.Measure(&o)
	}
	here := in.here(c.State.Pid)
	if here {
		o.WorkerPID = c.State.Pid
	}
	if found {
		return o, nil
	}
	if in.differs(c) == "" && here {
		// What differs looked at is how the engine makes these; a user's own id is
		// apart from the machine's only where a user's engine maps it.
		o.Told = []string{"pid", "ipc", "uts", "net", "mnt", "cgroup"}
	}
	switch why := in.differs(c); {
	case why != "":
		o.Seen[task.RES] = why
	case in.unlimited(c.HostConfig) != "":
		o.Levels[task.RES] = 1
		o.Seen[task.RES] = in.unlimited(c.HostConfig) + "; sizes of folders in memory and the duration only"
	case g != nil && g.Limit("memory", "memory.limit_in_bytes", "memory.max") == in.limits.MemoryBytes && g.Limit("pids", "pids.max", "pids.max") == int64(in.limits.Pids):
		o.Levels[task.RES] = 2
		o.Seen[task.RES] = fmt.Sprintf("the container's limits read back: memory %d bytes, %d pids", in.limits.MemoryBytes, in.limits.Pids)
	case g == nil && in.known.system.MemoryLimit && in.known.system.PidsLimit:
		o.Levels[task.RES] = 2
		o.Seen[task.RES] = fmt.Sprintf("the engine says that it limits: memory %d bytes, %d pids", in.limits.MemoryBytes, in.limits.Pids)
	default:
		o.Levels[task.RES] = 1
		o.Seen[task.RES] = "the engine cannot limit memory and processes together, or did not; sizes of folders in memory and the duration only"
	}
	return o, nil
}

// here reports whether the engine's number of the worker names it on this machine
// too: an engine in a virtual machine counts other processes.
func (in *instance) here(pid int) bool {
	in.mu.Lock()
	boot, begun := in.boot, in.begun
	in.mu.Unlock()
	own, err := sys.BootID()
	if err != nil || boot == "" || own != boot || begun == 0 || pid <= 0 {
		return false
	}
	at, err := guest.StartTime("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && at == begun
}

// Destroy implements backend.Instance. The engine's word that there is no such
// container is the proof that nothing of it runs; the generated folder goes after
// it.
func (in *instance) Destroy(ctx context.Context) error {
	const op = "docker.destroy"
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, destroyTimeout)
		defer cancel()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conn != nil {
		_ = in.conn.Close() // for the worker, the end
		in.leaveLocked(ctx)
	}
	in.crossings.Close()
	if err := in.removeLocked(ctx); err != nil {
		return task.Errorf(task.CodeStuck, op, "the container %s is not confirmed gone: %v", in.nameLocked(), err).
			WithHint("`caisson reap` tries again; the engine must answer for it")
	}
	in.gone = true
	if err := sys.Fault("docker.removed"); err != nil {
		return err
	}
	if err := foreign.Remove(in.folder, in.token); err != nil {
		return task.Errorf(task.CodeStuck, op, "%v", err).WithHint("`caisson reap` tries again")
	}
	return nil
}

// leaveTime is how long a container is given to end with its worker.
const leaveTime = time.Second

// leaveLocked waits until the container ended by itself, which its worker's end makes
// it do, so that the engine need not start a program to kill it. What is still there
// after that is killed, as ever. Podman looks for an end four times a second only.
func (in *instance) leaveLocked(ctx context.Context) {
	if in.id == "" || in.known == nil || in.known.version.podman() {
		return
	}
	ctx, done := context.WithTimeout(ctx, leaveTime)
	defer done()
	_ = in.engine.call(ctx, http.MethodPost, "/containers/"+in.id+"/wait", url.Values{"condition": {"not-running"}}, nil, nil)
}

func (in *instance) nameLocked() string {
	for _, r := range in.resources {
		if r.Kind == kindContainer {
			return r.Name
		}
	}
	return nameOf(in.spec)
}

// awayTime is how long an engine may not answer before a removal is put off: it may
// be starting anew.
const awayTime = 5 * time.Second

// removeLocked ends and removes the container and waits until the engine knows it
// no more.
func (in *instance) removeLocked(ctx context.Context) error {
	if in.gone || in.engine == nil || in.id == "" && !in.named {
		return nil
	}
	r := backend.Resource{Name: in.nameLocked(), Token: in.token}
	if in.id != "" {
		r.External = formatExternal(in.id, in.engine.at)
	}
	var last error
	ask := in.attached || in.id == "" // what this process made needs no proof; that it is gone does
	begun := time.Now()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		id, err := in.id, error(nil)
		if ask {
			id, err = in.engine.owned(ctx, r)
		}
		ask = true
		if missing(err) {
			return nil
		}
		if err == nil {
			rctx, done := context.WithTimeout(ctx, answerTime)
			err = in.engine.call(rctx, http.MethodDelete, "/containers/"+id, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
			done()
			if missing(err) {
				return nil
			}
			if err == nil {
				continue // and is looked for again at once
			}
		}
		last = err
		if unreachable(err) && time.Since(begun) > awayTime {
			return err // it is tried again, when the engine may be there
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(last, context.Cause(ctx))
		}
	}
}
