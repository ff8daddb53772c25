package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Calls is what merged rules say about calls: the part of Rules that a task
// keeps for as long as it lives. The zero Calls has no rule. It takes nothing
// away and gives nothing: see Judge.
type Calls struct {
	Default Set[task.Verdict]
	Rules   []CallVerdict
	Denied  []Set[Command] // commands that nobody may run
	Hooks   []Set[Hook]
}

// Calls returns the part that is about calls.
func (r *Rules) Calls() Calls {
	c := Calls{Default: r.ToolDefault, Rules: r.ToolRules, Hooks: r.Hooks}
	for _, d := range r.Denied {
		if d.Command != nil {
			c.Denied = append(c.Denied, Set[Command]{*d.Command, d.From})
		}
	}
	return c
}

// AboutCommands says whether a rule looks at commands: only then they need to be
// known.
func (c *Calls) AboutCommands() bool {
	return len(c.Denied) > 0 || slices.ContainsFunc(c.Rules, func(r CallVerdict) bool { return len(r.Command) > 0 })
}

// AboutPaths says whether a rule looks at paths.
func (c *Calls) AboutPaths() bool {
	return slices.ContainsFunc(c.Rules, func(r CallVerdict) bool { return r.Path != "" })
}

// Judge says what becomes of a call by the rules of every source, flags among
// them. Of the rules that match, deny counts before ask and ask before allow, in
// whatever order they stand; nothing is allowed outside a proved boundary, and
// what a person would be asked about is denied where nobody is there.
func (c *Calls) Judge(flags []task.ToolRule, q Call) Answer {
	v, why := VerdictFor(flags, Call{Proved: q.Proved, Tool: q.Tool, Subjects: q.Subjects, Unsure: q.Unsure})
	best := Answer{Verdict: v, Rule: why}
	if v == task.VerdictDeny {
		return best
	}
	p := q.Point
	p.Tool = q.Tool
	p.Unsure = p.Unsure || q.Unsure
	if a := c.judge(p, nil); !isVerdict(a.Verdict) || slices.Index(verdicts, a.Verdict) > slices.Index(verdicts, v) || v == task.VerdictAllow && (a.From != Origin{}) {
		best = a
	}
	if best.Verdict == task.VerdictAsk && q.Unattended {
		best.Verdict, best.Rule = task.VerdictDeny, best.Rule+", and nobody is there to ask"
	}
	return best
}

// String renders the rule and where it stands.
func (a Answer) String() string {
	if a.From.Where == "" || strings.Contains(a.Rule, a.From.Where) {
		return a.Rule
	}
	return a.Rule + " (" + a.From.String() + ")"
}

// judge holds a call against the rules. denied are further matches that deny.
func (c *Calls) judge(p ToolPoint, denied []Told) Answer {
	if p.Tool == "" {
		return Answer{Verdict: task.VerdictDeny, Rule: "a call of no tool"}
	}
	best := Answer{Verdict: task.VerdictAllow, Rule: "default: no rule names it"}
	if c.Default.Value != "" {
		best = Answer{Verdict: c.Default.Value, Rule: "tools.default is " + string(c.Default.Value), From: c.Default.From}
		if !isVerdict(best.Verdict) {
			best.Verdict = task.VerdictDeny
		}
	}
	matched := [3][]Told{2: denied} // by verdict
	for i := range c.Denied {
		d := &c.Denied[i]
		switch f, why := d.Value.some(p.Commands); f {
		case fitSure:
			matched[2] = append(matched[2], Told{"denied", "denied: commands " + d.Value.String(), d.From})
		case fitMay:
			matched[1] = append(matched[1], Told{"denied", "denied: commands " + d.Value.String() + ", which it may run: " + why, d.From})
		}
	}
	for i := range c.Rules {
		t := &c.Rules[i]
		v := t.sound()
		f, why := fitNot, ""
		if v != task.VerdictAllow {
			f, why = t.CallRule.touches(&p)
		} else if t.CallRule.covers(&p) {
			f = fitSure
		}
		if f == fitNot {
			continue
		}
		text := string(t.Verdict) + " " + t.CallRule.String()
		if t.Reason != "" {
			text += " (" + t.Reason + ")"
		}
		if f == fitMay {
			// What may be meant is a person's to look at; only what is meant is denied.
			v, text = task.VerdictAsk, text+", which it may run: "+why
		}
		n := slices.Index(verdicts, v)
		matched[n] = append(matched[n], Told{"tools", text, t.From})
	}
	if l := matched[0]; len(l) > 0 {
		best, matched[0] = Answer{Verdict: task.VerdictAllow, Rule: l[0].Value, From: l[0].From}, l[1:]
	}
	for i := 1; i < len(matched); i++ {
		if l := matched[i]; len(l) > 0 && i > slices.Index(verdicts, best.Verdict) {
			if (best.From != Origin{}) {
				best.Beside = append(best.Beside, Told{"tools", best.Rule, best.From})
			}
			best.Verdict, best.Rule, best.From, matched[i] = verdicts[i], l[0].Value, l[0].From, l[1:]
		}
	}
	for i := len(matched) - 1; i >= 0; i-- {
		best.Beside = append(best.Beside, matched[i]...)
	}
	return best
}

