package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"sync"
)

var keyIndex = sync.OnceValue(func() map[string]*Key {
	m := map[string]*Key{}
	for i := range Keys {
		m[Keys[i].Path] = &Keys[i]
	}
	return m
})

// keyAt returns the key that rules the value at a path of a document: its own,
// or that of what holds it.
func keyAt(path string) *Key {
	for p := general(path); p != ""; {
		if k := keyIndex()[p]; k != nil {
			return k
		}
		i := strings.LastIndexAny(p, ".[")
		if i < 0 {
			break
		}
		p = p[:i]
	}
	return nil
}

// general is a path with {} and [] in the place of what a writer chose.
func general(path string) string {
	var b strings.Builder
	for i, part := range strings.Split(path, ".") {
		name, rest, list := strings.Cut(part, "[")
		if i > 0 {
			b.WriteByte('.')
			if prev := b.String(); prev == "delegate." || prev == "services." || prev == "credentials." {
				name = "{}"
			}
		}
		b.WriteString(name)
		for list {
			b.WriteString("[]")
			_, rest, list = strings.Cut(rest, "[")
		}
	}
	return b.String()
}

// setKeys lists the paths of a document at which something is said and for which
// there is a key of its own, sorted.
func setKeys(d *Document) []string {
	var out []string
	walk(reflect.ValueOf(d).Elem(), "", func(path string, v reflect.Value) bool {
		k := keyIndex()[general(path)]
		if k != nil {
			out = append(out, path)
		}
		return k != nil // a key that has no entry lies below one that rules it
	})
	sort.Strings(out)
	return out
}

// walk calls visit with every value of v that is not zero, by its path; nothing
// below it when visit returns false.
func walk(v reflect.Value, path string, visit func(string, reflect.Value) bool) {
	if path != "" && !visit(path, v) {
		return
	}
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			f := t.Field(i)
			switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
			case v.Field(i).IsZero():
			case f.Anonymous:
				walk(v.Field(i), path, func(p string, w reflect.Value) bool { return p == path || visit(p, w) })
			case name != "":
				walk(v.Field(i), strings.TrimPrefix(path+"."+name, "."), visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Map:
		ks := v.MapKeys()
		sort.Slice(ks, func(i, j int) bool { return ks[i].String() < ks[j].String() })
		for _, k := range ks {
			walk(v.MapIndex(k), path+"."+k.String(), visit)
		}
	}
}

// Told is one value of merged rules as a person reads it.
type Told struct {
	Path  string `json:"path"`
	Value string `json:"value"`
	From  Origin `json:"from"`
}

// Told lists every value of the rules that somebody set, with its origin.
func (r *Rules) Told() []Told {
	var out []Told
	add := func(path string, v any, o Origin) { out = append(out, Told{path, text(v), o}) }
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		tell(name, v.Field(i), add)
	}
	if n := r.ServicesNote(); n != "" {
		add("services", Set[string]{Value: n}, r.Services[0].From)
	}
	for _, f := range r.Facts {
		add("facts", Set[string]{Value: string(f.What) + " " + f.Value}, Origin{f.Source, f.Evidence})
	}
	for _, f := range r.Lowered {
		add("lowered", Set[string]{Value: string(f.What) + " " + f.Value}, Origin{f.Source, f.Evidence})
	}
	return out
}

func tell(path string, v reflect.Value, add func(string, any, Origin)) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			tell(path, v.Index(i), add)
		}
	case reflect.Struct:
		if f := v.FieldByName("From"); f.IsValid() {
			if o := f.Interface().(Origin); o != (Origin{}) {
				add(path, v.Interface(), o)
			}
			return
		}
		for i := range v.NumField() {
			if name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); v.Type().Field(i).Type.Kind() == reflect.Struct {
				tell(path+"."+name, v.Field(i), add)
			}
		}
	}
}

// text renders a value of the rules on one line, without its origin.
func text(v any) string {
	switch x := v.(type) {
	case Granted:
		return x.Kind() + " " + x.Item.String() + " (" + x.Via + ")"
	case Asked:
		return x.Kind() + " " + x.Item.String()
	case Refused:
		return x.Kind() + " " + x.Item.String() + ": " + x.Why
	case Denied:
		return x.Kind() + " " + x.Item.String()
	case AxisLevel:
		return fmt.Sprintf("%s %d", x.Axis, x.Level)
	case AssuranceFrom:
		return fmt.Sprintf("%s %s", x.Axis, x.Least)
	case CeilingFrom:
		var items []string
		for _, it := range x.Items() {
			items = append(items, it.Kind()+" "+it.String())
		}
		if n := len(items); n > 8 {
			items = append(items[:5], fmt.Sprintf("and %d more", n-5))
		}
		mode := x.Mode
		if mode == "" {
			mode = ModeAsk
		}
		return fmt.Sprintf("%s, %s: %s", x.For, mode, strings.Join(items, "; "))
	case OutwardFrom:
		return x.Egress.String()
	case CredentialFrom:
		return x.Name + ": " + x.Credential.String()
	case CallVerdict:
		return string(x.Verdict) + " " + x.CallRule.String()
	}
	r := reflect.ValueOf(v)
	if f := r.FieldByName("Value"); f.IsValid() {
		if s, ok := f.Interface().(fmt.Stringer); ok {
			return s.String()
		}
		if k := f.Kind(); k != reflect.Struct && k != reflect.Slice && k != reflect.Map {
			return fmt.Sprint(f.Interface())
		}
		return compact(f.Interface())
	}
	return compact(v)
}

// compact is the JSON of a value without its origin and quotes of keys.
func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	var m map[string]any
	if json.Unmarshal(b, &m) == nil {
		delete(m, "from")
		if b, err = json.Marshal(m); err != nil {
			return fmt.Sprint(v)
		}
	}
	return string(b)
}

// String renders the rule on one line.
func (r CallRule) String() string {
	var parts []string
	put := func(name, value string) {
		if value != "" {
			parts = append(parts, strings.TrimPrefix(name+" "+value, " "))
		}
	}
	put("", r.Tool)
	put("command", strings.Join(r.Command, " "))
	put("path", string(r.Path))
	put("host", string(r.Host))
	put("methods", joined(r.Methods, ","))
	put("credential", string(r.Credential))
	return strings.Join(parts, ", ")
}

// Digest identifies the rules: the same for the same meaning and origins.
func (r *Rules) Digest() string { return digest(r) }
