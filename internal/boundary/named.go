package boundary

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// Checks implements door.Engine.
func (m *Manager) Checks(ctx context.Context, ref string) (*task.CheckList, error) {
	t, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	rules, err := m.rulesOf(ctx, &t.View)
	if err != nil {
		return nil, err
	}
	out := &task.CheckList{Schema: "caisson.checks/1", Task: t.ID(), Policy: rules.Digest, Checks: []task.DeclaredCheck{}}
	for _, c := range declared(rules) {
		d := task.DeclaredCheck{Name: c.Value.Name, Run: c.Value.Run, Pinned: c.From.String()}
		for i := range t.View.Checks {
			if k := &t.View.Checks[i]; k.Name == d.Name {
				d.Last = k
			}
		}
		out.Checks = append(out.Checks, d)
	}
	return out, nil
}

func declared(rules policy.Governing) []policy.Set[policy.NamedCheck] {
	if rules.Rules == nil {
		return nil
	}
	return rules.Rules.Checks
}

// ofTerminal are the variables that say what a command's terminal is.
var ofTerminal = []string{"TERM", "COLORTERM", "NO_COLOR"}

// pin says who determined what a check runs.
type pin struct{ by, policy string }

// pinned puts into o what the policy declares under its name. The name of a
// declared check is nobody else's: a command that somebody gives does not take
// the place of what it found.
func (m *Manager) pinned(ctx context.Context, l *live, o *door.CheckOptions) (pin, error) {
	given := pin{by: typed}
	if o.Name == "" {
		if o.Named {
			return given, task.Errorf(task.CodeUsage, "check", "no name of a check given").WithHint("`caisson check %s` lists them", l.id)
		}
		return given, nil
	}
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return given, err
	}
	rules, err := m.rulesOf(ctx, &t.View)
	if err != nil {
		return given, err
	}
	all := declared(rules)
	i := slices.IndexFunc(all, func(c policy.Set[policy.NamedCheck]) bool { return c.Value.Name == o.Name })
	switch {
	case !o.Named && i < 0:
		return given, nil
	case !o.Named:
		return given, task.Errorf(task.CodeUsage, "check", "%s is the name of a check that the policy declares (%s): another command does not take its place", o.Name, all[i].From).
			WithHint("`caisson check %s %s` runs it; give this command another --name, or none", l.id, o.Name)
	case i >= 0:
		// Where it starts and what variables it has are part of what it means.
		own := slices.ContainsFunc(o.Command.Env, func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return !slices.Contains(ofTerminal, name)
		})
		if own || o.Command.Dir != "" {
			return given, task.Errorf(task.CodeUsage, "check", "the check %s runs as it is declared (%s), without variables and a folder of its caller's", o.Name, all[i].From).
				WithHint("leave --env and --dir out; or give the command itself: `caisson check %s -- CMD`", l.id)
		}
		o.Command.Argv, o.Command.Dir, o.Command.From = slices.Clone([]string(all[i].Value.Run)), l.spec.Source.Target, ""
		return pin{all[i].From.String(), rules.Digest}, nil
	case len(all) == 0 && len(o.Command.Argv) > 0:
		o.Name, o.Named = "", false
		return given, nil
	}
	return given, unknownCheck(l.id, o, all)
}

func unknownCheck(id task.ID, o *door.CheckOptions, all []policy.Set[policy.NamedCheck]) error {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Value.Name
	}
	there := "none is declared there"
	if len(names) > 0 {
		there = "there is " + short(strings.Join(names, ", "), 300)
	}
	hint := fmt.Sprintf("for a command: `caisson check %s -- CMD`", id)
	if len(o.Command.Argv) > 0 {
		hint = fmt.Sprintf("for the command: `caisson check %s -- %s`", id, task.ShellWord(o.Command.Argv[0]))
	}
	return task.Errorf(task.CodeNotFound, "check", "the policy of task %s declares no check %q; %s", id, o.Name, there).
		WithHint("%s; `checks` in the .caisson.yaml of the commit that a task starts from, or in your own policy file, declares one", hint)
}
