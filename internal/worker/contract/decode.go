package contract

import (
	"bytes"
	"encoding/json"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Decode reads the arguments of one call, strictly. args is a pointer to the
// tool's argument type. refused are the names at the top that the tool does not
// have: they were ignored and are to be recorded, because a model may name a
// tool's arguments and nothing else. null is as if the name were absent.
//
// The error is a *Failure with BadArgs, or NotFound for an unknown tool: text
// that is no JSON object, a name twice, another type, what is missing, nesting
// or length over the limits, text that is no Unicode, values out of range.
func Decode(tool string, raw []byte) (args any, refused []string, err error) {
	t, ok := Lookup(tool)
	if !ok {
		if why := StaysBehind(tool); why != "" {
			return nil, nil, Fail(NotFound, "%s is not carried into a task: %s", cut(tool, 60), why)
		}
		return nil, nil, Fail(NotFound, "there is no tool %q", cut(tool, 60))
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	if f := scan(raw); f != nil {
		return nil, nil, f
	}
	args = t.Args()
	d := decoder{}
	if f := d.object(reflect.ValueOf(args).Elem(), raw, ""); f != nil {
		return nil, nil, f
	}
	if f := check(args); f != nil {
		return nil, nil, f
	}
	sort.Strings(d.refused)
	return args, d.refused, nil
}

// Canonical renders decoded arguments in the one form that digests are made of:
// names sorted, absent and zero ones left out, no space, encoding/json's
// escapes without those for HTML. A call decoded from its canonical form has
// the same one.
func Canonical(args any) ([]byte, error) {
	b, err := marshal(args)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return marshal(v)
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// scan walks the text once: size, Unicode, syntax, depth, double names. A name
// that differs from another only in case is double too: readers that fold case
// would take either.
func scan(raw []byte) *Failure {
	switch {
	case len(raw) > MaxArgs:
		return Fail(TooBig, "the arguments are longer than %d bytes", MaxArgs)
	case !utf8.Valid(raw):
		return Fail(BadArgs, "the arguments are no UTF-8 text")
	case !json.Valid(raw):
		return Fail(BadArgs, "the arguments are no JSON")
	}
	if loneSurrogate(raw) {
		return Fail(BadArgs, `the arguments hold half of a \u surrogate pair, which is no character`)
	}
	return walk(raw)
}

// walk looks at the structure of valid JSON: an object at the top, the depth,
// names that are given twice. It decodes names alone.
func walk(raw []byte) *Failure {
	if i := bytes.IndexFunc(raw, func(r rune) bool { return !space(byte(r)) }); i < 0 || raw[i] != '{' {
		return Fail(BadArgs, "the arguments are no JSON object")
	}
	var stack []map[string]bool // names of the objects that are open; nil for a list
	key := false                // a text that comes now is a name
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			if len(stack) == MaxDepth {
				return Fail(BadArgs, "the arguments are nested deeper than %d", MaxDepth)
			}
			var names map[string]bool
			if key = raw[i] == '{'; key {
				names = make(map[string]bool)
			}
			stack = append(stack, names)
		case '}', ']':
			stack = stack[:len(stack)-1]
			key = false
		case ',':
			key = stack[len(stack)-1] != nil
		case '"':
			from := i
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			if !key {
				continue
			}
			key = false
			name := raw[from+1 : i]
			text := string(name)
			if bytes.IndexByte(name, '\\') >= 0 {
				_ = json.Unmarshal(raw[from:i+1], &text) // it is valid
			}
			text = strings.ToLower(text)
			names := stack[len(stack)-1]
			if names[text] {
				return Fail(BadArgs, "the argument %q is given twice", cut(text, 60))
			}
			names[text] = true
		}
	}
	return nil
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// loneSurrogate finds in valid JSON an escape that encoding/json would silently
// replace, which would write other text than was asked for.
func loneSurrogate(raw []byte) bool {
	unit := func(i int) int {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return -1
		}
		n, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		if err != nil {
			return -1
		}
		return int(n)
	}
	for i := 0; i < len(raw); {
		j := bytes.IndexByte(raw[i:], '\\')
		if j < 0 {
			return false
		}
		i += j
		u := unit(i)
		switch {
		case u < 0:
			i += 2
		case u >= 0xdc00 && u <= 0xdfff:
			return true
		case u >= 0xd800 && u <= 0xdbff:
			if l := unit(i + 6); l < 0xdc00 || l > 0xdfff {
				return true
			}
			i += 12
		default:
			i += 6
		}
	}
	return false
}

// decoder fills a value by exact names: encoding/json folds their case.
type decoder struct{ refused []string }

// object reads one JSON object into a struct. at is where it stands, empty at
// the top.
func (d *decoder) object(v reflect.Value, raw []byte, at string) *Failure {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return Fail(BadArgs, "%s must be an object", or(at, "the arguments"))
	}
	t := v.Type()
	for i := range t.NumField() {
		name, need := Field(t.Field(i))
		val, ok := members[name]
		delete(members, name)
		where := name
		if at != "" {
			where = at + "." + name
		}
		if !ok || string(val) == "null" {
			if need {
				return Fail(BadArgs, "%s is missing", where)
			}
			continue
		}
		if f := d.value(v.Field(i), val, where); f != nil {
			return f
		}
	}
	for name := range members {
		if at != "" {
			return Fail(BadArgs, "%s has no %q", at, cut(name, 60))
		}
		d.refused = append(d.refused, cut(name, 120))
	}
	return nil
}

func (d *decoder) value(v reflect.Value, raw []byte, at string) *Failure {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct {
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return Fail(BadArgs, "%s must be a list", at)
		}
		if len(items) > MaxEdits {
			return Fail(BadArgs, "%s has more than %d items", at, MaxEdits)
		}
		out := reflect.MakeSlice(v.Type(), len(items), len(items))
		for i, item := range items {
			if f := d.object(out.Index(i), item, at+"["+strconv.Itoa(i)+"]"); f != nil {
				return f
			}
		}
		v.Set(out)
		return nil
	}
	if json.Unmarshal(raw, v.Addr().Interface()) != nil || hasNull(v, raw) {
		return Fail(BadArgs, "%s must be %s", at, TypeName(v.Type()))
	}
	return nil
}

// hasNull finds null within a list or an object, which encoding/json takes for
// an empty text.
func hasNull(v reflect.Value, raw []byte) bool {
	switch v.Kind() {
	case reflect.Slice:
		var l []json.RawMessage
		_ = json.Unmarshal(raw, &l)
		for _, x := range l {
			if string(x) == "null" {
				return true
			}
		}
	case reflect.Map:
		var m map[string]json.RawMessage
		_ = json.Unmarshal(raw, &m)
		for _, x := range m {
			if string(x) == "null" {
				return true
			}
		}
	}
	return false
}

// Field returns a field's name on the wire and whether it must be given: those
// without omitempty must.
func Field(f reflect.StructField) (name string, required bool) {
	name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, !strings.Contains(opts, "omitempty")
}

// TypeName says what a value of t is in JSON.
func TypeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return TypeName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list of strings"
	case reflect.Map:
		return "an object of strings"
	}
	return "an object"
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// cut shortens a text for a message, at a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
