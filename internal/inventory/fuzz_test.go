package inventory

import (
	"bytes"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// FuzzView reads a stored task: it ends in an error, or in a view that is
// written and read again without a change.
func FuzzView(f *testing.F) {
	good, err := encodeView(&task.View{ID: "taaaaaaaaaa", Name: "\xff", Command: []string{"sh", "\x00base64:", "\xfe"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-2])
	f.Add([]byte(`{"name":"\u0000base64:!"}`))
	f.Add([]byte(`{"name":"\u0000base64:AGJhc2U2NDo="}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v task.View
		if decodeView(b, &v) != nil {
			return
		}
		one, err := encodeView(&v)
		if err != nil {
			return // a state, a time or a level that cannot be written: never by us
		}
		var again task.View
		if err := decodeView(one, &again); err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		if two, err := encodeView(&again); err != nil || !bytes.Equal(one, two) {
			t.Errorf("%s becomes %s (%v)", one, two, err)
		}
	})
}
