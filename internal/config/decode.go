package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// MaxFile bounds a policy file, in bytes.
const MaxFile = 1 << 20

// maxDepth bounds how deep lists and mappings lie in each other. The deepest
// that a Document has is below ten.
const maxDepth = 24

// maxValues bounds how many lines and items a file has.
const maxValues = 50_000

// maxItems bounds one list: every request is held against every ceiling and
// denial.
const maxItems = 1000

// maxProblems is how many mistakes one error names.
const maxProblems = 8

// Lines say in which line of its file each value stands, by its path: "floors.CPL",
// "deny.egress[0]".
type Lines map[string]int

// Problem is one mistake in a file.
type Problem struct {
	Line int    // 0: of the whole file
	Text string // lower case, no full stop
}

// Decode reads one policy file, written in YAML or JSON. name is what errors
// call it. Anything but exactly one document of plain values with known keys is
// an error of code policy_invalid that names file and line.
func Decode(name string, data []byte) (*policy.Document, Lines, error) {
	doc := new(policy.Document)
	lines, err := decodeInto(name, data, doc, false)
	if err != nil {
		return nil, nil, err
	}
	if err := version(name, doc.Version, lines); err != nil {
		return nil, nil, err
	}
	return doc, lines, nil
}

func version(name string, v int, lines Lines) error {
	if v == policy.Version {
		return nil
	}
	at, text := lines["version"], fmt.Sprintf("version %d is not one that this program reads", v)
	if at == 0 {
		text = "the version is missing"
	}
	return problems(name, []Problem{{at, text}}).WithHint("write version: %d", policy.Version)
}

// decodeInto reads data into the struct that out points to. With empty, a file
// that holds nothing is no error.
func decodeInto(name string, data []byte, out any, empty bool) (Lines, error) {
	root, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	d := &decoder{lines: Lines{}}
	switch {
	case root == nil && empty:
		return d.lines, nil
	case root == nil:
		d.fail(0, "the file holds nothing")
	default:
		if d.shape(root, 0); len(d.bad) == 0 {
			d.value(root, reflect.ValueOf(out).Elem(), "")
		}
	}
	if len(d.bad) > 0 {
		return nil, problems(name, d.bad)
	}
	return d.lines, nil
}

// parse returns the one document's node, nil when there is none.
func parse(name string, data []byte) (root *yaml.Node, err error) {
	one := func(line int, format string, args ...any) error {
		return problems(name, []Problem{{line, fmt.Sprintf(format, args...)}})
	}
	switch {
	case len(data) > MaxFile:
		return nil, one(0, "the file is longer than %d KiB", MaxFile>>10)
	case !utf8.Valid(data):
		return nil, one(badLine(data), "the text is not UTF-8")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return nil, one(1, "the file begins with a byte order mark")
	}
	if strings.EqualFold(path.Ext(name), ".json") && !json.Valid(data) {
		var v any
		err := json.Unmarshal(data, &v)
		line := 0
		var at *json.SyntaxError
		if errors.As(err, &at) {
			line = 1 + bytes.Count(data[:min(int(at.Offset), len(data))], []byte("\n"))
		}
		return nil, one(line, "the file's name ends with .json, and it is no JSON: %v", err)
	}
	deep, many := nesting(data)
	switch {
	case deep > 0:
		return nil, one(deep, "lists and mappings lie too deep in each other")
	case many > 0:
		return nil, one(many, "the file holds more than %d values", maxValues)
	}
	defer func() { // a mistake of the parser is not to end the program
		if p := recover(); p != nil {
			root, err = nil, one(0, "the file cannot be read as YAML: %v", p)
		}
	}()
	l, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithV4Defaults(), yaml.WithUniqueKeys(false)) // shape looks at keys
	if err != nil {
		return nil, one(0, "%v", err)
	}
	var node, second yaml.Node
	switch err := l.Load(&node); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlError(name, err)
	}
	if err := l.Load(&second); err == nil {
		return nil, one(second.Line, "the file holds more than one document")
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlError(name, err)
	}
	root = &node
	if root.Kind == yaml.DocumentNode {
		if len(root.Content) != 1 {
			return nil, nil
		}
		root = root.Content[0]
	}
	if root.Kind == yaml.ScalarNode && root.Value == "" && root.ShortTag() == "!!null" {
		return nil, nil
	}
	return root, nil
}

