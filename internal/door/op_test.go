package door

import (
	"context"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestEveryOpNeedsARole(t *testing.T) {
	for i := range Table {
		o := &Table[i]
		if o.Least == RoleNone || o.Doc == "" || o.In() == nil || o.Out() == nil {
			t.Errorf("%s: incomplete", o.Name)
		}
		// No engine is set: reaching it would panic, so a refusal must come first.
		for r := RoleNone; r < o.Least; r++ {
			_, err := o.Do(context.Background(), &Call{Actor: Actor{"test", r}}, o.In())
			if task.CodeOf(err) != task.CodeDenied {
				t.Errorf("%s as %s: %v, want denied", o.Name, r, err)
			}
		}
	}
}

func TestDiscardNeedsAPerson(t *testing.T) {
	_, err := Do[*task.CloseReport](context.Background(), &Call{Actor: Actor{"test", RoleSupervisor}}, "close", &CloseIn{Task: "x", Discard: true})
	if task.CodeOf(err) != task.CodeDenied {
		t.Fatalf("got %v, want denied", err)
	}
}

func TestWrongTypesAreRefused(t *testing.T) {
	c := &Call{Actor: Actor{"test", RolePerson}}
	if _, err := Do[*task.View](context.Background(), c, "show", &ListIn{}); task.CodeOf(err) != task.CodeInternal {
		t.Errorf("wrong input: %v", err)
	}
	if _, err := Do[*task.View](context.Background(), c, "nothing", &None{}); task.CodeOf(err) != task.CodeInternal {
		t.Errorf("unknown operation: %v", err)
	}
}
