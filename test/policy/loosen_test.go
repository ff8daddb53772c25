//go:build linux

package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// lower is a source below the operator, and how it comes to say something.
type lower struct {
	name   string
	source task.Source
	// say has the source say a policy's text; unsay takes it back.
	say, unsay func(p *place, text string)
	flags      []string
	silent     bool // the operator says nothing, and what is shipped holds
}

var lowers = []lower{
	{"the user's file", task.SourceUser, func(p *place, text string) { p.userPolicy("version: 1\n" + text + "\n") }, func(p *place, _ string) { p.userPolicy("") }, nil, false},
	{"the user's file beside a silent operator", task.SourceUser, func(p *place, text string) { p.userPolicy("version: 1\n" + text + "\n") }, func(p *place, _ string) { p.userPolicy("") }, nil, true},
	{"the repository at the base commit", task.SourceProject, func(p *place, text string) { p.commit(".caisson.yaml", "version: 1\n"+text+"\n") }, uncommitted, nil, false},
	{"a copy that lies in the checkout", task.SourceTask, func(p *place, text string) { p.Write(p.t, p.repo+"/.caisson.yaml", "version: 1\n"+text+"\n", 0o644) }, func(p *place, _ string) { _ = os.Remove(p.repo + "/.caisson.yaml") }, nil, false},
	{"an agent's definition", task.SourceAgent, func(p *place, text string) {
		p.commit(".claude/agents/worker.md", "---\nname: worker\ncaisson:\n  "+strings.ReplaceAll(text, "\n", "\n  ")+"\n---\nWork.\n")
	}, uncommitted, []string{"--agent", "worker"}, false},
	{"an agent's definition at home", task.SourceAgent, func(p *place, text string) {
		p.Write(p.t, p.Home+"/.qwen/agents/worker.md", "---\nname: worker\ncaisson:\n  "+strings.ReplaceAll(text, "\n", "\n  ")+"\n---\nWork.\n", 0o600)
	}, func(p *place, _ string) { _ = os.RemoveAll(p.Home + "/.qwen") }, []string{"--agent", "worker"}, false},
	{"settings about every agent", task.SourceAgent, func(p *place, text string) {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			p.t.Fatal(err)
		}
		b, err := json.Marshal(map[string]any{"caisson": v})
		if err != nil {
			p.t.Fatal(err)
		}
		p.commit(".gemini/settings.json", string(b)+"\n")
	}, uncommitted, nil, false},
}

// uncommitted brings the repository back to its first commit.
func uncommitted(p *place, _ string) {
	p.Git(p.t, p.repo, "reset", "-q", "--hard", p.first)
}

// TestNothingLoosens writes the loosest value of every key that the printed schema
// has into every source below the operator, whose files, at their real path, say
// the tight one. What comes of it is never looser, for a task as for `policy show`;
// what is not the source's to set is refused by file, line and key, with what to do
// instead; and what is asked for outside a ceiling counts for nothing and is told.
// The same text in the operator's place does loosen.
func TestNothingLoosens(t *testing.T) {
	t.Parallel()
	needRoot(t)
	loosestIsWhole(t)
	for n, l := range lowers {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			p := newTight(t)
			for key := range tight {
				if l.silent {
					p.operatorSays(key, "")
				}
			}
			alone, before := p.rules(), p.planned("--", "true")
			for i, key := range slices.Sorted(maps.Keys(loosest)) {
				// The three places of an agent's word are joined alike: each key is tried in
				// one of them, and in all when there is time.
				if l.source == task.SourceAgent && i%3 != n%3 && os.Getenv("CAISSON_TEST_FULL") == "" {
					continue
				}
				p.loosen(t, l, key, alone, before)
			}
		})
	}
	t.Run("the operator's own", func(t *testing.T) {
		t.Parallel()
		p := newTight(t)
		alone := p.rules()
		for _, key := range slices.Sorted(maps.Keys(loosest)) {
			name := strings.TrimSpace(key)
			if _, said := tight[name]; !said && name != "lower" && name != "trusted_checks" && name != "suppress" && name != "acceptances" && name != "tools.allow" || name == "risky_files" || name == "backends.prefer" {
				continue // it only demands, declares, asks or chooses
			}
			p.operatorSays(name, p.filled(loosest[key]))
			r := p.rules()
			if len(loosened(alone, r)) == 0 {
				t.Errorf("%s: the operator's own %s loosens nothing: the test would not see it in another source", name, loosest[key])
			}
			p.operatorSays(name, tight[name])
		}
	})
}

