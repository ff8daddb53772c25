package detect

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// node is a value of a JSON or YAML document, with the line it stands in.
type node struct {
	line int
	kind byte   // 's' scalar, 'm' map, 'l' list
	str  string // of a scalar
	keys []string
	kids []*node // of a list, or one for each key
}

// A document that is deeper or larger cannot be read: nothing that a person
// wrote is, and an alias may stand for any number of values.
const (
	maxNest  = 100
	maxNodes = 100_000
)

var (
	errDeep  = errors.New("nested too deep")
	errLarge = errors.New("too many values")
	errWords = errors.New("cannot be parsed")
)

// get returns what a path of keys leads to; nil where it ends before.
func (n *node) get(path ...string) *node {
	for _, k := range path {
		if n == nil || n.kind != 'm' {
			return nil
		}
		var next *node
		for i, x := range n.keys {
			if x == k {
				next = n.kids[i] // the last one counts
			}
		}
		n = next
	}
	return n
}

// text returns the scalar at a path, or "".
func (n *node) text(path ...string) string {
	if n = n.get(path...); n == nil || n.kind != 's' {
		return ""
	}
	return n.str
}

// each calls f for every value of a map or a list; the key is empty in a list.
func (n *node) each(f func(key string, v *node)) {
	if n == nil {
		return
	}
	for i, v := range n.kids {
		if n.kind == 'm' {
			f(n.keys[i], v)
		} else {
			f("", v)
		}
	}
}

// scalars returns the texts of a scalar or of a list of them, with their lines.
func (n *node) scalars() []*node {
	switch {
	case n == nil:
		return nil
	case n.kind == 's':
		return []*node{n}
	case n.kind == 'l':
		var out []*node
		for _, k := range n.kids {
			if k.kind == 's' {
				out = append(out, k)
			}
		}
		return out
	}
	return nil
}

// walk calls f for every value below n and n itself.
func (n *node) walk(f func(key string, v *node)) {
	n.each(func(k string, v *node) {
		f(k, v)
		v.walk(f)
	})
}

// parseYAML reads every document of a YAML file.
func parseYAML(b []byte) (docs []*node, err error) {
	defer func() {
		// A fault of the parser on hostile bytes is an unreadable file.
		if recover() != nil {
			docs, err = nil, errWords
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(b))
	left := maxNodes
	for len(docs) < 200 {
		var y yaml.Node
		if err := d.Decode(&y); err != nil {
			if errors.Is(err, io.EOF) {
				return docs, nil
			}
			return docs, errWords
		}
		if y.Kind == yaml.DocumentNode && len(y.Content) == 1 {
			n, err := fromYAML(y.Content[0], 0, &left)
			if err != nil {
				return docs, err
			}
			docs = append(docs, n)
		}
	}
	return docs, errLarge
}

func fromYAML(y *yaml.Node, depth int, left *int) (*node, error) {
	if *left--; *left < 0 {
		return nil, errLarge
	}
	if depth > maxNest {
		return nil, errDeep // an alias of itself, too
	}
	n := &node{line: y.Line}
	switch y.Kind {
	case yaml.AliasNode:
		if y.Alias == nil {
			return nil, errWords
		}
		return fromYAML(y.Alias, depth+1, left)
	case yaml.MappingNode:
		n.kind = 'm'
		var merged []*node
		for i := 0; i+1 < len(y.Content); i += 2 {
			v, err := fromYAML(y.Content[i+1], depth+1, left)
			if err != nil {
				return nil, err
			}
			if y.Content[i].Value == "<<" {
				merged = append(merged, v)
				continue
			}
			n.keys = append(n.keys, y.Content[i].Value)
			n.kids = append(n.kids, v)
		}
		for _, m := range merged {
			for _, from := range append([]*node{m}, m.kids...) {
				if from.kind != 'm' || m.kind == 'm' && from != m {
					continue
				}
				from.each(func(k string, v *node) {
					if n.get(k) == nil {
						n.keys, n.kids = append(n.keys, k), append(n.kids, v)
					}
				})
				if *left -= len(from.keys); *left < 0 {
					return nil, errLarge
				}
			}
		}
	case yaml.SequenceNode:
		n.kind = 'l'
		for _, c := range y.Content {
			v, err := fromYAML(c, depth+1, left)
			if err != nil {
				return nil, err
			}
			n.kids = append(n.kids, v)
		}
	default:
		n.kind, n.str = 's', y.Value
	}
	return n, nil
}

// parseJSON reads JSON, with the comments and trailing commas that editors
// allow.
func parseJSON(b []byte) (*node, error) {
	p := jsonParser{b: bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), line: 1, left: maxNodes}
	n, err := p.value(0)
	if err == nil && p.peek() != 0 {
		err = errWords
	}
	return n, err
}

