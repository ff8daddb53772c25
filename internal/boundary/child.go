package boundary

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// asChild finds the parent that a request names, and bounds the request by it.
// nil: it names none.
func (m *Manager) asChild(ctx context.Context, req *task.Request) (*task.View, error) {
	if req.Parent == "" {
		return nil, nil
	}
	t, err := m.find(ctx, req.Parent)
	if err != nil {
		return nil, err
	}
	if err := mayHaveChildren(&t.View); err != nil {
		return nil, err
	}
	if *req, err = policy.Child(&t.View, *req, time.Now()); err != nil {
		return nil, err
	}
	req.Parent = string(t.ID())
	return &t.View, nil
}

func mayHaveChildren(v *task.View) error {
	if v.State != task.Ready && v.State != task.Paused {
		return task.Errorf(task.CodeState, "open", "task %s is %s: only an open task has children", v.ID, v.State).
			WithHint("`caisson ls` lists the open ones")
	}
	return nil
}

// bound records nothing, but refuses a child whose parent began to end since it
// was decided: whoever ends the parent looks for its children after that.
func (m *Manager) bound(tx *inventory.Tx, parent string) error {
	if parent == "" {
		return nil
	}
	t, err := tx.Task(task.ID(parent))
	if err != nil {
		return err
	}
	return mayHaveChildren(&t.View)
}

// child is a task that another is the parent of.
type child struct{ inventory.Task }

// live reports whether it ends with its parent: what ended itself is only kept.
func (c *child) live() bool {
	s := c.View.State
	return s != task.Closed && s != task.Kept && s != task.Stuck
}

// children are those of a task, also those that ended.
func (m *Manager) children(ctx context.Context, parent task.ID) (out []child, err error) {
	all, err := m.cfg.DB.Children(ctx, parent)
	for _, t := range all {
		out = append(out, child{t})
	}
	return out, err
}

// taskName is a task as a person knows it.
func taskName(v *task.View) string {
	if v.Name == "" {
		return string(v.ID)
	}
	return fmt.Sprintf("%s (%s)", v.ID, v.Name)
}

// closeChildren ends the children of a task that is ending, and puts on its
// record what became of each. Their work is rescued as at any end. One that
// cannot be ended keeps its parent from being closed for good only in words: the
// parent's own processes must end all the same.
func (m *Manager) closeChildren(ctx context.Context, l *live, rep *task.CloseReport, o endOptions) error {
	all, err := m.children(ctx, l.id)
	if err != nil {
		return err
	}
	for _, t := range all {
		v := &t.View
		body := map[string]any{"child": v.ID, "name": v.Name, "state": v.State}
		if t.live() {
			tell(o.tell, "closing its child "+string(v.ID))
			r, err := m.Close(ctx, string(v.ID), door.CloseOptions{Keep: o.keep, Progress: o.tell})
			switch {
			case err != nil:
				body["error"] = err.Error()
				rep.Notes = append(rep.Notes, "its child "+string(v.ID)+" could not be closed: "+err.Error())
			default:
				body["state"], body["closed"] = r.State, true
				rep.Notes = append(rep.Notes, "its child "+string(v.ID)+" was closed: it is "+string(r.State))
			}
		}
		if l.log != nil {
			if _, lerr := l.log.Append(ctx, evidence.ChildEnded, self, body); lerr != nil {
				return errors.Join(err, lerr)
			}
		}
	}
	return nil
}
