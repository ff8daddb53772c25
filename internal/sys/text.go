package sys

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Escape makes s one line of text that cannot steer a terminal: controls, bytes
// that are no UTF-8, and what hidden reports become visible, as \n, \t, \r, \xNN
// or \uNNNN. A backslash in s stays as it is.
func Escape(s string, hidden func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\x%02x`, r)
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}
