package detect

import "strings"

// quick analyses a script without a parser where it has nothing but words,
// plain quotes, lists, pipes and redirections to files; else it reports false
// and has done nothing. Most lines that an agent writes are such, and a parser
// takes longer than all the rest. A test compares both.
func (a *analyser) quick(text string) bool {
	var few [24]word
	var fewEnds [8]quickEnd
	q := quickLine{text: text, words: few[:0], ends: fewEnds[:0], line: 1}
	if !q.read() {
		return false
	}
	a.depth++
	defer func() { a.depth-- }()
	from := 0
	for _, e := range q.ends {
		if a.depth == a.outer+1 {
			a.line = e.line
		}
		a.call(q.words[from:e.at])
		from = e.at
	}
	return true
}

// quickLine is a script on its way to words.
type quickLine struct {
	text  string
	at    int
	line  int
	words []word
	ends  []quickEnd
}

// quickEnd is the end of a simple command in words, and the line it began in.
type quickEnd struct{ at, line int }

// read splits the text; false: a parser must look at it.
func (q *quickLine) read() bool {
	begin := 0 // of the words of this command
	line := 1  // that it began in
	open := false
	for q.at < len(q.text) {
		switch c := q.text[q.at]; {
		case c == ' ' || c == '\t':
			q.at++
		case c == '\n' || c == ';' || c == '|' || c == '&':
			two := q.at+1 < len(q.text) && q.text[q.at+1] == c
			if c == '&' && !two || c == ';' && two {
				return false
			}
			if c == '|' && q.at+1 < len(q.text) && q.text[q.at+1] == '&' {
				return false
			}
			if len(q.words) == begin && (c != '\n' || open) {
				return false // an operator without a command, or one that goes on
			}
			if len(q.words) > begin {
				q.ends = append(q.ends, quickEnd{len(q.words), line})
				begin = len(q.words)
			}
			open = c == '|' || c == '&'
			q.at++
			if c == '\n' {
				q.line++
			} else if two {
				q.at++
			}
		default:
			first := len(q.words) == begin
			if first {
				line = q.line
			}
			w, quoted, ok := q.word()
			if !ok {
				return false
			}
			if q.at < len(q.text) && (q.text[q.at] == '>' || q.text[q.at] == '<') {
				// Digits at a redirection are a descriptor.
				if w != "" || quoted {
					if quoted || strings.Trim(w, "0123456789") != "" || first {
						return false
					}
				}
				if first || !q.redirect() {
					return false
				}
				continue
			}
			if first && (!quoted && keywords()[w] || strings.IndexByte(w, '=') >= 0 || w == "") {
				return false
			}
			q.words = append(q.words, word{w, true})
		}
	}
	if len(q.words) > begin {
		q.ends = append(q.ends, quickEnd{len(q.words), line})
		open = false
	}
	return !open
}

// word reads plain characters and plain quotes up to what ends a word.
func (q *quickLine) word() (w string, quoted, ok bool) {
	from := q.at
	for q.at < len(q.text) && plainByte[q.text[q.at]] && q.text[q.at] != ' ' && q.text[q.at] != '\t' {
		q.at++
	}
	w = q.text[from:q.at]
	if q.at == len(q.text) || strings.IndexByte(" \t\n;|&<>", q.text[q.at]) >= 0 {
		return w, false, true
	}
	var b strings.Builder
	b.WriteString(w)
	for q.at < len(q.text) {
		switch c := q.text[q.at]; {
		case c == '\'' || c == '"':
			end := strings.IndexByte(q.text[q.at+1:], c)
			if end < 0 {
				return "", true, false
			}
			in := q.text[q.at+1 : q.at+1+end]
			if c == '"' && strings.ContainsAny(in, "$`\\") || strings.IndexByte(in, 0) >= 0 || strings.IndexByte(in, '\r') >= 0 {
				return "", true, false
			}
			b.WriteString(in)
			q.line += strings.Count(in, "\n")
			q.at += end + 2
			quoted = true
		case strings.IndexByte(" \t\n;|&<>", c) >= 0:
			return b.String(), quoted, true
		case plainByte[c]:
			b.WriteByte(c)
			q.at++
		default:
			return "", quoted, false
		}
	}
	return b.String(), quoted, true
}

// redirect reads a redirection to a plain file or another descriptor.
func (q *quickLine) redirect() bool {
	c := q.text[q.at]
	q.at++
	if q.at < len(q.text) && q.text[q.at] == c {
		if c == '<' {
			return false
		}
		q.at++
	}
	if q.at < len(q.text) && q.text[q.at] == '&' {
		q.at++
		from := q.at
		for q.at < len(q.text) && q.text[q.at] >= '0' && q.text[q.at] <= '9' {
			q.at++
		}
		return q.at > from && (q.at == len(q.text) || strings.IndexByte(" \t\n;|&", q.text[q.at]) >= 0)
	}
	for q.at < len(q.text) && (q.text[q.at] == ' ' || q.text[q.at] == '\t') {
		q.at++
	}
	w, _, ok := q.word()
	if !ok || w == "" || q.at < len(q.text) && (q.text[q.at] == '<' || q.text[q.at] == '>') {
		return false
	}
	return w == "/dev/null" || !strings.HasPrefix(w, "/dev/") && !strings.HasPrefix(w, "/sys/") && !strings.HasPrefix(w, "/proc/")
}