type jsonParser struct {
	b    []byte
	at   int
	line int
	left int
}

// peek skips blanks and comments; 0 at the end.
func (p *jsonParser) peek() byte {
	for p.at < len(p.b) {
		switch c := p.b[p.at]; {
		case c == '\n':
			p.line++
			p.at++
		case c == ' ' || c == '\t' || c == '\r':
			p.at++
		case c == '/' && p.at+1 < len(p.b) && p.b[p.at+1] == '/':
			for p.at < len(p.b) && p.b[p.at] != '\n' {
				p.at++
			}
		case c == '/' && p.at+1 < len(p.b) && p.b[p.at+1] == '*':
			end := bytes.Index(p.b[p.at+2:], []byte("*/"))
			if end < 0 {
				p.at = len(p.b)
				return 0
			}
			p.line += bytes.Count(p.b[p.at:p.at+2+end], []byte("\n"))
			p.at += end + 4
		default:
			if c == 0 {
				return 1 // no value begins with it
			}
			return c
		}
	}
	return 0
}

func (p *jsonParser) value(depth int) (*node, error) {
	if p.left--; p.left < 0 {
		return nil, errLarge
	}
	if depth > maxNest {
		return nil, errDeep
	}
	c := p.peek()
	n := &node{line: p.line, kind: 's'}
	switch c {
	case '{', '[':
		n.kind = 'l'
		end := byte(']')
		if c == '{' {
			n.kind, end = 'm', '}'
		}
		p.at++
		for {
			c := p.peek()
			if c == end {
				p.at++
				return n, nil
			}
			if n.kind == 'm' {
				if c != '"' {
					return nil, errWords
				}
				k, err := p.str()
				if err != nil {
					return nil, err
				}
				if p.peek() != ':' {
					return nil, errWords
				}
				p.at++
				n.keys = append(n.keys, k)
			}
			v, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.kids = append(n.kids, v)
			switch p.peek() {
			case ',':
				p.at++
			case end:
			default:
				return nil, errWords
			}
		}
	case '"':
		s, err := p.str()
		n.str = s
		return n, err
	}
	from := p.at
	for p.at < len(p.b) && strings.IndexByte("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", p.b[p.at]) >= 0 {
		p.at++
	}
	if p.at == from {
		return nil, errWords
	}
	n.str = string(p.b[from:p.at])
	return n, nil
}

// str reads a string at a quotation mark.
func (p *jsonParser) str() (string, error) {
	from := p.at
	for p.at++; p.at < len(p.b); p.at++ {
		switch p.b[p.at] {
		case '\\':
			p.at++
		case '\n':
			return "", errWords
		case '"':
			p.at++
			raw := p.b[from:p.at]
			if bytes.IndexByte(raw, '\\') < 0 {
				return string(raw[1 : len(raw)-1]), nil
			}
			return unescape(raw[1 : len(raw)-1])
		}
	}
	return "", errWords
}

func unescape(b []byte) (string, error) {
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			out = append(out, b[i])
			continue
		}
		i++
		if i >= len(b) {
			return "", errWords
		}
		switch c := b[i]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b', 'f':
			out = append(out, ' ')
		case 'u':
			if i+4 >= len(b) {
				return "", errWords
			}
			r, err := strconv.ParseUint(string(b[i+1:i+5]), 16, 32)
			if err != nil {
				return "", errWords
			}
			out = utf8.AppendRune(out, rune(r))
			i += 4
		default:
			out = append(out, c)
		}
	}
	return string(out), nil
}
