package git

import (
	"bytes"
	"strings"
)

// SplitZ splits NUL-terminated records. A last record without its NUL is
// refused: the output was cut.
func SplitZ(b []byte) ([]string, bool) {
	if len(b) == 0 {
		return nil, true
	}
	if b[len(b)-1] != 0 {
		return nil, false
	}
	parts := bytes.Split(b[:len(b)-1], []byte{0})
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = string(p)
	}
	return out, true
}

// IsOID reports whether s is a full object name of either object format.
func IsOID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// ValidRef reports whether name is a full ref name by the rules of
// `git check-ref-format`: below "refs/", and two levels at least.
func ValidRef(name string) bool {
	if len(name) > 1000 || !strings.HasPrefix(name, "refs/") || strings.HasSuffix(name, ".") {
		return false
	}
	for _, bad := range []string{"..", "@{", "//"} {
		if strings.Contains(name, bad) {
			return false
		}
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c <= 0x20 || c == 0x7f || strings.IndexByte("~^:?*[\\", c) >= 0 {
			return false
		}
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || len(part) > 255 || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
