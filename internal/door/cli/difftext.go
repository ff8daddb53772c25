package cli

import (
	"bytes"
	"io"
	"strings"
)

// diffText renders a patch for a terminal: it colours lines by how they begin
// and escapes everything in them that could steer the terminal. git itself is
// asked for no colour, so that no escape sequence of the content can pass for
// one of git's.
type diffText struct {
	w     io.Writer
	color bool
	line  []byte // an unfinished line
	hunk  bool   // inside a hunk: the first byte of a line is git's
}

// maxLine bounds what is held back for one line.
const maxLine = 1 << 20

func (d *diffText) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			d.line = append(d.line, p...)
			if len(d.line) > maxLine {
				if err := d.flush(false); err != nil {
					return 0, err
				}
			}
			break
		}
		d.line = append(d.line, p[:i]...)
		p = p[i+1:]
		if err := d.flush(true); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Close writes what is left.
func (d *diffText) Close() error {
	if len(d.line) == 0 {
		return nil
	}
	return d.flush(false)
}

func (d *diffText) flush(nl bool) error {
	s := string(d.line)
	d.line = d.line[:0]
	code := ""
	switch {
	case strings.HasPrefix(s, "diff --git "):
		d.hunk, code = false, bold
	case strings.HasPrefix(s, "@@ "):
		d.hunk, code = true, cyan
	case !d.hunk && (strings.HasPrefix(s, "--- ") || strings.HasPrefix(s, "+++ ") || strings.HasPrefix(s, "index ")):
		code = bold
	case d.hunk && strings.HasPrefix(s, "+"):
		code = green
	case d.hunk && strings.HasPrefix(s, "-"):
		code = red
	}
	end := ""
	if nl {
		end = "\n"
	}
	// A tab is harmless and belongs to source text.
	parts := strings.Split(s, "\t")
	for i := range parts {
		parts[i] = clean(parts[i])
	}
	_, err := io.WriteString(d.w, paint(d.color, code, strings.Join(parts, "\t"))+end)
	return err
}
