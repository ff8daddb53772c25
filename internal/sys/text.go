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

// Nearest returns the candidate within two edits of s (one for short words),
// or that s begins, or "".
func Nearest(s string, candidates []string) string {
	best, at := "", 3
	if len(s) < 4 {
		at = 2
	}
	for _, c := range candidates {
		if len(s) > 2*len(c)+2 {
			continue // no text of others costs more than a word
		}
		if d := distance(s, c); d < at {
			best, at = c, d
		}
	}
	if best == "" && len(s) >= 2 {
		for _, c := range candidates {
			if strings.HasPrefix(c, s) {
				return c
			}
		}
	}
	return best
}

// distance is the optimal string alignment distance: edits and neighbours swapped.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
