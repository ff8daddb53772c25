package config

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// Schema returns the JSON Schema of a policy file, for editors. It is looser than
// Decode, never stricter: what it refuses no policy file may hold.
func Schema() json.RawMessage { return schema() }

var schema = sync.OnceValue(func() json.RawMessage {
	g := generator{defs: map[string]any{}}
	s := g.object(reflect.TypeFor[policy.Document](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "caisson policy"
	s["required"] = []string{"version"}
	s["properties"].(map[string]any)["version"] = map[string]any{"const": policy.Version, "description": keyDoc("version")}
	s["$defs"] = g.defs
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // plain maps: it cannot
	}
	return append(b, '\n')
})

type generator struct{ defs map[string]any }

func keyDoc(path string) string {
	for _, k := range policy.Keys {
		if k.Path == path {
			return k.Doc
		}
	}
	return ""
}

// words are the closed sets among the types that read themselves from a text.
func closedSet(t reflect.Type) []string {
	switch t {
	case reflect.TypeFor[policy.Mode]():
		return []string{string(policy.ModeAuto), string(policy.ModeTrusted), string(policy.ModeAsk)}
	case reflect.TypeFor[policy.Delegation]():
		return []string{string(policy.DelegationCeilings), string(policy.DelegationNone)}
	case reflect.TypeFor[policy.NetMode]():
		return []string{string(policy.NetOpen), string(policy.NetRegistries), string(policy.NetAllowlist), string(policy.NetNone)}
	case reflect.TypeFor[policy.Full]():
		return []string{string(policy.FullWait), string(policy.FullRefuse)}
	case reflect.TypeFor[policy.Assurance]():
		return strings.Split(words(policy.Assurances), ", ")
	case reflect.TypeFor[policy.Ability]():
		return strings.Split(words(policy.Abilities), ", ")
	case reflect.TypeFor[policy.Access]():
		return []string{string(policy.AccessRO), string(policy.AccessRW)}
	case reflect.TypeFor[policy.Delegatee]():
		return strings.Split(words(policy.Delegatees), ", ")
	case reflect.TypeFor[task.Verdict]():
		return []string{string(task.VerdictAllow), string(task.VerdictAsk), string(task.VerdictDeny)}
	case reflect.TypeFor[task.Axis]():
		return strings.Split(words(task.Axes), ", ")
	case reflect.TypeFor[task.Characteristic]():
		return strings.Split(words(task.Characteristics), ", ")
	case reflect.TypeFor[policy.AssuranceAxis]():
		return append([]string{"default"}, strings.Split(words(task.Axes), ", ")...)
	}
	return nil
}

var textual = reflect.TypeFor[encoding.TextUnmarshaler]()

func (g generator) of(t reflect.Type, path string) map[string]any {
	if t.Kind() == reflect.Pointer {
		return g.of(t.Elem(), path)
	}
	if set := closedSet(t); set != nil {
		return map[string]any{"enum": set}
	}
	switch t {
	case reflect.TypeFor[policy.Values]():
		one := map[string]any{"type": []string{"string", "boolean"}}
		return map[string]any{"anyOf": []any{one, map[string]any{"type": "array", "items": one, "minItems": 1}}}
	case reflect.TypeFor[policy.Levels]():
		props := map[string]any{}
		for _, a := range task.Axes {
			props[string(a)] = map[string]any{"type": "integer", "minimum": 0, "maximum": task.MaxLevel(a), "description": a.Title()}
		}
		return map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	case reflect.TypeFor[policy.Statements]():
		props := map[string]any{}
		for _, c := range task.Characteristics {
			values := []any{task.Unknown}
			for _, v := range c.Values() {
				if values = append(values, v); v == "yes" {
					values = append(values, true)
				} else if v == "no" {
					values = append(values, false)
				}
			}
			one := map[string]any{"enum": values}
			props[string(c)] = map[string]any{"anyOf": []any{one, map[string]any{"type": "array", "items": one, "minItems": 1}}}
		}
		return map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	case reflect.TypeFor[policy.Number](), reflect.TypeFor[policy.Count](), reflect.TypeFor[policy.Size](), reflect.TypeFor[policy.Port]():
		return map[string]any{"type": []string{"number", "string"}}
	case reflect.TypeFor[policy.Mount]():
		return map[string]any{"anyOf": []any{map[string]any{"type": "string"}, g.ref(t, path)}}
	}
	if reflect.PointerTo(t).Implements(textual) {
		return map[string]any{"type": "string", "minLength": 1}
	}
	switch t.Kind() {
	case reflect.Struct:
		return g.ref(t, path)
	case reflect.Slice:
		s := map[string]any{"type": "array", "items": g.of(t.Elem(), path+"[]"), "maxItems": maxItems}
		if t == reflect.TypeFor[policy.Argv]() {
			s["minItems"] = 1
		}
		return s
	case reflect.Map:
		s := map[string]any{"type": "object", "additionalProperties": g.of(t.Elem(), path+".{}")}
		if set := closedSet(t.Key()); set != nil {
			s["propertyNames"] = map[string]any{"enum": set}
		}
		return s
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	}
	return map[string]any{"type": "string"}
}

// ref puts a struct among the definitions, once.
func (g generator) ref(t reflect.Type, path string) map[string]any {
	if _, done := g.defs[t.Name()]; !done {
		g.defs[t.Name()] = nil // of one that holds itself
		g.defs[t.Name()] = g.object(t, path)
	}
	return map[string]any{"$ref": "#/$defs/" + t.Name()}
}

func (g generator) object(t reflect.Type, path string) map[string]any {
	props, required := map[string]any{}, []string{}
	g.properties(t, path, props, &required)
	s := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func (g generator) properties(t reflect.Type, path string, props map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			g.properties(f.Type, path, props, required)
			continue
		}
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		at := join(path, name)
		s := g.of(f.Type, at)
		if doc := keyDoc(at); doc != "" {
			s["description"] = doc
		} else if doc := policy.PartOf(t, name); doc != "" {
			s["description"] = doc
		}
		props[name] = s
		if !strings.Contains(opts, "omit") {
			*required = append(*required, name)
		}
	}
}
