package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

type detail struct{ N int }

func (d detail) String() string { return fmt.Sprintf("n is %d", d.N) }

// An error looks the same in the process that it is carried to.
func TestErrorFormRoundTrip(t *testing.T) {
	e := Errorf(CodeBoundaryMissing, "a.b", "no layer").WithHint("add it")
	e.Detail = detail{7}
	b, err := json.Marshal(FormOf(fmt.Errorf("around: %w", e)))
	if err != nil {
		t.Fatal(err)
	}
	var f *ErrorForm
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	got := f.Err()
	var ge *Error
	if !errors.As(got, &ge) || ge.Code != e.Code || ge.Op != e.Op || HintOf(got) != "add it" || got.Error() != "around: no layer" {
		t.Fatalf("%#v", got)
	}
	if d, err := json.Marshal(ge.Detail); err != nil || string(d) != `{"N":7}` || fmt.Sprint(ge.Detail) != "n is 7" {
		t.Errorf("detail: %s %v %v", d, ge.Detail, err)
	}
	if FormOf(nil).Err() != nil {
		t.Error("no error became one")
	}
	if got := Texts(Raw([]string{"a\xff", ""})); len(got) != 2 || got[0] != "a\xff" || got[1] != "" {
		t.Errorf("bytes changed: %q", got)
	}
}
