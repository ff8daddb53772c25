//go:build linux

package tools

// Places in a JSON text that is known to be valid. What is not changed is never
// decoded and so stays as it is, byte for byte.

// span is a value in a text.
type span struct{ from, to int }

// member is one name and its value.
type member struct {
	key  span // with its quotes
	name string
	val  span
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skip returns the first position from i on that is no white space.
func skip(b []byte, i int) int {
	for i < len(b) && space(b[i]) {
		i++
	}
	return i
}

// valueAt is the value that begins at i.
func valueAt(b []byte, i int) span {
	from := i
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		default:
			if depth > 0 {
				i++
				continue
			}
			for i < len(b) && !space(b[i]) && b[i] != ',' && b[i] != ']' && b[i] != '}' {
				i++
			}
		}
		if depth == 0 {
			return span{from, i}
		}
	}
	return span{from, i}
}

// members lists an object's, in their order.
func members(b []byte, obj span) (out []member) {
	for i := skip(b, obj.from+1); b[i] != '}'; {
		m := member{key: valueAt(b, i)}
		m.name = unquote(b[m.key.from:m.key.to])
		i = skip(b, skip(b, m.key.to)+1) // behind the colon
		m.val = valueAt(b, i)
		out = append(out, m)
		if i = skip(b, m.val.to); b[i] == ',' {
			i = skip(b, i+1)
		}
	}
	return out
}

// elements lists an array's.
func elements(b []byte, arr span) (out []span) {
	for i := skip(b, arr.from+1); b[i] != ']'; {
		v := valueAt(b, i)
		out = append(out, v)
		if i = skip(b, v.to); b[i] == ',' {
			i = skip(b, i+1)
		}
	}
	return out
}

// find returns the member of that name.
func find(ms []member, name string) (member, bool) {
	for _, m := range ms {
		if m.name == name {
			return m, true
		}
	}
	return member{}, false
}
