package task

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// ID names one task. It is "t" followed by ten characters of lower-case
// base32 (a-z, 2-7): letters and digits only, so it is safe as a file name, a
// ref component, a cgroup name and a host name. The text that a person gave as
// name is kept apart from it (Record.Name) and never becomes a path.
type ID string

const idLen = 11

var idEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// NewID returns a fresh random id (50 bits of entropy).
func NewID() ID { return ID("t" + NewToken()[:idLen-1]) }

// NewToken returns 26 characters of lower-case base32 (130 bits of entropy).
// It marks a resource as ours: a thing that has our name but not the token on
// record is not ours and is never removed.
func NewToken() string {
	var b [17]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24: the program is ended instead
	return strings.ToLower(idEncoding.EncodeToString(b[:]))[:26]
}

// ParseID reports whether s has the form of an id and returns it.
func ParseID(s string) (ID, bool) {
	if len(s) != idLen || s[0] != 't' {
		return "", false
	}
	for _, c := range s[1:] {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return "", false
		}
	}
	return ID(s), true
}
