package boundary

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/detect"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// judge says what becomes of a tool call: by the rules of every source, then by
// the operator's own programs, which can only be stricter.
func (m *Manager) judge(ctx context.Context, l *live, k *toolCall) policy.Answer {
	linked := false
	if len(l.asking.Rules) > 0 || l.ruled().AboutPaths() || len(l.ruled().Hooks) > 0 {
		linked = l.unsure(k)
	}
	c := l.policyCall(k, linked)
	c.Unattended = false // a hook may still deny what would be asked
	a := l.ruled().Judge(l.asking.Rules, c)
	if len(l.ruled().Hooks) > 0 && a.Verdict != task.VerdictDeny {
		call := &policy.HookCall{ID: k.id, Digest: k.digest, Tool: k.tool, Argv: k.argv, Dir: k.dir, Paths: k.names, Linked: linked}
		switch x := k.args.(type) {
		case *contract.ShellArgs:
			call.Script, call.Env = x.Command, keys(x.Env)
		case *contract.ShellInputArgs:
			call.Script = x.Text
		}
		a, k.consulted = m.consult(ctx, l.ruled().Hooks, l.asked("tool", call), a)
	}
	if a.Verdict == task.VerdictAsk && l.unattended {
		a.Verdict, a.Rule = task.VerdictDeny, a.String()+", and nobody is there to ask"
	}
	return a
}

// asked is a question about a call in a task, for hooks.
func (l *live) asked(kind string, c *policy.HookCall) policy.HookQuestion {
	hide := hiding(l.secrets)
	c.Script, _ = hide.String(c.Script)
	c.Argv = slices.Clone(c.Argv)
	for i := range c.Argv {
		c.Argv[i], _ = hide.String(c.Argv[i])
	}
	return policy.HookQuestion{Kind: kind, Task: l.id, Name: l.name, Repo: l.checkout, Plan: l.plan, Unattended: l.unattended, Call: c}
}

// consulted is what one hook said, for the record.
type consulted struct {
	Hook   string `json:"hook"` // where it stands
	Answer string `json:"answer"`
	Reason string `json:"reason,omitempty"`
}

// consult asks the hooks one after the other until one denies. One that gives no
// answer denies.
func (m *Manager) consult(ctx context.Context, hooks []policy.Set[policy.Hook], q policy.HookQuestion, a policy.Answer) (policy.Answer, []consulted) {
	var said []consulted
	for _, h := range hooks {
		q.Schema, q.Owner, q.Verdict, q.Rule = policy.HookSchema, m.cfg.Identity.Login, a.Verdict, a.String()
		var got policy.HookAnswer
		err := error(task.Errorf(task.CodeUnavailable, "decide", "this program can ask no decision hook"))
		if m.cfg.Decide != nil {
			got, err = m.cfg.Decide(ctx, h, q, []string{q.Repo, m.cfg.StateDir, m.cfg.RuntimeDir})
		}
		why := approval.Visible(short(got.Reason, 1000))
		if err != nil {
			got, why = policy.HookAnswer{Verdict: "deny"}, "it gave no answer, which denies: "+approval.Visible(short(err.Error(), 1000))
		}
		said = append(said, consulted{h.From.String(), got.Verdict, why})
		v := got.Tightened(a.Verdict)
		if v != a.Verdict {
			rule := "decision_hook"
			if why != "" {
				rule += ": " + why
			}
			a = policy.Answer{Verdict: v, Rule: rule, From: h.From, Beside: append(a.Beside, policy.Told{Path: "tools", Value: a.Rule, From: a.From})}
		}
		if v == task.VerdictDeny {
			break
		}
	}
	return a, said
}

// point is a tool call as rules of files see it.
func (l *live) point(k *toolCall) policy.ToolPoint {
	var p policy.ToolPoint
	for _, n := range k.names {
		p.Paths = append(p.Paths, n)
		// Rules are written with the paths of the host.
		if rel, ok := strings.CutPrefix(n, l.spec.Source.Target+"/"); ok && l.checkout != l.spec.Source.Target && l.checkout != "" {
			p.Paths = append(p.Paths, filepath.Join(l.checkout, rel))
		}
	}
	p.Egress = k.endpoint()
	if !l.ruled().AboutCommands() {
		return p
	}
	switch a := k.args.(type) {
	case *contract.ShellArgs:
		look := func(name string) []byte { return l.look(filepath.Join(k.dir, name), lookText).text }
		_, path := a.Env["PATH"]
		p.Commands = CommandPoints(a.Argv, a.Command, look)
		if !path && l.ruled().Default.Value != "" {
			Resolve(p.Commands, l.resolve)
		}
		if len(a.Env) > 0 {
			argv := []string{"env"}
			for _, name := range keys(a.Env) {
				argv = append(argv, name+"="+a.Env[name])
			}
			for _, c := range CommandPoints(append(argv, "true"), "", nil) {
				if c.Opaque {
					p.Commands = append(p.Commands, c)
				}
			}
		}
	case *contract.ShellInputArgs:
		p.Commands = TypedPoints(a.Text)
	}
	return p
}

// CommandPoints are the commands of a call of shell as rules see them: those of
// the script, or where it is empty of argv. look shows the files that it names;
// it may be nil.
func CommandPoints(argv []string, script string, look detect.Look) []policy.CommandPoint {
	found := detect.Command(argv, look)
	if script != "" {
		found = detect.Script(script, look)
	}
	out := make([]policy.CommandPoint, 0, len(found.Simple))
	for _, s := range found.Simple {
		out = append(out, commandPoint(s))
	}
	return out
}

// TypedPoints are the commands of a text that is typed into a program that runs.
func TypedPoints(text string) []policy.CommandPoint {
	return append(CommandPoints(nil, text, nil), policy.CommandPoint{Opaque: true, Why: "it is typed into a program that runs"})
}