// loosestIsWhole holds the texts against the schema that the product prints.
func loosestIsWhole(t *testing.T) {
	t.Helper()
	id := harness.NewIdentity(t, "user", harness.UserOf())
	said := map[string]bool{"version": true}
	for _, text := range loosest {
		maps.Copy(said, sets(t, "version: 1\n"+strings.ReplaceAll(text, "{repo}", "/x")+"\n"))
	}
	for _, c := range slices.Concat(wiredReach, wiredCalls(t, id)) {
		if strings.Contains(c.want, refusedKey) || strings.Contains(c.want, grantsNothing) {
			said[c.keys] = true // which nobody can set
		}
	}
	for _, k := range settable(t, newPlace(t, id, nil)) {
		if !said[k] {
			t.Errorf("%s: no source tries to loosen it: it needs a value in loosest_test.go", k)
		}
	}
}

// newTight is a repository of a user beside an operator who says what is tight.
func newTight(t *testing.T) *place {
	t.Helper()
	p := newPlace(t, harness.NewIdentity(t, "user", harness.UserOf()), map[string]string{"f": "hi\n"}).withOperator()
	p.first = p.Git(t, p.repo, "rev-parse", "HEAD")
	for key, text := range tight {
		p.operatorSays(key, text)
	}
	// An agent that the repository defines counts only where its code is known.
	p.operatorSays("trust", p.filled(loosest["trust"]))
	return p
}

func (p *place) filled(text string) string {
	return strings.NewReplacer("{repo}", p.repo, "{tmp}", p.Tmp).Replace(text)
}

