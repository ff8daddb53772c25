package approval

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/sys"
)

// Visible makes a text safe to look at: controls, escapes of a terminal, bytes
// that are no text, and characters that hide, or turn the direction of what
// follows, become visible. So does a line feed; Lines keeps those.
func Visible(s string) string { return sys.Escape(s, hidden) }

// Cut is Visible for a text of which the first most bytes are shown. What is cut
// says how much it is, and where all of it can be seen; where "": nowhere. Who
// chooses a text must not choose what of it goes unseen.
func Cut(s string, most int, where string) string {
	if len(s) <= most {
		return Visible(s)
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	if where != "" {
		where = ": " + where + " has all of it"
	}
	return fmt.Sprintf("%s… [%d more bytes are not shown%s]", Visible(s[:most]), len(s)-most, where)
}

// hidden are characters of no width, and those that turn the direction of text or
// leave a gap that is no space.
func hidden(r rune) bool {
	return r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0x061c || r == 0xfeff || r == 0xad ||
		r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0 || r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0000 && r <= 0xe0fff || r >= 0xfff9 && r <= 0xfffc ||
		r == 0x34f || r == 0x17b4 || r == 0x17b5 || r >= 0x180b && r <= 0x180f || r == 0x2800 || r >= 0x1d173 && r <= 0x1d17a || r >= 0x1bca0 && r <= 0x1bca3 ||
		r != ' ' && unicode.Is(unicode.Zs, r)
}

// Lines is Visible for a text of several lines, whose tabs stay too.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		parts := strings.Split(l, "\t")
		for j := range parts {
			parts[j] = Visible(parts[j])
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// maxDiff bounds a difference that a person is shown, in lines; more is no
// question any more.
const maxDiff = 400

// Diff shows the step from one text to another in the form of a unified diff:
// what they have in common at both ends is left out, but for three lines.
func Diff(name, before, after string) string {
	const around = 3
	a, b := split(before), split(after)
	p := 0
	for p < len(a) && p < len(b) && a[p] == b[p] {
		p++
	}
	s := 0
	for s < len(a)-p && s < len(b)-p && a[len(a)-1-s] == b[len(b)-1-s] {
		s++
	}
	if p == len(a) && p == len(b) {
		return ""
	}
	from, to := max(0, p-around), min(s, around)
	var out strings.Builder
	name = Visible(name)
	fmt.Fprintf(&out, "--- %s\n+++ %s\n@@ -%d,%d +%d,%d @@\n", name, name, from+1, len(a)-s+to-from, from+1, len(b)-s+to-from)
	n := 0
	line := func(mark, l string) {
		if n++; n > maxDiff {
			return
		}
		text, ended := strings.CutSuffix(l, "\n")
		fmt.Fprintf(&out, "%s%s\n", mark, Lines(text))
		if !ended {
			out.WriteString("\\ No newline at end of file\n")
		}
	}
	for _, l := range a[from:p] {
		line(" ", l)
	}
	for _, l := range a[p : len(a)-s] {
		line("-", l)
	}
	for _, l := range b[p : len(b)-s] {
		line("+", l)
	}
	for _, l := range a[len(a)-s : len(a)-s+to] {
		line(" ", l)
	}
	if n > maxDiff {
		fmt.Fprintf(&out, "[… %d more lines are not shown …]\n", n-maxDiff)
	}
	return out.String()
}

// split cuts a text into lines with their ends.
func split(s string) []string {
	l := strings.SplitAfter(s, "\n")
	if l[len(l)-1] == "" {
		l = l[:len(l)-1]
	}
	return l
}
