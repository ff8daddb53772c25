package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestPlainJSON: what a task wrote comes out as the same value, and with nothing
// that a terminal obeys or a reader does not see.
func TestPlainJSON(t *testing.T) {
	for _, s := range []string{
		"", "plain é 日 😀", "\x7f", "\u009b2J\u0090x\u009c", "a\u202eb\u2066c\u2069", "\u200b\ufeff\u00ad\u061c", "tag \U000e0041\U000e007f end", "\x1b[2J\n\t", "\ufffd", "x\u0085",
	} {
		var b bytes.Buffer
		enc := json.NewEncoder(plainJSON{&b})
		if err := enc.Encode(map[string]string{s: s}); err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || back[s] != s {
			t.Errorf("%q came out as %q, %v", s, b.String(), err)
		}
		for _, r := range strings.TrimSuffix(b.String(), "\n") {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || hidden(r) {
				t.Errorf("%q holds %U: %q", s, r, b.String())
			}
		}
	}
	var bad bytes.Buffer
	if _, err := (plainJSON{&bad}).Write([]byte("\"a\x9b2J\xff\"")); err != nil || bad.String() != `"a\ufffd2J\ufffd"` {
		t.Errorf("bytes that are no text: %q, %v", bad.String(), err)
	}
	var raw bytes.Buffer
	_ = json.NewEncoder(&raw).Encode("\u009b")
	if !strings.Contains(raw.String(), "\u009b") {
		t.Error("control: JSON escapes them by itself")
	}
}
