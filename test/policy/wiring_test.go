//go:build linux

package policy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// wired is how one key of a policy file is seen to have its effect.
type wired struct {
	keys string // that set has and not has not, or has otherwise; several may be seen in one
	// set and not are what the user's file says, beside its version; with project
	// they are the repository's at its base commit, and user is the user's.
	set, not      string
	project, user string
	operator      bool // they are the operator's, and there is no other file
	do            func(w *worker) string
	want          string // what it says with set, and does not with not
}

// worker tries keys, one after the other, on a repository of its own.
type worker struct {
	*place
	task string // open, for calls; "" before the first
}

// TestEveryKeyIsWired sets every value that a policy file can set, and looks at
// the product for its effect; without it the effect is not there. The keys are
// those of the schema that the product prints: a new one fails here by its name
// until something is seen of it.
func TestEveryKeyIsWired(t *testing.T) {
	id := harness.NewIdentity(t, "user", harness.UserOf())
	table := slices.Concat(wiredLevels(), wiredReach, wiredLoans, wiredFacts, wiredCalls(t, id), wiredRest)
	if os.Getuid() == 0 {
		table = append(table, delegable)
	}
	seen := map[string]bool{"version": true} // no other can be read, and every file here has it
	for _, c := range table {
		for k := range strings.FieldsSeq(c.keys) {
			seen[k] = true
		}
	}
	if os.Getuid() != 0 {
		t.Log("not root: acceptance.delegable is for a user beside an operator, whose folder belongs to root; it is not tried")
		seen["acceptance.delegable"] = true
	}
	there := settable(t, newPlace(t, id, nil))
	for _, k := range there {
		if !seen[k] {
			t.Errorf("%s: nothing is seen of this key: it needs a line in wiring_table_test.go", k)
		}
		delete(seen, k)
	}
	for k := range seen {
		if k != "version" {
			t.Errorf("%s is seen, and there is no such key", k)
		}
	}
	const workers = 4
	for n := range workers {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			w := &worker{place: newPlace(t, harness.NewIdentity(t, "user", harness.UserOf()), map[string]string{"f": "hi\n"})}
			for i, c := range table {
				if i%workers == n {
					w.try(t, c)
				}
			}
		})
	}
}

// try looks for the effect of a key, and for its absence.
func (w *worker) try(t *testing.T, c wired) {
	t.Helper()
	w.t = t
	if c.operator {
		w = &worker{place: newPlace(t, harness.NewIdentity(t, "user", harness.UserOf()), nil).withOperator()}
	}
	fill := strings.NewReplacer("{repo}", w.repo, "{tmp}", w.Tmp, "{home}", w.Home).Replace
	set, not, want := fill(c.set), fill(c.not), fill(c.want)
	if !strings.Contains(c.want, refusedKey) && !strings.Contains(c.want, grantsNothing) { // which Decode does not read
		there, without := sets(t, "version: 1\n"+set+"\n"), sets(t, "version: 1\n"+not+"\n")
		for k := range strings.FieldsSeq(c.keys) {
			if !there[k] {
				t.Errorf("%s is not set by %s", k, set)
			}
			if without[k] && set == not {
				t.Errorf("%s is set the same in the control", k)
			}
		}
	}
	say := func(text string) string {
		if c.operator {
			w.operator("version: 1\n" + text + "\n")
			return c.do(w)
		}
		user := text
		if c.project != "" {
			user = fill(c.user)
			w.commit(".caisson.yaml", "version: 1\n"+text+"\n")
		}
		w.userPolicy("version: 1\n" + user + "\n")
		out := c.do(w)
		w.userPolicy("")
		if c.project != "" {
			w.Git(t, w.repo, "rm", "-q", ".caisson.yaml")
			w.Git(t, w.repo, "commit", "-q", "-m", "none")
		}
		return out
	}
	if got := say(set); !strings.Contains(got, want) {
		t.Errorf("%s: %s\nhas no effect: want %q in\n%s", c.keys, set, want, got)
	}
	if got := say(not); strings.Contains(got, want) {
		t.Errorf("%s: the effect %q is there without it, by %s", c.keys, want, not)
	}
}

