package inside

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// FuzzCommand: what is taken for a command is what its bytes say and nothing
// more, and no bytes make a count or a length be believed.
func FuzzCommand(f *testing.F) {
	c := command{tty: true, builtin: "probe", dir: "/src", argv: []string{"sh", "-c", "\xff\n"}, env: []string{"A=b", ""}, rlimits: []frame.Rlimit{{Resource: 7, Soft: 1, Hard: 1 << 63}}}
	b := c.bytes()[4:]
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(append(bytes.Clone(b), 0))
	f.Add([]byte("\x00\xff\xff\xff\xff"))
	f.Add(append(make([]byte, 9), 0xff, 0xff, 0xff, 0xff))
	f.Add((&command{}).bytes()[4:])
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCommand(b)
		if err != nil {
			return
		}
		again := c.bytes()
		if int(binary.LittleEndian.Uint32(again)) != len(b) || !bytes.Equal(again[5:], b[1:]) {
			t.Errorf("%q is read as %+v", b, c)
		}
	})
}

// FuzzRecord: every record is read as it was written.
func FuzzRecord(f *testing.F) {
	f.Add((&record{kind: recCancel, a: 1, b: 2, c: 3}).bytes())
	f.Add(make([]byte, recordSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != recordSize {
			return // its reader takes exactly so many
		}
		if got := parseRecord(b).bytes(); !bytes.Equal(got, b) {
			t.Errorf("%x is read as %x", b, got)
		}
	})
}