// Resolve puts in where the programs lie, as find knows it, and whether a task
// can put nothing there. Only a rule that allows depends on it.
func Resolve(ps []policy.CommandPoint, find func(name string) (path string, own bool)) {
	for i := range ps {
		if c := &ps[i]; !c.Opaque {
			c.Program, c.Own = find(c.Argv[0])
		}
	}
}

// commandPoint is a simple command as rules see it: an interpreter of code that
// the task can change runs whatever it likes.
func commandPoint(s task.Simple) policy.CommandPoint {
	c := policy.CommandPoint{Argv: s.Argv, Plain: detect.Plain(s), Partial: s.Partial, Opaque: s.Opaque || len(s.Argv) == 0 && s.Program == "", Why: s.Why}
	if !c.Opaque && (detect.Interprets(s) || s.RunsCode && len(s.Argv) > 0 && strings.Contains(s.Argv[0], "/")) {
		c.Opaque, c.Why = true, s.Program+" runs code of the task's files or of its input"
	}
	if len(c.Argv) == 0 && !c.Opaque {
		c.Argv = []string{s.Program} // not a program: a background job, a redirection
	}
	return c
}

// resolve finds a program by the boundary's PATH. own: it lies where the task can
// put nothing.
func (l *live) resolve(name string) (path string, own bool) {
	root := l.spec.Rootfs
	if root == "" {
		root = "/"
	}
	there := func(p string) bool {
		i, err := os.Stat(filepath.Join(root, p))
		return err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) || filepath.Clean(name) != name || l.writable(name) {
			return "", false
		}
		return name, there(name)
	}
	for _, dir := range filepath.SplitList(valueOf(l.spec.Env, "PATH")) {
		p := filepath.Join(dir, name)
		if l.writable(p) {
			return "", false // the task can put one there
		}
		if there(p) {
			return p, true
		}
	}
	return "", false
}

// writable says whether the task may write at a path inside.
func (l *live) writable(p string) bool {
	for _, t := range l.spec.Tools {
		if p == t.Target || strings.HasPrefix(p, t.Target+"/") {
			return t.Writable
		}
	}
	for _, dir := range []string{l.spec.Source.Target, l.spec.Out.Target, l.spec.Home, "/tmp", "/var/tmp", "/dev", "/run", "/proc"} {
		if dir != "" && (p == dir || strings.HasPrefix(p, dir+"/")) {
			return true
		}
	}
	return false
}

// mayRun says whether a command that a person or a program gives outside of tool
// calls may be run: by the commands that nobody may run, and the operator's hooks.
// Whoever gives it is there to be asked; what nobody can tell of a command is
// denied only where nobody is.
func (m *Manager) mayRun(ctx context.Context, rules *policy.Calls, unattended bool, q policy.HookQuestion) ([]consulted, error) {
	a := policy.Answer{Verdict: task.VerdictAllow, Rule: "default: no rule names it"}
	if len(rules.Denied) > 0 && q.Call != nil && len(q.Call.Argv) > 0 {
		p := policy.ToolPoint{Tool: "*"}
		p.Commands = CommandPoints(q.Call.Argv, "", nil)
		only := policy.Calls{Denied: rules.Denied}
		a = only.Judge(nil, policy.Call{Proved: true, Tool: p.Tool, Point: p, Unattended: unattended})
		if a.Verdict == task.VerdictAsk {
			a.Verdict = task.VerdictAllow
		}
	}
	var said []consulted
	if a.Verdict == task.VerdictAllow && len(rules.Hooks) > 0 {
		a, said = m.consult(ctx, rules.Hooks, q, a)
	}
	switch a.Verdict {
	case task.VerdictAllow:
		return said, nil
	case task.VerdictAsk:
		return said, task.Errorf(task.CodeDenied, q.Kind, "a person is to be asked, and `%s` asks nobody: %s", q.Kind, a).
			WithHint("make it a tool call, which waits for an answer: `caisson tool` in an open task")
	}
	return said, task.Errorf(task.CodeDenied, q.Kind, "the policy denies it: %s", a).
		WithHint("`caisson policy show` says what holds here; whoever wrote the rule can change it")
}

// mayCall is mayRun for a command in a live task, with its refusal on record.
func (m *Manager) mayCall(ctx context.Context, l *live, cmd task.Command, digest string) ([]consulted, error) {
	own := len(l.command) > 0 && slices.Equal(cmd.Argv, l.command)
	if l.only && !own {
		return nil, m.refuseCall(ctx, l, cmd, digest, task.Errorf(task.CodeDenied, "exec", "task %s was given for one trusted check alone, and has the boundary of one", l.id).
			WithHint("`caisson run` or `caisson open` makes another task"))
	}
	if own || len(l.ruled().Denied)+len(l.ruled().Hooks) == 0 {
		return nil, nil // of a run it was asked about when the task was decided
	}
	said, err := m.mayRun(ctx, l.ruled(), l.unattended, l.asked("exec", &policy.HookCall{Digest: digest, Argv: cmd.Argv, Dir: cmd.Dir, Env: envNames(cmd.Env)}))
	if err != nil {
		return said, m.refuseCall(ctx, l, cmd, digest, err)
	}
	return said, nil
}

func (m *Manager) refuseCall(ctx context.Context, l *live, cmd task.Command, digest string, why error) error {
	body := map[string]any{"digest": digest, "argv": shortened(cmd.Argv), "dir": cmd.Dir, "code": string(task.CodeOf(why)), "error": why.Error()}
	if _, err := l.log.Append(context.WithoutCancel(ctx), evidence.CallRefused, m.actor(), body); err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
	return why
}