// fit says how a command and a rule's words fit.
type fit int

const (
	fitNot  fit = iota
	fitMay      // nobody can tell from its words
	fitSure     // it is meant
)

// fits holds one command against the rule, and says why nobody can tell.
func (c *Command) fits(p CommandPoint) (fit, string) {
	if len(c.Argv) == 0 {
		return fitNot, ""
	}
	if p.Opaque || len(p.Argv) == 0 {
		if p.Why == "" {
			return fitMay, "what it runs cannot be told from its words"
		}
		return fitMay, p.Why
	}
	if !c.named(p) {
		return fitNot, ""
	}
	want := c.Argv[1:]
	if begins(p.Argv[1:], want) || len(p.Plain) > 0 && begins(p.Plain[1:], want) {
		return fitSure, ""
	}
	if len(p.Argv) > 1 && strings.HasPrefix(p.Argv[1], "-") && inOrder(p.Argv[1:], want) {
		return fitMay, "options stand before the words of the rule"
	}
	if p.Partial && (len(p.Argv)-1 < len(want) && begins(want, p.Argv[1:]) || len(p.Argv) > 1 && strings.HasPrefix(p.Argv[1], "-")) {
		return fitMay, "an argument is not literal"
	}
	return fitNot, ""
}

// named says whether the program may be the one of the rule.
func (c *Command) named(p CommandPoint) bool {
	want := c.Argv[0]
	if strings.HasPrefix(want, "/") {
		// Not resolved: it may be that one.
		return p.Program == want || p.Program == "" && path.Base(p.Argv[0]) == path.Base(want)
	}
	return path.Base(p.Argv[0]) == want || p.Program != "" && path.Base(p.Program) == want
}

func begins(argv, want []string) bool {
	return len(argv) >= len(want) && slices.Equal(argv[:len(want)], want)
}

// inOrder says whether all of want stand in argv, in that order.
func inOrder(argv, want []string) bool {
	for _, w := range want {
		i := slices.Index(argv, w)
		if i < 0 {
			return false
		}
		argv = argv[i+1:]
	}
	return true
}

// some returns the best fit among commands.
func (c *Command) some(ps []CommandPoint) (best fit, why string) {
	for i := range ps {
		if f, w := c.fits(ps[i]); f > best {
			best, why = f, w
		}
	}
	return best, why
}

// touches says whether something of the call may be meant by a rule that takes
// away: every part that is given must fit.
func (r *CallRule) touches(p *ToolPoint) (fit, string) {
	switch {
	case r.Tool == "" || p.Tool == "*" && r.Tool == "*":
	case p.Tool != "*":
		if !Match(r.Tool, p.Tool) {
			return fitNot, ""
		}
	case len(r.Command) == 0:
		return fitNot, "" // a command alone: a rule about some tool is none about it
	}
	if r.Path != "" && !p.Unsure && !slices.ContainsFunc(p.Paths, func(n string) bool { return !plainPath(n) || r.Path.holds(Path(n)) || Path(n).holds(r.Path) }) {
		return fitNot, ""
	}
	if r.Host != "" || len(r.Methods) > 0 {
		if e := r.endpoint(p); p.Egress == nil || !e.Touches(*p.Egress) {
			return fitNot, ""
		}
	}
	if r.Credential != "" && !r.Credential.Covers(p.Credential) {
		return fitNot, ""
	}
	if len(r.Command) == 0 {
		return fitSure, ""
	}
	c := Command{r.Command}
	return c.some(p.Commands)
}

// covers says whether all of the call is meant by a rule that gives.
func (r *CallRule) covers(p *ToolPoint) bool {
	if r.Tool != "" && (p.Tool == "*" && r.Tool != "*" || p.Tool != "*" && !Match(r.Tool, p.Tool)) {
		return false
	}
	c := Command{r.Command}
	if len(r.Command) > 0 && (len(p.Commands) == 0 || slices.ContainsFunc(p.Commands, func(x CommandPoint) bool { return !c.Covers(x) })) {
		return false
	}
	if r.Path != "" && (p.Unsure || len(p.Paths) == 0 || slices.ContainsFunc(p.Paths, func(n string) bool { return !plainPath(n) || !r.Path.holds(Path(n)) })) {
		return false
	}
	if r.Host != "" || len(r.Methods) > 0 {
		if e := r.endpoint(p); p.Egress == nil || !e.Covers(*p.Egress) {
			return false
		}
	}
	return r.Credential == "" || r.Credential.Covers(p.Credential)
}

// endpoint is the rule's host and methods as a set of endpoints.
func (r *CallRule) endpoint(p *ToolPoint) Egress {
	e := Egress{Host: r.Host, Methods: r.Methods}
	if e.Host == "" {
		e.Host = HostAny
		if p.Egress != nil && p.Egress.Host == "" {
			e.Host, e.CIDR = "", anyAddress(p.Egress)
		}
	}
	return e
}
