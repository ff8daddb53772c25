package docker

import (
	"os"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/backend/internal/idmapped"
	"github.com/caisson-dev/caisson/internal/task"
)

// The owner of the task's files is who the tools are. With root's files and root's
// engine that would be the kernel's user 0; so the folders are shown to the engine as
// those of an id that nobody has. The mounts are on this machine while the container
// starts, which then has its own of them, and no longer.

// owned are the task's folders, which belong to its owner.
func owned(s backend.Spec) []string {
	var out []string
	for _, m := range append([]backend.Mount{s.Source, s.Out}, s.Write...) {
		if m.Source != "" {
			out = append(out, m.Source)
		}
	}
	return out
}

// rootIdentity is known of a boundary whose tools are the kernel's user 0.
func rootIdentity(why string) task.Finding {
	return task.Finding{ID: "root-identity", Axis: task.PRC, Cap: 2, Text: "processes inside run as the kernel's uid 0, without capabilities: root started this program, and " + why,
		Fix: "run caisson as an ordinary user, or keep its state on a file system that can be id-mapped (ext4, xfs, btrfs, tmpfs)"}
}

// remap makes the tools an id that nobody has where they would be the kernel's user
// 0. Nothing is mounted yet.
func (in *instance) remap() {
	s := in.spec
	if in.ids.UID != 0 || in.known.rootless() || os.Geteuid() != 0 {
		return
	}
	sources := owned(s)
	if len(sources) == 0 { // a trial: the worker is on the file system of the tasks' files
		dir, err := filepath.EvalSymlinks(filepath.Dir(s.WorkerPath))
		if err != nil {
			dir = filepath.Dir(s.WorkerPath)
		}
		sources = []string{dir}
	}
	id := idmapped.HostID(s.Token)
	set, err := idmapped.Detach(s.WorkerPath, id, sources)
	if err != nil {
		in.finding(rootIdentity("its files cannot be shown as another id's: " + err.Error()))
		return
	}
	in.mapped, in.ids.UID, in.ids.GID = set, id, id
}

// attachMapped puts the task's folders where the engine finds them.
func (in *instance) attachMapped(ms []mount) error {
	if in.mapped == nil {
		return nil
	}
	defer in.mapped.Close()
	if len(owned(in.spec)) == 0 {
		return nil
	}
	at, err := in.mapped.Attach(filepath.Join(in.folder, foreign.SeenDir))
	if err != nil {
		return task.Errorf(task.CodeUnavailable, "docker.mapped", "the task's files cannot be shown as another id's: %w", err).
			WithHint("run caisson as an ordinary user")
	}
	for i, m := range ms {
		if place, ok := at[m.Source]; ok {
			ms[i].Source = place
		}
	}
	return nil
}

// detachMapped takes them away again: the container has mounts of its own.
func (in *instance) detachMapped() error {
	if in.mapped == nil {
		return nil
	}
	if err := idmapped.Remove(filepath.Join(in.folder, foreign.SeenDir)); err != nil {
		return task.Errorf(task.CodeStuck, "docker.mapped", "%w", err).WithHint("`caisson reap` tries again")
	}
	return nil
}
