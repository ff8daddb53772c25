package foreign

import "strings"

// Printable makes a text of an engine's or runtime's, which may hold names that
// others chose, one line of at most so many bytes that is fit for a terminal.
func Printable(s string, most int) string {
	var b strings.Builder
	for _, r := range strings.TrimSpace(s) {
		if b.Len() >= most {
			b.WriteString("…")
			break
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}