// says is what a command of the product says and how it ends. A · in it is a space
// within a word.
func says(cmd string) func(w *worker) string {
	return func(w *worker) string {
		var args []string
		for a := range strings.FieldsSeq(cmd) {
			args = append(args, strings.NewReplacer("·", " ", "{repo}", w.repo, "{tmp}", w.Tmp, "{home}", w.Home).Replace(a))
		}
		r := w.run(args...)
		return fmt.Sprintf("exit %d\n%s\n%s", r.Exit, r.Stdout, r.Stderr)
	}
}

// call is what becomes of a tool call in a task that is open already.
func call(tool, args string) func(w *worker) string {
	return func(w *worker) string {
		if w.task == "" {
			w.task = w.Open(w.t, w.repo, "--unattended")
		}
		r := w.run("tool", w.task, tool, args)
		return fmt.Sprintf("exit %d\n%s\n%s", r.Exit, r.Stdout, r.Stderr)
	}
}

// opened is what is on record of a task that is opened, used and closed.
func opened(args ...string) func(w *worker) string {
	return func(w *worker) string {
		w.t.Helper()
		id := w.Open(w.t, w.repo)
		out := w.OK(w.t, w.repo, "log", "--json", id) + w.OK(w.t, w.repo, "show", "--json", id)
		if len(args) > 0 {
			w.OK(w.t, w.repo, append([]string{"exec", id, "--"}, args...)...)
			out += w.OK(w.t, w.repo, "diff", "--json", id)
		}
		w.OK(w.t, w.repo, "close", "--discard", id)
		return out
	}
}

// verified is how a declared check of a fresh task ends.
func verified(name string) func(w *worker) string {
	return func(w *worker) string {
		w.t.Helper()
		id := w.Open(w.t, w.repo)
		r := w.run("check", id, name)
		w.OK(w.t, w.repo, "close", "--discard", id)
		return fmt.Sprintf("exit %d\n%s\n%s", r.Exit, r.Stdout, r.Stderr)
	}
}

// levels is what a plan requires, and what it says is known.
func levels(args ...string) func(w *worker) string {
	return func(w *worker) string {
		p := w.planned(args...)
		out := fmt.Sprintf("rows %s\n", strings.Join(p.Rows, " "))
		for _, l := range p.Levels {
			out += fmt.Sprintf("%s=%d\n", l.Axis, l.Required)
		}
		for _, m := range p.Missing {
			out += fmt.Sprintf("missing %s: %s\n", m.Axis, strings.Join(m.Acceptable, ", "))
		}
		for _, f := range p.Facts {
			out += fmt.Sprintf("%s=%s %s\n", f.What, f.Value, f.Source)
		}
		return out
	}
}

// wiredLevels has every axis and every characteristic, which are keys themselves.
func wiredLevels() []wired {
	var out []wired
	for _, a := range task.Axes {
		top := task.MaxLevel(a)
		want := fmt.Sprintf("%s=%d\n", a, top)
		low := fmt.Sprintf("{%s: %d}", a, 0)
		see := levels("--", "true")
		if a == task.CPL { // a row asks for all of it
			see, want = says("policy show"), fmt.Sprintf("CPL %d", top)
		}
		out = append(out,
			wired{keys: "raise." + string(a), set: fmt.Sprintf("raise: {%s: %d}", a, top), not: "raise: " + low, do: see, want: want},
			wired{keys: "floors." + string(a), set: fmt.Sprintf("floors: {%s: %d}", a, top), not: "floors: " + low, do: see, want: want})
	}
	for _, c := range task.Characteristics {
		v := c.Values()[len(c.Values())-1]
		out = append(out, wired{keys: "characteristics." + string(c), set: fmt.Sprintf("characteristics: {%s: %s}", c, v), not: fmt.Sprintf("characteristics: {%s: %s}", c, c.Values()[0]),
			do: levels("--", "true"), want: fmt.Sprintf("%s=%s user", c, v)})
	}
	return out
}
