package cli

import (
	"maps"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestMeant: of several tasks of one name each is offered, by its name the one
// that the name means.
func TestMeant(t *testing.T) {
	got := meant([]task.View{
		{ID: "t1", Name: "kept", State: task.Kept}, {ID: "t2", Name: "kept", State: task.Stuck},
		{ID: "t3", Name: "open", State: task.Kept}, {ID: "t4", Name: "open", State: task.Ready}, {ID: "t5", Name: "open", State: task.Closing},
		{ID: "t6", State: task.Ready},
	})
	if want := map[string]task.ID{"kept": "t2", "open": "t4"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
