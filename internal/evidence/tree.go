package evidence

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// base64Key marks bytes that are not UTF-8, which JSON cannot hold: as a value
// {"$base64": "…"}, as a map key "$base64:…".
const base64Key = "$base64"

// maxDepth bounds nesting, so that a cyclic value ends in an error.
const maxDepth = 64

// tree turns any value into what encoding/json would read back from it: maps,
// slices, strings, numbers, booleans, nil. Unlike encoding/json it keeps every
// byte of strings, and turns byte slices into strings, so that redaction sees
// what they hold.
func tree(v reflect.Value, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	if !v.IsValid() {
		return nil, nil
	}
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil, nil
		}
		if _, ok := v.Interface().(json.Marshaler); !ok {
			if e, ok := v.Interface().(error); ok {
				return e.Error(), nil
			}
			return tree(v.Elem(), depth+1)
		}
	}
	if v.CanInterface() {
		switch x := v.Interface().(type) {
		case json.RawMessage:
			if len(x) == 0 {
				return nil, nil
			}
			return fromJSON(x)
		case json.Marshaler:
			b, err := x.MarshalJSON()
			if err != nil {
				return nil, err
			}
			return fromJSON(b)
		case encoding.TextMarshaler:
			b, err := x.MarshalText()
			return string(b), err
		case error:
			return x.Error(), nil
		}
	}
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[json.Number]() {
			return json.Number(v.String()), nil
		}
		return v.String(), nil
	case reflect.Bool:
		return v.Bool(), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64:
		b, err := json.Marshal(v.Interface())
		return json.Number(b), err
	case reflect.Slice, reflect.Array:
		return treeList(v, depth)
	case reflect.Map:
		return treeMap(v, depth)
	case reflect.Struct:
		out := map[string]any{}
		return out, treeStruct(v, depth, out)
	}
	return nil, fmt.Errorf("a %s has no form in JSON", v.Type())
}

func fromJSON(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var out any
	err := d.Decode(&out)
	return out, err
}

func treeList(v reflect.Value, depth int) (any, error) {
	if v.Kind() == reflect.Slice && v.IsNil() {
		return nil, nil
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		b := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(b), v)
		return string(b), nil
	}
	out := make([]any, v.Len())
	for i := range out {
		var err error
		if out[i], err = tree(v.Index(i), depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func treeMap(v reflect.Value, depth int) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	out := make(map[string]any, v.Len())
	for it := v.MapRange(); it.Next(); {
		k, err := tree(it.Key(), depth+1)
		if err != nil {
			return nil, err
		}
		if out[fmt.Sprint(k)], err = tree(it.Value(), depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// treeStruct adds v's fields to out: embedded ones first, so that the outer
// field of a name wins.
func treeStruct(v reflect.Value, depth int, out map[string]any) error {
	var direct []int
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.Anonymous || f.Tag.Get("json") != "" {
			direct = append(direct, i)
			continue
		}
		fv := v.Field(i)
		for fv.Kind() == reflect.Pointer && !fv.IsNil() {
			fv = fv.Elem()
		}
		if fv.Kind() != reflect.Struct {
			direct = append(direct, i)
		} else if err := treeStruct(fv, depth+1, out); err != nil {
			return err
		}
	}
	for _, i := range direct {
		f, fv := v.Type().Field(i), v.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" && opts == "" {
			continue
		}
		options := strings.Split(opts, ",")
		if slices.Contains(options, "omitempty") && emptyValue(fv) || slices.Contains(options, "omitzero") && fv.IsZero() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		var err error
		if out[name], err = tree(fv, depth+1); err != nil {
			return fmt.Errorf("%s: %v", name, err)
		}
	}
	return nil
}

func emptyValue(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// text gives a redacted string its form in JSON.
func text(s string) any {
	if utf8.ValidString(s) {
		return s
	}
	return map[string]any{base64Key: base64.StdEncoding.EncodeToString([]byte(s))}
}

func keyText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return base64Key + ":" + base64.StdEncoding.EncodeToString([]byte(s))
}