// operatorSays writes the operator's file about one key; an empty text takes it
// away.
func (p *place) operatorSays(key, text string) {
	p.t.Helper()
	name := filepath.Join(p.etc, "caisson/policy.d", key+".yaml")
	if text == "" {
		_ = os.Remove(name)
	} else if err := os.WriteFile(name, []byte("version: 1\n"+text+"\n"), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// rules are the rules that hold, as the product merged them.
func (p *place) rules() *policy.Rules {
	p.t.Helper()
	return p.read(p.shown("policy", "show", "--json"))
}

// shown is run for what must succeed; it returns standard output.
func (p *place) shown(args ...string) string {
	p.t.Helper()
	r := p.run(args...)
	if r.Exit != 0 {
		p.t.Fatal(r)
	}
	return r.Stdout
}

func (p *place) read(shown string) *policy.Rules {
	p.t.Helper()
	var out struct{ Rules any }
	if err := json.Unmarshal([]byte(shown), &out); err != nil {
		p.t.Fatal(err)
	}
	worded(out.Rules)
	b, err := json.Marshal(out.Rules)
	if err != nil {
		p.t.Fatal(err)
	}
	rules := &policy.Rules{}
	if err := json.Unmarshal(b, rules); err != nil {
		p.t.Fatalf("%v: %s", err, b)
	}
	return rules
}

// worded writes numbers and mounts as policy files may: what reads them reads a
// text. A mount that may be written to becomes one below it, which no other is.
func worded(v any) {
	switch x := v.(type) {
	case map[string]any:
		for k, y := range x {
			if y == "" || y == "0" || y == "0s" || y == 0.0 && k != "level" {
				delete(x, k) // not set
				continue
			}
			if m, ok := y.(map[string]any); ok && m["path"] != nil && (k == "mount" || k == "mounts") {
				x[k] = filepath.Join(m["path"].(string), map[bool]string{true: "to-write"}[m["mode"] == "rw"])
				continue
			}
			if n, ok := y.(float64); ok && k != "level" {
				x[k] = fmt.Sprint(int64(n))
				if n != float64(int64(n)) {
					x[k] = fmt.Sprint(n)
				}
			}
			worded(y)
		}
	case []any:
		for i, y := range x {
			if n, ok := y.(float64); ok {
				x[i] = fmt.Sprint(int64(n))
			}
			if m, ok := y.(map[string]any); ok && m["path"] != nil && len(m) <= 2 {
				x[i] = filepath.Join(m["path"].(string), map[bool]string{true: "to-write"}[m["mode"] == "rw"])
			}
			worded(y)
		}
	}
}

// loosened are the changes by which the second allows more.
func loosened(a, b *policy.Rules) []policy.Change {
	return slices.DeleteFunc(policy.Diff(a, b), func(c policy.Change) bool { return !c.Loose })
}

// loosen has a source say the loosest about one key, and looks at what comes of
// it.
func (p *place) loosen(t *testing.T, l lower, key string, alone *policy.Rules, before *plan) {
	t.Helper()
	p.t = t
	name, text := strings.TrimSpace(key), p.filled(loosest[key])
	if asks := name == "base" || name == "request"; asks && !l.silent {
		p.operatorSays("delegation", "") // else the ceilings are not looked at
		defer p.operatorSays("delegation", tight["delegation"])
		alone = p.rules()
	}
	l.say(p, text)
	defer l.unsay(p, text)
	r := p.run(append([]string{"policy", "show", "--json"}, l.flags...)...)
	may := entitled(name, l.source)
	if refused := r.Exit == 6; refused == may || !refused && r.Exit != 0 {
		t.Errorf("%s in %s: it may set it: %v; %v", name, l.name, may, r)
		return
	} else if refused {
		said := r.Stdout + r.Stderr
		if !strings.Contains(said, name) && !strings.Contains(said, strings.Split(name, ".")[0]) || !strings.Contains(r.Stderr, "hint: ") {
			t.Errorf("%s in %s: the refusal does not name it and what to do: %v", name, l.name, r)
		}
		// And no task begins without that source.
		if name != "floors" && name != "budget.tasks" {
			return
		}
		if r := p.run(append(append([]string{"run"}, l.flags...), "--", "true")...); r.Exit != 125 {
			t.Errorf("%s in %s: a task began: %v", name, l.name, r)
		}
		return
	}
	now := p.read(r.Stdout)
	for _, c := range loosened(alone, now) {
		if l.silent && (c.Path == "granted" || name == "trust") {
			continue // a person may ask for anything, and say what they know, where nobody bounds it
		}
		t.Errorf("%s in %s loosens: %+v", name, l.name, c)
	}
	if asks := name == "request" || name == "base"; asks && l.source != task.SourceTask && !l.silent {
		// Nothing of it lies inside the ceiling: all of it is refused, and told with the ceiling's place.
		if len(now.Refused) < 6 || !strings.Contains(now.Refused[0].Why, "delegate") || !strings.Contains(now.Refused[0].Why, operatorDir) {
			t.Errorf("%s in %s: refused %+v", name, l.name, now.Refused)
		}
	}
	after := p.planned(append(slices.Clone(l.flags), "--", "true")...)
	notLooser(t, name+" in "+l.name, before, after)
}

// entitled says by the table of keys whether a source may set one beside an
// operator.
func entitled(name string, s task.Source) bool {
	i := slices.IndexFunc(policy.Keys, func(k policy.Key) bool { return k.Path == name })
	if i < 0 || !policy.Keys[i].May(s) {
		return false
	}
	return s != task.SourceUser || !slices.Contains([]string{"lower", "trusted_checks", "suppress", "acceptances", "tools.allow"}, name)
}
