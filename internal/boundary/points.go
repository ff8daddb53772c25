package boundary

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("points.intended", "points.made", "points.removed")

// kindPoint is a mount point that was made in a task's files because nothing
// was there. Several tasks may use one; the last that goes removes it. Its name
// is the task's id and the absolute path, External what it is.
const kindPoint = "mountpoint"

func pointName(id task.ID, path string) string { return string(id) + ":" + path }

// pointPath is the path in such a name.
func pointPath(name string) string {
	_, path, _ := strings.Cut(name, ":")
	return path
}

// wantedPoints lists where in the source something is mounted or covered.
func wantedPoints(s *backend.Spec) []source.Point {
	var out []source.Point
	if !s.Source.Writable {
		return nil
	}
	mounts := append(append(append([]backend.Mount{s.Out}, s.RO...), s.Tools...), s.Objects...)
	rel := func(target string) (string, bool) {
		r, err := filepath.Rel(s.Source.Target, target)
		return r, err == nil && r != "." && r != ".." && !strings.HasPrefix(r, "../")
	}
	for _, m := range mounts {
		r, in := rel(m.Target)
		// What lies in another mount has its point there.
		if !in || m.Source == "" || slices.ContainsFunc(mounts, func(o backend.Mount) bool {
			_, below := rel(o.Target)
			return below && strings.HasPrefix(m.Target, o.Target+"/")
		}) {
			continue
		}
		i, err := os.Stat(m.Source)
		out = append(out, source.Point{Path: r, Dir: err == nil && i.IsDir()})
	}
	for _, c := range s.Source.Cover {
		out = append(out, source.Point{Path: c, Dir: true})
	}
	return out
}

// points makes the mount points that the boundary needs in the task's files and
// that are not there, and records the use of those that another task made.
func (m *Manager) points(ctx context.Context, l *live, ref task.SourceRef) error {
	wanted := wantedPoints(&l.spec)
	if len(wanted) == 0 {
		return nil
	}
	if err := source.Relink(ctx, l.ws, ref); err != nil {
		return err
	}
	all, err := source.Points(l.ws, wanted)
	if err != nil {
		return err
	}
	base := l.spec.Source.Source
	var missing []source.Point
	// In one step with the decision of who is the last to go.
	err = m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		missing = nil
		for _, p := range all {
			r := inventory.Resource{Resource: task.Resource{Kind: kindPoint, Name: pointName(l.id, filepath.Join(base, p.Path)), Token: l.spec.Token}, Provider: "source", Durable: true}
			if !p.There {
				missing = append(missing, p)
				if err := tx.Intend(l.id, []inventory.Resource{r}); err != nil {
					return err
				}
				continue
			}
			ident, err := m.shared(tx, l, p)
			if err != nil || ident == "" {
				if err != nil {
					return err
				}
				continue // the user's own
			}
			if err := tx.Intend(l.id, []inventory.Resource{r}); err != nil {
				return err
			}
			if err := tx.SetResources(l.id, []inventory.ResourceChange{{Kind: kindPoint, Name: r.Name, State: task.Present, External: ident}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := sys.Fault("points.intended"); err != nil {
		return err
	}
	for _, p := range missing {
		if err := m.makePoint(ctx, l, p); err != nil {
			return err
		}
	}
	return sys.Fault("points.made")
}

// shared returns the identity of what is at a point when it is one that another
// task on record made or uses.
func (m *Manager) shared(tx *inventory.Tx, l *live, p source.Point) (string, error) {
	ident, err := source.PointIdent(l.ws, p.Path)
	if err != nil || ident == "" {
		return "", err
	}
	rs, err := tx.OfKind(kindPoint)
	if err != nil {
		return "", err
	}
	path := filepath.Join(l.spec.Source.Source, p.Path)
	for _, r := range rs {
		if r.Task != l.id && pointPath(r.Name) == path && r.External == ident {
			return ident, nil
		}
	}
	return "", nil
}

func (m *Manager) makePoint(ctx context.Context, l *live, p source.Point) error {
	c := inventory.ResourceChange{Kind: kindPoint, Name: pointName(l.id, filepath.Join(l.spec.Source.Source, p.Path))}
	set := func(tx *inventory.Tx) error { return tx.SetResources(l.id, []inventory.ResourceChange{c}) }
	made, err := source.MakePoint(l.ws, p, l.spec.Token, func(ident string) error {
		c.State, c.External = task.Present, ident
		return m.cfg.DB.Tx(ctx, set)
	})
	if err != nil || made {
		return err
	}
	// Somebody was faster: another task, or the user.
	return m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		ident, err := m.shared(tx, l, p)
		if err != nil {
			return err
		}
		if c.State, c.External = task.Present, ident; ident == "" {
			c.State = task.Gone
		}
		return set(tx)
	})
}

// unpoint gives up the mount points that a task used. One goes when the task is
// the last on record that uses it, and it is still what was made, and empty.
func (m *Manager) unpoint(ctx context.Context, l *live) error {
	rs, err := m.cfg.DB.Resources(ctx, l.id)
	if err != nil {
		return err
	}
	slices.Reverse(rs) // inner ones first
	for _, r := range rs {
		if r.Kind != kindPoint || r.State == task.Gone {
			continue
		}
		err := m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
			c := inventory.ResourceChange{Kind: kindPoint, Name: r.Name, State: task.Gone}
			all, err := tx.OfKind(kindPoint)
			if err != nil {
				return err
			}
			path := pointPath(r.Name)
			other := slices.IndexFunc(all, func(o inventory.Resource) bool {
				return o.Task != l.id && pointPath(o.Name) == path && o.External == r.External && r.External != ""
			})
			if other >= 0 {
				c.Observed = "task " + string(all[other].Task) + " still uses it"
			} else if c.Observed, err = m.removePoint(l, r); err != nil {
				return err
			}
			return tx.SetResources(l.id, []inventory.ResourceChange{c})
		})
		if err != nil {
			return err
		}
		if err := sys.Fault("points.removed"); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) removePoint(l *live, r inventory.Resource) (string, error) {
	rel, err := filepath.Rel(filesOf(l.ws), pointPath(r.Name))
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", task.Errorf(task.CodeInternal, "points", "the mount point %q does not lie in the task's files", r.Name)
	}
	why, err := source.RemovePoint(l.ws, rel, r.Token, r.External)
	if why != "" {
		why = "stays: " + why
	}
	return why, err
}