// nesting is the line in which brackets lie deeper in each other than anything
// that is meant, and the one from which on there are too many values; 0 when
// there is none. It spares the parser texts made to exhaust it; what stands in
// texts and comments counts as well.
func nesting(data []byte) (deep, many int) {
	depth, line, values := 0, 1, 0
	for _, c := range data {
		switch c {
		case '[', '{':
			if depth++; depth > 200 && deep == 0 {
				deep = line
			}
		case ']', '}':
			depth = max(depth-1, 0)
		case '\n', '\r', ',', '!', '&', '*', '?':
			if values++; values > maxValues && many == 0 {
				many = line
			}
			if c == '\n' {
				line++
			}
		}
	}
	return deep, many
}

func badLine(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[n:]
	}
	return line
}

// yamlError puts the parser's own words into the form of ours.
func yamlError(name string, err error) error {
	line, text := 0, strings.TrimPrefix(err.Error(), "yaml: ")
	var at *yaml.LoadError
	if errors.As(err, &at) {
		line, text = at.Mark.Line, at.Message
		if at.ContextMsg != "" {
			text = at.ContextMsg + ": " + text
		}
	}
	return problems(name, []Problem{{line, "not YAML: " + text}})
}

// problems is the error that tells them.
func problems(name string, bad []Problem) *task.Error {
	var b strings.Builder
	for i, p := range bad {
		if i == maxProblems {
			fmt.Fprintf(&b, "\nand %d more", len(bad)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(name)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": " + p.Text)
	}
	return task.Errorf(task.CodePolicy, "config.decode", "%s", b.String()).WithHint("`caisson policy schema` prints what a policy file may hold; docs/policy.md explains it")
}

type decoder struct {
	lines Lines
	bad   []Problem
}

func (d *decoder) fail(line int, format string, args ...any) {
	d.bad = append(d.bad, Problem{line, fmt.Sprintf(format, args...)})
}

// shape refuses what YAML has beyond plain values.
func (d *decoder) shape(n *yaml.Node, depth int) {
	if len(d.bad) >= maxProblems {
		return
	}
	switch {
	case depth > maxDepth:
		d.fail(n.Line, "lists and mappings lie too deep in each other")
		return
	case n.Anchor != "":
		d.fail(n.Line, "the anchor %q: policy files have none, write the value again", short(n.Anchor))
	case n.Kind == yaml.AliasNode:
		d.fail(n.Line, "the alias %q: policy files have none, write the value again", short(n.Value))
		return
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n.Line, "the tag %q: policy files have none", short(n.Tag))
	}
	if n.Kind == yaml.MappingNode {
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			switch first, twice := seen[k.Value]; {
			case k.Kind != yaml.ScalarNode:
				d.fail(k.Line, "a key is a list or a mapping")
			case k.ShortTag() == "!!merge":
				d.fail(k.Line, "the merge key <<: policy files have none, write the values again")
			case twice:
				d.fail(k.Line, "the key %q stands here a second time; the first is in line %d", short(k.Value), first)
			default:
				seen[k.Value] = k.Line
			}
		}
	}
	for _, c := range n.Content {
		d.shape(c, depth+1)
	}
}

// value reads n into v. Types that read themselves from a text do so; structs
// take mappings with known keys.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if path != "" {
		d.lines[path] = n.Line
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		d.value(n, p.Elem(), path)
		v.Set(p)
		return
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		d.fail(n.Line, "%s has no value", nameOf(path))
		return
	}
	before := len(d.bad)
	if tu, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok && n.Kind == yaml.ScalarNode {
		d.text(n, tu, v.Type(), path)
	} else {
		d.plain(n, v, path)
	}
	if c, ok := v.Addr().Interface().(policy.Checker); ok && len(d.bad) == before {
		var at *policy.PlaceError
		switch err := c.Check(); {
		case err == nil:
		case errors.As(err, &at):
			d.fail(d.lines[join(path, at.Path)], "%s: %s", join(path, at.Path), at.Why)
		default:
			d.fail(n.Line, "%s: %v%s", nameOf(path), err, nearWord(err))
		}
	}
}

// nearWord is the nearest word where a text is none of a closed set.
func nearWord(err error) string {
	var word *policy.WordError
	if errors.As(err, &word) {
		if near := sys.Nearest(word.Word, word.Words); near != "" {
			return fmt.Sprintf("; did you mean %s?", near)
		}
	}
	return ""
}

func (d *decoder) text(n *yaml.Node, tu encoding.TextUnmarshaler, t reflect.Type, path string) {
	// A number that is a text in the file's language would lose its zeros and
	// exponents in another program's; one that is a number has one form here too.
	err := tu.UnmarshalText([]byte(n.Value))
	if err == nil {
		return
	}
	d.fail(n.Line, "%s: %v%s", nameOf(path), err, nearWord(err))
}

