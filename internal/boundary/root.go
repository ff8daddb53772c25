package boundary

import (
	"context"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/source/rootfs"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// rootDir is the folder of a task into which the archive is unpacked that its root
// is. It is the task's own and goes with its files: another task unpacks anew.
const rootDir = "root"

// root says in s what the root of the boundary is, where a person named one. dir is
// the task's folder.
func (d *decided) root(s *backend.Spec, dir string) (err error) {
	if d.req.Rootfs != "" {
		if d.named, err = absolute(d.req.Rootfs, "--rootfs"); err != nil {
			return err
		}
		if d.archive, err = rootfs.Find(d.named); err != nil {
			return err
		}
		if s.Rootfs = d.named; d.archive != nil {
			s.Rootfs = filepath.Join(dir, rootDir)
		}
	}
	if s.Image = d.req.Image; s.Image == "" {
		if d.req.Pull {
			return task.Errorf(task.CodeUsage, "plan", "--pull says that an image may be fetched, and --image names none").WithHint("add --image REF, or leave --pull out")
		}
		return nil
	}
	if s.Rootfs != "" {
		return task.Errorf(task.CodeUsage, "plan", "--image and --rootfs both name a root").WithHint("leave one of the two out")
	}
	d.grants = append(d.grants, task.Grant{Kind: "image", Value: s.Image, Source: "flag"})
	if d.req.Pull {
		d.grants = append(d.grants, task.Grant{Kind: "pull", Value: s.Image, Source: "flag"})
	}
	return nil
}

// findImage finds the image that was named at the engine, and has the boundary made
// of that one and no other, whatever its name means a moment later. One that is to be
// fetched is looked for again when the task is made.
func (d *decided) findImage(ctx context.Context) error {
	if d.spec.Image == "" || !d.caps.Usable {
		return nil
	}
	im, ok := d.driver.(backend.Imager)
	if !ok || !d.caps.Images {
		return task.Errorf(task.CodeUnsupported, "plan", "--image: the backend %s takes no images", d.driver.Name()).
			WithHint("--backend docker or --backend podman does; --rootfs takes an unpacked root, a tar file, a saved image or an OCI layout")
	}
	if d.again && d.rootDigest != "" {
		d.spec.Image = d.rootDigest // as it was opened
	}
	id, err := im.FindImage(ctx, d.spec.Image, false)
	if err != nil && d.req.Pull && task.CodeOf(err) == task.CodeNotFound {
		return nil
	}
	if err == nil {
		d.spec.Image, d.rootDigest = id, id
	}
	return err
}

var _ = sys.RegisterFaults("root.unpacking", "root.unpacked")

// unpackRoot makes what the root of l's boundary is of: it unpacks the archive, or
// has the image fetched that was not there.
func (m *Manager) unpackRoot(ctx context.Context, l *live, d *decided, progress func(string)) error {
	body := map[string]any{}
	switch {
	case d.archive != nil:
		if err := sys.Fault("root.unpacking"); err != nil {
			return err
		}
		// Of an earlier boundary of the task, or of a process that died at it.
		if err := source.RemoveTree(ctx, l.spec.Rootfs); err != nil {
			return err
		}
		tell(progress, "unpacking "+d.archive.Path)
		u, err := d.archive.Unpack(ctx, l.spec.Rootfs)
		if err != nil {
			return err
		}
		if err := sys.Fault("root.unpacked"); err != nil {
			return err
		}
		if d.again && d.rootDigest != "" && d.rootDigest != u.Digest {
			return task.Errorf(task.CodeState, "resume", "%s has changed since task %s was opened: it was %s, and is %s", d.archive.Path, l.id, d.rootDigest, u.Digest).
				WithHint("bring the archive back as it was, or open a new task with it")
		}
		d.rootDigest = u.Digest
		body["archive"], body["files"], body["bytes"], body["left_out"] = d.archive.Path, u.Files, u.Bytes, u.LeftOut
	case d.spec.Image == "":
		return nil
	case d.rootDigest == "":
		im, ok := d.driver.(backend.Imager)
		if !ok {
			return task.Errorf(task.CodeInternal, "open", "the backend %s has no images", d.driver.Name())
		}
		tell(progress, "having the engine fetch "+d.req.Image)
		id, err := im.FindImage(ctx, d.spec.Image, true)
		if err != nil {
			return err
		}
		d.rootDigest, l.spec.Image, body["pulled"] = id, id, true
		fallthrough
	default:
		body["image"] = d.req.Image
	}
	body["digest"] = d.rootDigest
	if _, err := l.log.AppendBulk(ctx, evidence.RootPrepared, self, body); err != nil {
		return err
	}
	return m.cfg.DB.Update(ctx, l.id, func(v *task.View) { v.RootDigest = d.rootDigest })
}
