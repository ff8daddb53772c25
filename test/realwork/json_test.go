//go:build linux

package realwork

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// schemas are the tables of docs/json.md: heading → field → type.
type schemas map[string]map[string]field

type field struct {
	typ      string
	optional bool
}

var (
	rowRE  = regexp.MustCompile("^\\| `([a-z0-9_]+)` \\| ([^|]+) \\| ([^|]*) ?\\|$")
	linkRE = regexp.MustCompile(`\[([A-Za-z]+)\]\(#[a-z]+\)`)
)

func readSchemas(t *testing.T) schemas {
	t.Helper()
	data, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	out := schemas{}
	var now map[string]field
	for _, line := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(line, "##") {
			now = map[string]field{}
			out[strings.TrimLeft(line, "# ")] = now
		} else if m := rowRE.FindStringSubmatch(line); m != nil && now != nil {
			now[m[1]] = field{linkRE.ReplaceAllString(strings.TrimSpace(m[2]), "$1"), strings.HasPrefix(strings.TrimSpace(m[3]), "optional")}
		}
	}
	out["View"] = out["open, show, keep, resume"]
	return out
}

// check holds a value against the documented type and returns what differs.
func (s schemas) check(at, typ string, v any) (bad []string) {
	wrong := func() []string { return []string{fmt.Sprintf("%s is %T %.60v, documented as %s", at, v, v, typ)} }
	if rest, ok := strings.CutSuffix(typ, " or null"); ok {
		if v == nil {
			return nil
		}
		typ = rest
	}
	if of, ok := strings.CutPrefix(typ, "list of "); ok {
		list, ok := v.([]any)
		if !ok {
			return wrong()
		}
		for i, e := range list {
			bad = append(bad, s.check(fmt.Sprintf("%s[%d]", at, i), of, e)...)
		}
		return bad
	}
	ok := true
	switch typ {
	case "any":
	case "text":
		_, ok = v.(string)
	case "number":
		_, ok = v.(float64)
	case "true or false":
		_, ok = v.(bool)
	case "object", "object: axis → level":
		_, ok = v.(map[string]any)
	case "time":
		text, isText := v.(string)
		_, err := time.Parse(time.RFC3339Nano, text)
		ok = isText && err == nil
	default:
		return append(bad, s.object(at, typ, v)...)
	}
	if !ok {
		return wrong()
	}
	return nil
}

func (s schemas) object(at, name string, v any) (bad []string) {
	fields, known := s[name]
	o, isObject := v.(map[string]any)
	if !known || !isObject {
		return []string{fmt.Sprintf("%s: %T is no documented %q", at, v, name)}
	}
	for k := range o {
		if _, ok := fields[k]; !ok {
			bad = append(bad, at+"."+k+" is not documented")
		}
	}
	for k, f := range fields {
		e, there := o[k]
		switch {
		case there:
			bad = append(bad, s.check(at+"."+k, f.typ, e)...)
		case !f.optional:
			bad = append(bad, at+"."+k+" is missing")
		}
	}
	return bad
}

