package boundary

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
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
		"unserve": "made anew", "way": "made anew", "gone": "read from the record", "outward": "nothing was asked", "ctx": "made anew", "cancel": "made anew", "watch": "made anew", "mu": "", "results": "", "calls": "none", "refused": "nothing ran, and it is told at the end of run",
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
	full.Spec.Way = &backend.Way{Ports: make([]uint16, 1), Six: make([]uint16, 1), At: make([]string, 1)}
	full.Leaving.OutAsk, full.Leaving.OutRead = zeros(full.Leaving.OutAsk), zeros(full.Leaving.OutRead)
	full.CA = carriedCA{make([]byte, 1), make([]byte, 1)}
	full.Leaving.Granted, full.Leaving.Asked, full.Leaving.Denied = zeros(full.Leaving.Granted), zeros(full.Leaving.Asked), zeros(full.Leaving.Denied)
	full.Lent = zeros(full.Lent)
	full.Lent[0].Handle.To, full.Lent[0].Handle.Set, full.Lent[0].Handle.From.Keyring = zeros(full.Lent[0].Handle.To), map[string]string{"A": "b"}, map[string]string{"a": "b"}
	if _, err := sys.Pack(full); err != nil {
		t.Error(err)
	}
}

// Rules about connections are the same on the other side.
func TestCarriedRules(t *testing.T) {
	var cidr policy.CIDR
	if err := cidr.UnmarshalText([]byte("10.0.0.0/8")); err != nil {
		t.Fatal(err)
	}
	e := policy.Egress{Host: "*.a.test", CIDR: cidr, Ports: []policy.Port{{Low: 1, High: 5}}, Methods: []policy.Method{"GET"}, Path: "/x"}
	from := policy.Origin{Source: task.SourceUser, Where: "f:1"}
	r := &policy.Rules{
		Net:     policy.Set[policy.NetMode]{Value: policy.NetAllowlist, From: from},
		Granted: []policy.Granted{{Item: policy.Item{Egress: &e}, Via: "base", From: from}},
		Asked:   []policy.Asked{{Item: policy.Item{Egress: &policy.Egress{Host: "b.test"}}, From: from}},
		Denied:  []policy.Denied{{Item: policy.Item{Egress: &policy.Egress{CIDR: cidr}}, From: from}},
		Outward: policy.MergedOutward{Verdict: policy.Set[task.Verdict]{Value: task.VerdictDeny, From: from}, Ask: []policy.OutwardFrom{{Egress: e, From: from}}, Read: []policy.Set[policy.Host]{{Value: "c.test", From: from}}},
	}
	b, err := sys.Pack(carryRules(r))
	if err != nil {
		t.Fatal(err)
	}
	var c carriedRules
	if err := sys.Unpack(b, &c); err != nil {
		t.Fatal(err)
	}
	if got, err := c.rules(); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%v\n%+v\n%+v", err, got, r)
	}
	if got, err := (carriedRules{}).rules(); got != nil || err != nil {
		t.Errorf("no rules became %v %v", got, err)
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
