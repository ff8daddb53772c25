package cli

import (
	"bytes"
	"encoding/base64"
	"testing"
	"unicode/utf8"
)

// FuzzNameStatus reads a change set whose names a task chose: every name comes
// out, as text or as bytes.
func FuzzNameStatus(f *testing.F) {
	f.Add([]byte("A\x00a b\x00R100\x00old\x00new\x00"))
	f.Add([]byte("M\x00\xff\n\x00"))
	f.Add([]byte("R100\x00only\x00"))
	f.Add([]byte("\x00\x00"))
	f.Add([]byte("A"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseNameStatus(b)
		if err != nil {
			return
		}
		fields := 0
		for _, c := range list {
			names := [][2]string{{c.Path, c.Bytes}}
			if c.Status == "R" || c.Status == "C" {
				names = append(names, [2]string{c.OldPath, c.OldBytes})
			}
			fields += 1 + len(names)
			for _, n := range names {
				raw := []byte(n[0])
				if n[1] != "" {
					if raw, err = base64.StdEncoding.DecodeString(n[1]); err != nil {
						t.Fatal(err)
					}
				}
				if !utf8.ValidString(n[0]) || !bytes.Contains(b, raw) {
					t.Errorf("%q of %q", n, b)
				}
			}
		}
		if fields != bytes.Count(b, []byte{0}) {
			t.Errorf("%d fields of %q", fields, b)
		}
	})
}
