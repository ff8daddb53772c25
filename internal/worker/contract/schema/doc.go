// Package schema says what a harness and a model are told of the tools: JSON
// Schemas made from the contract's types, titles, texts and hints.
//
// Its limit: it is the host's alone and is never linked into the worker. It
// describes; contract.Decode decides what is taken.
package schema

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Tools describes every tool of the contract, in the contract's order. The
// caller may change what it gets.
func Tools() []task.ToolInfo {
	out := make([]task.ToolInfo, 0, len(contract.Tools))
	for _, t := range contract.Tools {
		x := texts[t.Name]
		out = append(out, task.ToolInfo{
			Name: t.Name, Title: x.title, Doc: x.doc,
			Input:    object(reflect.TypeOf(t.Args()).Elem(), t.Name, false),
			Output:   object(reflect.TypeOf(t.Result()).Elem(), t.Name, true),
			ReadOnly: x.readOnly, Destructive: x.destructive, Idempotent: x.idempotent,
		})
	}
	return out
}

// object renders a struct. name is that of the tool: arguments have texts and
// choices by it.
func object(t reflect.Type, name string, result bool) json.RawMessage {
	var props, required []byte
	for i := range t.NumField() {
		f := t.Field(i)
		field, need := contract.Field(f)
		props = member(props, field, value(f.Type, name, field, result))
		if need {
			required = append(required, ',')
			required = append(required, quote(field)...)
		}
	}
	out := member(nil, "type", quote("object"))
	out = member(out, "properties", braces(props))
	if len(required) > 0 {
		out = member(out, "required", append(append([]byte{'['}, required[1:]...), ']'))
	}
	if !result { // a later version may say more; it never takes less
		out = member(out, "additionalProperties", []byte("false"))
	}
	return braces(out)
}

func value(t reflect.Type, name, field string, result bool) []byte {
	var out []byte
	kind := func(k string) { out = member(out, "type", quote(k)) }
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.String:
		kind("string")
	case t.Kind() == reflect.Bool:
		kind("boolean")
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		kind("integer")
		if !result {
			out = member(out, "minimum", []byte("0"))
		}
	case t == reflect.TypeFor[[]byte]():
		kind("string")
		out = member(out, "contentEncoding", quote("base64"))
	case t.Kind() == reflect.Slice:
		kind("array")
		out = member(out, "items", value(t.Elem(), name, field+"[]", result))
	case t.Kind() == reflect.Map:
		kind("object")
		out = member(out, "additionalProperties", value(t.Elem(), name, field+"{}", result))
	case t.Kind() == reflect.Struct:
		return object(t, name+"."+field, result)
	}
	if !result {
		if words := contract.Choices[name+"."+field]; words != nil {
			b, _ := json.Marshal(words)
			out = member(out, "enum", b)
		}
		if doc := fields[name+"."+field]; doc != "" {
			out = member(out, "description", quote(doc))
		}
	}
	return braces(out)
}

func member(to []byte, name string, val []byte) []byte {
	if len(to) > 0 {
		to = append(to, ',')
	}
	to = append(append(to, quote(name)...), ':')
	return append(to, val...)
}

func braces(b []byte) []byte { return append(append([]byte{'{'}, b...), '}') }

func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
