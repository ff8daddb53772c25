package broker

import (
	"strings"
	"testing"
)

// What is looked at is read and put on record as any other, and not counted.
func TestPeek(t *testing.T) {
	b := &book{}
	key := "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
	d, _ := desk(b, func(c *Config) { c.Reader.Getenv = func(string) string { return key } },
		Handle{Name: "file", As: SSH, Uses: 1}, Handle{Name: "agent", As: SSH, From: Source{Agent: true, Env: "x"}})
	var kept []byte
	for range 3 {
		if err := d.Peek(t.Context(), "file", func(s []byte) error {
			if string(s) != key {
				t.Errorf("%q", s)
			}
			kept = s
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Trim(string(kept), "\x00") != "" {
		t.Errorf("%q is left", kept)
	}
	if got := b.text(); got != "reading file\nread file <nil>" {
		t.Errorf("on record: %s", got)
	}
	if err := d.Peek(t.Context(), "agent", func(s []byte) error {
		if s != nil {
			t.Errorf("%q", s)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	d.Still(nil, "the policy changed")
	for _, name := range []string{"file", "agent", "none"} {
		if err := d.Peek(t.Context(), name, func([]byte) error { t.Error("looked"); return nil }); err == nil {
			t.Errorf("%s can be looked at", name)
		}
	}
	d.Close("closed")
	if err := d.Peek(t.Context(), "file", func([]byte) error { t.Error("looked"); return nil }); err == nil {
		t.Error("after the end it can be looked at")
	}
}
