//go:build linux

package policy

import (
	"encoding/json"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/config"
)

// object is a JSON Schema.
type object = map[string]any

// settable lists the path of every value that a policy file can set, out of the
// schema that the product prints: {} stands for a key that the writer chooses, []
// for an item of a list. A list of plain values is one value.
func settable(t *testing.T, p *place) []string {
	t.Helper()
	var s object
	if err := json.Unmarshal([]byte(p.OK(t, p.repo, "policy", "schema")), &s); err != nil {
		t.Fatal(err)
	}
	var out []string
	var walk func(path string, s object)
	defs := s["$defs"].(object)
	walk = func(path string, s object) {
		if ref, ok := s["$ref"].(string); ok {
			s = defs[strings.TrimPrefix(ref, "#/$defs/")].(object)
		}
		props, _ := s["properties"].(object)
		switch {
		case len(props) > 0:
			for name, sub := range props {
				walk(strings.TrimPrefix(path+"."+name, "."), sub.(object))
			}
			return
		case s["items"] != nil:
			if item := s["items"].(object); item["$ref"] != nil || item["anyOf"] != nil {
				walk(path+"[]", item)
				return
			}
		case s["anyOf"] != nil:
			for _, one := range s["anyOf"].([]any) {
				if one := one.(object); one["$ref"] != nil {
					walk(path, one)
					return
				}
			}
		}
		if sub, ok := s["additionalProperties"].(object); ok {
			walk(path+".{}", sub)
			return
		}
		out = append(out, path)
	}
	walk("", s)
	sort.Strings(out)
	return slices.Compact(out)
}

var (
	index  = regexp.MustCompile(`\[\d+\]`)
	chosen = regexp.MustCompile(`^(delegate|services|credentials|acceptance\.min_assurance)\.[^.]+`)
	nested = regexp.MustCompile(`^(services\.\{\}\.(?:env|depends_on)|credentials\.\{\}\.(?:set|from\.keyring))\.[^.]+`)
	plain  = regexp.MustCompile(`(argv|run|exec|migrate|command|env|credentials|grants|ports|methods|delegable|prefer|allowed|risky_files|keys|sign)\[\]$`)
)

// sets lists the paths that a policy text sets, as settable writes them.
func sets(t *testing.T, text string) map[string]bool {
	t.Helper()
	_, lines, err := config.Decode("p.yaml", []byte(text))
	if err != nil {
		t.Errorf("%v in %s", err, text)
	}
	out := map[string]bool{}
	for path := range lines {
		path = nested.ReplaceAllString(chosen.ReplaceAllString(index.ReplaceAllString(path, "[]"), "$1.{}"), "$1.{}")
		out[plain.ReplaceAllString(path, "$1")] = true
	}
	return out
}
