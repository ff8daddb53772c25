package oci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// instance is one boundary, live or found again.
type instance struct {
	driver   *Driver
	spec     backend.Spec
	program  *program
	shape    shape
	limits   task.Limits
	token    string
	made     made
	attached bool // found again: only good for Destroy
	trial    bool // made to find out

	crossings foreign.Crossings

	mu        sync.Mutex
	folder    string
	state     string     // where the runtime keeps what it knows
	ident     *sys.Ident // the worker, or gVisor's kernel
	conn      *channel
	workerUID int // the worker's user inside, as it said
	dialed    bool
	gone      bool
	resources []backend.Resource // as recorded, when found again
}

// Findings implements backend.Qualified.
func (in *instance) Findings() []task.Finding {
	var out []task.Finding
	if in.shape.ids.UID == 0 && !in.shape.rootless {
		text := "processes inside run as the kernel's uid 0, without capabilities, because root started this program"
		if in.driver.name == GVisor {
			text = "files of the task are read and written as root on its behalf, because root started this program"
		}
		out = append(out, task.Finding{ID: "root-identity", Axis: task.PRC, Cap: 2, Text: text, Fix: "run caisson as an ordinary user"})
	}
	if in.shape.group == "" {
		out = append(out, task.Finding{ID: "no-cgroup", Axis: task.RES, Cap: 1, Text: "no control group can be made here: there is no limit on all processes together; sizes of folders in memory and the duration bound them",
			Fix: "start caisson as root, or use --backend linux where control groups v2 are delegated to this user"})
	}
	return out
}

// Inside implements backend.Insider.
func (in *instance) Inside() (uid, gid int) { return in.shape.ids.UID, in.shape.ids.GID }

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
		case rs[i].Kind == kindBundle && in.folder != "":
			rs[i].External = "folder"
		case rs[i].Kind == kindContainer && in.ident != nil:
			rs[i].External = formatExternal(*in.ident)
		}
	}
	return rs
}

// Dial implements backend.Instance.
func (in *instance) Dial(context.Context) (net.Conn, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conn == nil || in.dialed {
		return nil, task.Errorf(task.CodeChannel, "oci.dial", "the channel can be taken once, by the process that made the boundary")
	}
	in.dialed = true
	return in.conn, nil
}

// sentry says what is not as it must be of the process that is gVisor's kernel; empty:
// nothing. It is the runtime's own program under its own filter, and none of what runs
// inside is a process of this kernel.
func (in *instance) sentry() string {
	dir := fmt.Sprintf("/proc/%d", in.ident.PID)
	var st unix.Stat_t
	if err := unix.Stat(dir+"/exe", &st); err != nil {
		return "the program of its kernel cannot be seen: " + err.Error()
	}
	if st.Dev != in.program.dev || st.Ino != in.program.ino {
		return "its kernel is another program than " + in.program.path
	}
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return err.Error()
	}
	for _, want := range []string{"Seccomp:\t2\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(b), want) {
			return "its kernel runs without " + strings.TrimSpace(want)
		}
	}
	if sys.Look(*in.ident) != sys.Living {
		return "its kernel has ended"
	}
	return ""
}

func (in *instance) kernelText() string {
	return fmt.Sprintf("system calls are served by gVisor's kernel: process %d, of %s, behind a filter of its own", in.ident.PID, in.program.path)
}

// Kernel implements backend.Kerneled.
func (in *instance) Kernel() (string, int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.driver.name != GVisor || in.ident == nil || in.sentry() != "" {
		return "", 0
	}
	return in.kernelText(), in.workerUID
}

