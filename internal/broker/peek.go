package broker

import (
	"context"
	"slices"

	"github.com/caisson-dev/caisson/internal/task"
)

// Peek opens a secret without using it up, as for the public part of a private
// key: that it is read is on record, and nothing is counted. The secret is
// overwritten when look returns; of a handle whose keys stay in an agent it is
// nil. After an error look was not called, or returned it.
func (d *Desk) Peek(ctx context.Context, name string, look func(secret []byte) error) error {
	all := d.entries()
	i := slices.IndexFunc(all, func(e *entry) bool { h, _ := e.handle(); return h.Name == name })
	if i < 0 {
		return task.Errorf(task.CodeDenied, "broker.lend", "the credential %s is not lent", name)
	}
	h, back := all[i].handle()
	switch {
	case back != "":
		return task.Errorf(task.CodeDenied, "broker.lend", "the credential %s was taken back: %s", name, back)
	case h.From.Agent:
		return look(nil)
	}
	s, err := all[i].borrow(ctx, h)
	if err != nil {
		return err
	}
	defer s.wipe()
	return look(s.value)
}
