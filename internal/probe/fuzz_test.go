package probe

import (
	"bytes"
	"testing"
)

// FuzzTables reads tables of the kernel as the untrusted side reports them: no
// line of mounts is lost, so none goes unseen.
func FuzzTables(f *testing.F) {
	f.Add([]byte("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw\n"))
	f.Add([]byte("rubbish\n\n - \n1 2 3 4 5 6 - \n"))
	f.Add([]byte("a\nb\n lo: 1 2\n:\n"))
	f.Add([]byte("1 2 3 \\777 \\1 rw - x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ms := parseMounts(b)
		if len(ms) != len(lines(b)) {
			t.Errorf("%d mounts in %d lines of %q", len(ms), len(lines(b)), b)
		}
		for _, m := range ms {
			if m.Type == "" && !m.writable() {
				t.Errorf("taken for harmless: %+v", m)
			}
		}
		for _, n := range parseInterfaces(b) {
			if !bytes.Contains(b, []byte(n)) || bytes.ContainsAny([]byte(n), ":\n") {
				t.Errorf("%q in %q", n, b)
			}
		}
	})
}