func (d *decoder) plain(n *yaml.Node, v reflect.Value, path string) {
	wrong := func(want string) { d.fail(n.Line, "%s is %s, not %s", nameOf(path), what(n), want) }
	switch v.Kind() {
	case reflect.Struct:
		if n.Kind != yaml.MappingNode {
			wrong("a mapping")
			return
		}
		d.fields(n, v, path)
	case reflect.Map:
		if n.Kind != yaml.MappingNode {
			wrong("a mapping")
			return
		}
		d.entries(n, v, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			wrong("a list")
			return
		}
		if len(n.Content) > maxItems {
			d.fail(n.Line, "%s holds more than %d items", nameOf(path), maxItems)
			return
		}
		s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, c := range n.Content {
			d.value(c, s.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		v.Set(s)
	case reflect.String:
		switch {
		case n.Kind != yaml.ScalarNode:
			wrong("a text")
		case n.ShortTag() != "!!str":
			d.fail(n.Line, "%s is %s, not a text: write it in quotes", nameOf(path), what(n))
		default:
			v.SetString(n.Value)
		}
	case reflect.Bool:
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" && n.Value == "true":
			v.SetBool(true)
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" && n.Value == "false":
			v.SetBool(false)
		default:
			wrong("true or false")
		}
	case reflect.Int:
		i, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || strconv.Itoa(i) != n.Value {
			wrong("a whole number")
			return
		}
		v.SetInt(int64(i))
	default:
		d.fail(n.Line, "%s cannot be read", nameOf(path))
	}
}

func (d *decoder) fields(n *yaml.Node, v reflect.Value, path string) {
	known := map[string]reflect.Value{}
	collect(v, known)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		f, ok := known[k.Value]
		if !ok && len(d.bad) >= maxProblems {
			return
		}
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			hint := fmt.Sprintf("there are %s", strings.Join(names, ", "))
			if near := sys.Nearest(k.Value, names); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			d.fail(k.Line, "there is no key %q%s; %s", short(k.Value), inside(path), hint)
			continue
		}
		d.value(n.Content[i+1], f, join(path, k.Value))
		d.lines[join(path, k.Value)] = k.Line
	}
}

// collect lists the fields of a struct by their key, those of embedded ones too.
func collect(v reflect.Value, into map[string]reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			collect(v.Field(i), into)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			into[name] = v.Field(i)
		}
	}
}

func (d *decoder) entries(n *yaml.Node, v reflect.Value, path string) {
	m := reflect.MakeMap(v.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		kn := n.Content[i]
		k := reflect.New(v.Type().Key()).Elem()
		before := len(d.bad)
		switch key := k.Addr().Interface().(type) {
		case encoding.TextUnmarshaler:
			d.text(kn, key, k.Type(), path)
		case *task.Axis:
			if *key = task.Axis(kn.Value); task.MaxLevel(*key) < 0 {
				d.fail(kn.Line, "%s: there is no axis %q; they are %s", nameOf(path), short(kn.Value), words(task.Axes))
			}
		case *task.Characteristic:
			if *key = task.Characteristic(kn.Value); key.Values() == nil {
				hint := "they are " + words(task.Characteristics)
				if near := sys.Nearest(kn.Value, strings.Split(words(task.Characteristics), ", ")); near != "" {
					hint = "did you mean " + near + "?"
				}
				d.fail(kn.Line, "%s: there is no characteristic %q; %s", nameOf(path), short(kn.Value), hint)
			}
		default:
			if kn.Value == "" {
				d.fail(kn.Line, "%s: a name is empty", nameOf(path))
			}
			k.SetString(kn.Value)
		}
		if len(d.bad) > before {
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(n.Content[i+1], e, join(path, kn.Value))
		d.lines[join(path, kn.Value)] = kn.Line
		m.SetMapIndex(k, e)
	}
	v.Set(m)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func nameOf(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

func inside(path string) string {
	if path == "" {
		return ""
	}
	return " in " + path
}

func what(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + short(n.Value)
	case "!!bool":
		return "the truth value " + short(n.Value)
	case "!!timestamp":
		return "the date " + short(n.Value)
	}
	return fmt.Sprintf("the text %q", short(n.Value))
}

func words[T ~string](l []T) string {
	out := make([]string, len(l))
	for i, w := range l {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}

// short is a text of the file, short enough for a line.
func short(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}
