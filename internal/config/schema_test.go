package config

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"github.com/caisson-dev/caisson/internal/policy"
)

// The schema is one for the library of others that editors' are like: it takes
// what Decode takes, and refuses what an editor should mark.
func TestSchema(t *testing.T) {
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) any {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var out any
		if err := json.Unmarshal(b, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	// Days stand in quotes here: the other parser makes times of them.
	if err := r.Validate(read(strings.NewReplacer("2027-03-01T12:00:00Z", `"2027-03-01T12:00:00Z"`, "2027-03-01,", `"2027-03-01",`, "2027-01-01,", `"2027-01-01",`).Replace(whole))); err != nil {
		t.Errorf("the whole document: %v", err)
	}
	for _, bad := range []string{
		"floors: {NET: 1}", "version: 2", "version: 1\nflors: {}", "version: 1\nfloors: {NET: 9}", "version: 1\nfloors: {NTE: 1}", "version: 1\nnet: all",
		"version: 1\nbase: {egress: {host: a}}", "version: 1\ndelegate: {root: {mode: auto}}", "version: 1\nunattended: 1", "version: 1\ncharacteristics: {migrations: schemas}",
		"version: 1\ntests: [{env: A}]", "version: 1\nservices: {db: {}}",
	} {
		if err := r.Validate(read(bad)); err == nil {
			t.Errorf("the schema takes %q", bad)
		}
		if _, _, err := Decode("f", []byte(bad)); err == nil {
			t.Errorf("the decoder takes %q", bad)
		}
	}
	// Every key has a description there.
	var doc map[string]any
	if err := json.Unmarshal(Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[policy.Document]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[policy.Document]().Field(i).Tag.Get("json"), ",")
		if p, _ := doc["properties"].(map[string]any)[name].(map[string]any); p["description"] == nil {
			t.Errorf("%s has no description", name)
		}
	}
}
