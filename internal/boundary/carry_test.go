package boundary

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/sys"
)

// TestCarriedIsWhole: each field of a live task goes with it into the program that
// its supervisor becomes, or there is a reason why not. A new field needs one.
func TestCarriedIsWhole(t *testing.T) {
	other := map[string]string{
		"ws":  "made from ID, Dir, Token and Files",
		"log": "Log", "inst": "Boundary", "wk": "Channel", "until": "Left", "lock": "Lock",
		"direct":  "a task with one is not handed over",
		"resumed": "of a resume that is not ready", "once": "of run", "command": "of run", "only": "of run", "ready": "it is", "notes": "said when it was opened",
		"decision": "Stamp and Until", "tools": "nothing was called", "queue": "nothing was asked", "turns": "nothing was called", "hooks": "nothing was asked",
		"unserve": "made anew", "ctx": "made anew", "cancel": "made anew", "watch": "made anew", "mu": "", "results": "", "calls": "none",
		"closing": "it is not", "limit": "nothing ran", "limitAt": "nothing ran", "ooms": "nothing ran",
		"tampered": "of a record that is taken up again", "observed": "of the end", "ending": "of the end", "report": "of the end", "endErr": "of the end", "released": "of the end",
	}
	has := map[string]bool{}
	for f := range fields(reflect.TypeFor[carried]()) {
		has[strings.ToLower(f)] = true
	}
	for f := range fields(reflect.TypeFor[live]()) {
		_, excused := other[f]
		if carries := has[strings.ToLower(f)]; !carries && !excused {
			t.Errorf("%s of a live task is neither carried nor excused", f)
		}
		delete(other, f)
	}
	for f := range other {
		t.Errorf("a live task has no %s", f)
	}
	// A field that Pack refuses would make every supervisor stay as it is.
	if _, err := sys.Pack(carried{}); err != nil {
		t.Error(err)
	}
	full := carried{}
	full.Spec.Files, full.Spec.RO, full.Asking.Rules = zeros(full.Spec.Files), zeros(full.Spec.RO), zeros(full.Asking.Rules)
	full.Rules.Rules, full.Rules.Denied, full.Rules.Hooks = zeros(full.Rules.Rules), zeros(full.Rules.Denied), zeros(full.Rules.Hooks)
	if _, err := sys.Pack(full); err != nil {
		t.Error(err)
	}
}

func zeros[T any](l []T) []T { return make([]T, 1) }

func fields(t reflect.Type) map[string]bool {
	out := map[string]bool{}
	for i := range t.NumField() {
		out[t.Field(i).Name] = true
	}
	return out
}