// TestJSON holds what every command prints with --json against docs/json.md.
func TestJSON(t *testing.T) {
	s := readSchemas(t)
	if len(s) < 15 {
		t.Fatalf("docs/json.md has only %d tables", len(s))
	}
	// The control: a document that is off is seen.
	if len(s.check("", "ls", map[string]any{"schema": 1.0, "more": true})) != 3 {
		t.Error("the check does not see mistakes")
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n", ".gitignore": "ignored\n"})
		id.Write(t, id.Home+"/seed/x", "x\n", 0o644)
		valid := func(name, heading, text string) {
			t.Helper()
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Errorf("%s: %v: %s", name, err, clip(text))
				return
			}
			bad := s.check("", heading, v)
			sort.Strings(bad)
			for _, b := range bad {
				t.Errorf("%s: %s", name, b)
			}
		}
		last := func(r harness.Result) string {
			lines := strings.Split(strings.TrimSuffix(r.Stderr, "\n"), "\n")
			return lines[len(lines)-1]
		}
		on(t, id, repo, func() {
			out := id.OK(t, repo, "open", "--json", "--trust", "--unattended", "--env", "K=v", "--ro", id.Home+"/seed:/srv/seed", "thing")
			valid("open", "open, show, keep, resume", out)
			task := decode[view](t, out).ID
			in(t, id, task, "echo b >>a.txt; echo u >new.txt; echo i >ignored; git commit -qam c; echo c >>a.txt; mkfifo pipe")
			r := id.Caisson(t, repo, "exec", "--json", task, "--", "sh", "-c", "echo words on >&2; kill -9 $$")
			status(t, r, 137)
			valid("exec", "run, exec, shell, check", last(r))
			r = id.Caisson(t, repo, "exec", "--json", task, "--", "no-such")
			status(t, r, 127)
			valid("exec that is not started", "run, exec, shell, check", last(r))
			r = id.Caisson(t, repo, "check", "--json", task, "--name", "edit", "--", "sh", "-c", "echo checked >>a.txt")
			status(t, r, 0)
			valid("check", "run, exec, shell, check", last(r))
			valid("show", "open, show, keep, resume", id.OK(t, repo, "show", "--json", "thing"))
			valid("ls", "ls", id.OK(t, repo, "ls", "--json"))
			valid("plan", "plan", id.OK(t, repo, "plan", "--json"))
			r = id.Caisson(t, repo, "plan", "--json", "--need", "KRN=3")
			status(t, r, 3)
			valid("plan with a gap", "plan", r.Stdout)
			valid("doctor", "doctor", id.OK(t, repo, "doctor", "--json"))
			valid("version", "version", id.OK(t, repo, "version", "--json"))
			n := 0
			for line := range strings.Lines(id.OK(t, repo, "log", "--json", task)) {
				valid("log", "log", line)
				n++
			}
			if n < 8 {
				t.Errorf("only %d events", n)
			}
			valid("diff", "diff", id.OK(t, repo, "diff", "--json", task))
			valid("close --dry-run", "close", id.OK(t, repo, "close", "--dry-run", "--json", task))
			r = id.Caisson(t, repo, "close", "--json", task)
			if r.Exit != 0 && r.Exit != 7 {
				t.Error(r)
			}
			valid("close", "close", r.Stdout)
			valid("show after the end", "open, show, keep, resume", id.OK(t, repo, "show", "--json", task))
			valid("ls --all", "ls", id.OK(t, repo, "ls", "--all", "--json"))
			valid("reap --dry-run", "reap", id.OK(t, repo, "reap", "--dry-run", "--json"))
			valid("reap", "reap", id.OK(t, repo, "reap", "--json"))
			r = id.Caisson(t, repo, "run", "--json", "--", "sh", "-c", "echo x >x; exit 4")
			status(t, r, 4)
			valid("run", "run, exec, shell, check", last(r))
			for _, args := range [][]string{{"show", "--json", "no-such"}, {"open", "--json", "--need", "KRN=3"}, {"open", "--json", "--no-such-flag"}, {"close", "--json", "x"}, {"plan", "--json", "--image", "x"}} {
				r := id.Caisson(t, repo, args...)
				if r.Exit == 0 {
					t.Error(r)
				}
				valid(fmt.Sprint(args), "every command, on failure", r.Stdout)
			}
		})
	})
}

// TestRecorded keeps what a person said with the task.
func TestRecorded(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		on(t, id, repo, func() {
			task := id.Open(t, repo, "--trust", "--unattended", "--env", "MODE=geheim", "--need", "NET=3", "--memory", "512m", "--name", "rec")
			v := show(t, id, "rec")
			if !v.Trust || !v.Unattended || v.ID != task {
				t.Errorf("show: %+v", v)
			}
			text := id.OK(t, id.Dir, "show", task)
			contains(t, "show", text, "trust", "unattended", "MODE", "512")
			log := id.OK(t, id.Dir, "log", "--json", task)
			contains(t, "evidence", log, `"trust":true`, `"unattended":true`, `"MODE"`)
			if strings.Contains(log+text, "geheim") {
				t.Error("the value of a variable is on record")
			}
			for _, l := range v.Levels {
				if l.Proved >= 0 && (l.Required > l.Promised || l.Promised > l.Proved) || l.Axis == "NET" && l.Required < 3 {
					t.Errorf("level %+v", l)
				}
			}
			// Names and beginnings of ids are completed.
			for _, typed := range []string{"", "re", task[:4]} {
				contains(t, "completion of "+typed, id.OK(t, repo, "__complete", "exec", typed), "rec")
			}
			id.OK(t, id.Dir, "close", "rec")
			plain := show(t, id, id.Open(t, repo))
			if plain.Trust || plain.Unattended {
				t.Error("trust from nowhere")
			}
		})
	})
}

// TestMissingBoundary stops before anything exists.
func TestMissingBoundary(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		id.OK(t, repo, "ls")
		tasks := func() string {
			return id.OK(t, repo, "ls", "--all", "--json") + strings.Join(id.Left(), "\n") + id.Git(t, repo, "for-each-ref")
		}
		before := tasks()
		on(t, id, repo, func() {
			for args, want := range map[string]int{"plan --need KRN=3": 3, "open --need KRN=3": 3, "run --need KRN=3 -- touch ran": 125} {
				r := id.Caisson(t, repo, strings.Fields(args)...)
				status(t, r, want)
				contains(t, args, r.Stdout+r.Stderr, "KRN", "kernel")
				if want != 3 || args[0] == 'o' {
					contains(t, args, r.Stderr, "boundary_missing", "way out", "not isolated")
				}
			}
			r := with(id, "CAISSON_NEED=KRN=3").Caisson(t, repo, "open")
			status(t, r, 3)
		})
		equal(t, "tasks, processes and refs", tasks(), before)
	})
}
