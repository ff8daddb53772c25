package main

import (
	"fmt"
	"strings"

	"github.com/caisson-dev/caisson/internal/door/cli"
)

// render makes one page in the man macros, in ASCII: every formatter knows the
// \[u…] form of the other characters.
func render(p cli.Page, version, date string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 %s %s %s\n", quoted(strings.ToUpper(p.Name)), quoted(date), quoted(strings.TrimSpace("caisson "+version)), quoted("caisson manual"))
	b.WriteString(".ad l\n") // no stretched lines: commands stay as typed
	section(&b, "name")
	fmt.Fprintf(&b, "%s \\- %s\n", escape(p.Name), escape(p.Short))
	section(&b, "synopsis")
	for i, u := range p.Usage {
		if i > 0 {
			b.WriteString(".br\n")
		}
		b.WriteString(synopsis(u, len(p.Flags) > 0) + "\n")
	}
	section(&b, "description")
	body(&b, p.Text)
	if len(p.Flags) > 0 {
		section(&b, "options")
		flags(&b, p.Flags)
	}
	if len(p.Global) > 0 {
		section(&b, "options of every command")
		flags(&b, p.Global)
	}
	if p.Examples != "" {
		section(&b, "examples")
		body(&b, p.Examples)
	}
	for _, s := range p.Sections {
		section(&b, s.Title)
		body(&b, s.Text)
	}
	section(&b, "see also")
	for i, o := range p.Others {
		end := ","
		if i == len(p.Others)-1 {
			end = ""
		}
		fmt.Fprintf(&b, ".BR \\%%%s (1)%s\n", escape(o), end) // \% keeps a name in one line
	}
	return b.String()
}

func section(b *strings.Builder, title string) {
	fmt.Fprintf(b, ".SH %s\n", quoted(strings.ToUpper(title)))
}

// synopsis sets the words of the call bold and leaves what stands for something
// as it is.
func synopsis(usage string, flags bool) string {
	words := strings.Fields(usage)
	i := 0
	for i < len(words) && words[i] == strings.ToLower(words[i]) && !strings.ContainsAny(words[i], "[|") {
		i++
	}
	s := `\fB` + escape(strings.Join(words[:i], " ")) + `\fR`
	if flags && !strings.Contains(usage, "[flags]") {
		s += " [flags]"
	}
	if i < len(words) {
		s += " " + escape(strings.Join(words[i:], " "))
	}
	return s
}

func flags(b *strings.Builder, fs []cli.PageFlag) {
	for _, f := range fs {
		left := ""
		if f.Short != "" {
			left = `\fB` + escape("-"+f.Short) + `\fR, `
		}
		left += `\fB` + escape("--"+f.Name) + `\fR`
		if f.Value != "" {
			left += ` \fI` + escape(f.Value) + `\fR`
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", left, line(f.Usage))
	}
}

// body renders paragraphs; lines that begin with a space stand as they are.
func body(b *strings.Builder, text string) {
	literal, fresh := false, true
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, " \n")
		indented := strings.HasPrefix(l, " ")
		switch {
		case l == "":
			if literal {
				b.WriteString(".EE\n.RE\n")
			}
			literal, fresh = false, true
			continue
		case indented && !literal:
			if fresh {
				b.WriteString(".PP\n")
			}
			b.WriteString(".RS 2\n.EX\n")
			literal = true
		case !indented && literal:
			b.WriteString(".EE\n.RE\n")
			literal, fresh = false, true
		}
		if !indented && fresh {
			b.WriteString(".PP\n")
		}
		fresh = false
		if literal {
			// The indent of the page replaces the one of the text.
			b.WriteString(guard(escape(strings.TrimPrefix(l, "  "))) + "\n")
		} else {
			b.WriteString(line(l) + "\n")
		}
	}
	if literal {
		b.WriteString(".EE\n.RE\n")
	}
}

// line renders one line of running text: what is in back quotes is bold.
func line(s string) string {
	parts := strings.Split(s, "`")
	if len(parts)%2 == 0 { // an odd quote: a text that goes on in the next line
		return guard(escape(s))
	}
	var b strings.Builder
	for i, p := range parts {
		if i%2 == 1 {
			b.WriteString(`\fB` + escape(p) + `\fR`)
		} else {
			b.WriteString(escape(p))
		}
	}
	return guard(b.String())
}

// guard keeps a line from being taken for a request.
func guard(s string) string {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	return s
}

// quoted is an argument of a macro.
func quoted(s string) string { return `"` + strings.ReplaceAll(escape(s), `"`, `\(dq`) + `"` }

// escape makes text of s.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '\t':
			b.WriteString("    ")
		case r < 0x20 || r == 0x7f:
			b.WriteByte('?')
		case r < 0x80:
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}