// Observe implements backend.Instance.
func (in *instance) Observe(context.Context) (backend.Observation, error) {
	o := backend.Observation{MemoryBytes: -1, Levels: task.Vector{}, Seen: map[task.Axis]string{}}
	in.mu.Lock()
	ident, gone, found := in.ident, in.gone, in.attached
	in.mu.Unlock()
	if ident == nil || gone || sys.Look(*ident) != sys.Living {
		return o, nil
	}
	o.Alive = true
	name := filepath.Base(in.folder)
	g := foreign.GroupsOf(ident.PID, name)
	if g != nil {
		g.Measure(&o)
	}
	if found {
		return o, nil
	}
	o.WorkerPID = ident.PID
	switch {
	case in.shape.group == "":
		o.Levels[task.RES] = 1
		o.Seen[task.RES] = "no control group can be made here; sizes of folders in memory and the duration only"
	case g != nil && g.Limit("memory", "memory.limit_in_bytes", "memory.max") == in.limits.MemoryBytes && g.Limit("pids", "pids.max", "pids.max") == int64(in.limits.Pids):
		o.Levels[task.RES] = 2
		o.Seen[task.RES] = fmt.Sprintf("control-group limits read back: memory %d bytes, %d pids", in.limits.MemoryBytes, in.limits.Pids)
	default:
		o.Levels[task.RES] = 1
		o.Seen[task.RES] = "the runtime did not set the limits of memory and processes; sizes of folders in memory and the duration only"
	}
	if in.driver.name == GVisor {
		if why := in.sentry(); why != "" {
			o.Seen[task.KRN] = why
		} else {
			o.Levels[task.KRN] = 2
			o.Seen[task.KRN] = in.kernelText()
		}
	}
	return o, nil
}

// Destroy implements backend.Instance. That no process carries the boundary's marks
// and no group of its name is left is the proof that nothing of it runs; the folders
// go after it.
func (in *instance) Destroy(ctx context.Context) error {
	const op = "oci.destroy"
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, destroyTimeout)
		defer cancel()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.conn != nil {
		_ = in.conn.Close() // for the worker, the end
	}
	in.crossings.Close()
	if in.folder == "" || in.gone {
		return nil
	}
	if err := in.endLocked(ctx); err != nil {
		return task.Errorf(task.CodeStuck, op, "the boundary %s is not confirmed gone: %v", filepath.Base(in.folder), err).WithHint("`caisson reap` tries again")
	}
	if err := sys.Fault("oci.ended"); err != nil {
		return err
	}
	if in.state != "" {
		for _, m := range mountsBelow(in.state) {
			_ = unix.Unmount(m, unix.MNT_DETACH) // gVisor's empty network namespace
		}
		if err := os.RemoveAll(in.state); err != nil {
			return task.Errorf(task.CodeStuck, op, "%v", err).WithHint("`caisson reap` tries again")
		}
	}
	if err := sys.Fault("oci.removed"); err != nil {
		return err
	}
	if err := foreign.Remove(in.folder, in.token); err != nil {
		return task.Errorf(task.CodeStuck, op, "%v", err).WithHint("`caisson reap` tries again")
	}
	in.gone = true
	return nil
}

// endLocked ends every process and removes the groups.
func (in *instance) endLocked(ctx context.Context) error {
	name := filepath.Base(in.folder)
	m := in.made
	if in.attached && foreign.Ours(in.folder, in.token) {
		if r, err := readMade(in.folder); err == nil && r.State == in.state && r.ID == idOf(in.token) {
			m = *r
		}
	}
	if m.Program != "" {
		if _, err := os.Lstat(m.State); err == nil {
			_ = m.remove(ctx) // what it says counts for nothing: what is left is looked for
		}
	}
	// What the runtime does not know or does not say is looked for.
	var last error
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		left, err := in.processesLocked(name, &m)
		if err == nil && len(left) == 0 {
			if err = removeGroups(name); err == nil {
				return nil
			}
		}
		if err != nil {
			last = err
		} else {
			last = fmt.Errorf("%d processes of it are left", len(left))
		}
		for _, id := range left {
			if p, err := sys.OpenProcess(id); err == nil {
				_ = p.Signal(unix.SIGKILL)
				_ = p.Close()
			}
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

// remove has the runtime end and forget its container.
func (m *made) remove(ctx context.Context) error {
	p, err := look(m.Program)
	if err != nil {
		return fmt.Errorf("the runtime that made it cannot be used any more: %w", err)
	}
	_, err = p.run(ctx, call{args: append(m.Args[:len(m.Args):len(m.Args)], "delete", "--force", m.ID), hide: m.Hide && hybrid()})
	return err
}
