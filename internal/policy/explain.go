package policy

import (
	"fmt"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Answer is what the rules say of one question, and by which of them.
type Answer struct {
	Verdict task.Verdict `json:"verdict"`
	Rule    string       `json:"rule"` // in words
	From    Origin       `json:"from"`
	// Beside are further rules that match and did not decide.
	Beside []Told `json:"beside,omitempty"`
}

// Point is what a question is about: one thing that may be reached, or a call.
type Point struct {
	Egress     *EgressPoint
	Mount      *MountPoint
	Env        string
	Credential string
	Grant      Ability
	Command    *CommandPoint
	Tool       *ToolPoint
}

// ToolPoint is one tool call.
type ToolPoint struct {
	Tool string
	// Commands are all that it runs; Paths, absolute with links resolved, all that
	// it names.
	Commands   []CommandPoint
	Paths      []string
	Egress     *EgressPoint
	Credential string
	// Unsure says that it may reach something by another name than those: every
	// path counts as named.
	Unsure bool
}

// covers says whether all of p is in the item.
func (it Item) covers(p Point) bool {
	switch {
	case it.Egress != nil:
		return p.Egress != nil && it.Egress.Covers(*p.Egress)
	case it.Mount != nil:
		return p.Mount != nil && it.Mount.Covers(*p.Mount)
	case it.Env != "":
		return it.Env.Covers(p.Env)
	case it.Credential != "":
		return it.Credential.Covers(p.Credential)
	case it.Grant != "":
		return it.Grant == p.Grant
	case it.Command != nil:
		return p.Command != nil && it.Command.Covers(*p.Command)
	}
	return false
}

// touches says whether some of p may be in the item.
func (it Item) touches(p Point) bool {
	switch {
	case it.Egress != nil:
		return p.Egress != nil && it.Egress.Touches(*p.Egress)
	case it.Mount != nil:
		return p.Mount != nil && it.Mount.Touches(*p.Mount)
	case it.Command != nil:
		return p.Command != nil && it.Command.Touches(*p.Command)
	}
	return it.covers(p)
}

// Explain answers a question. What is denied counts first, then what is granted,
// then what a person may agree to; what no rule names is denied. The zero Point
// is denied.
func (r *Rules) Explain(p Point) Answer {
	if p.Tool != nil {
		return r.call(*p.Tool)
	}
	if p.Command != nil {
		return r.call(ToolPoint{Tool: "*", Commands: []CommandPoint{*p.Command}})
	}
	best := Answer{Verdict: task.VerdictDeny, Rule: "nothing grants it"}
	decided := false
	say := func(v task.Verdict, list, rule string, o Origin) {
		if !decided {
			best.Verdict, best.Rule, best.From, decided = v, rule, o, true
			return
		}
		best.Beside = append(best.Beside, Told{list, rule, o})
	}
	for _, d := range r.Denied {
		if d.touches(p) {
			say(task.VerdictDeny, "denied", "denied: "+d.Kind()+" "+d.Item.String(), d.From)
		}
	}
	if p.Egress != nil && r.Net.Value == NetNone {
		say(task.VerdictDeny, "net", "net is none", r.Net.From)
	}
	for _, g := range r.Granted {
		if g.covers(p) {
			say(task.VerdictAllow, "granted", "granted by "+g.Via+": "+g.Kind()+" "+g.Item.String(), g.From)
		}
	}
	for _, a := range r.Asked {
		if a.covers(p) {
			say(task.VerdictAsk, "asked", "asked for, and a person is to agree: "+a.Kind()+" "+a.Item.String(), a.From)
		}
	}
	if p.Egress != nil && best.Verdict == task.VerdictAllow {
		if a := r.Outward.stops(p.Egress.known(), best); a.Verdict != best.Verdict {
			a.Beside = append(best.Beside, Told{"granted", best.Rule, best.From})
			best = a
		}
	}
	for _, x := range r.Refused {
		if x.covers(p) {
			say(task.VerdictDeny, "refused", "asked for and refused: "+x.Item.String()+": "+x.Why, x.From)
		}
	}
	return best
}

// call judges a tool call. Of the rules that match, deny counts before ask and
// ask before allow, in whatever order they stand. The default holds unless an
// allow matches; a rule that asks never lifts it, for anybody may write one.
func (r *Rules) call(p ToolPoint) Answer {
	var denied []Told
	for _, d := range r.Denied {
		if d.Egress != nil && p.Egress != nil && d.Egress.Touches(*p.Egress) || d.Credential != "" && d.Credential.Covers(p.Credential) {
			denied = append(denied, Told{"denied", "denied: " + d.Kind() + " " + d.Item.String(), d.From})
		}
	}
	c := r.Calls()
	return c.judge(p, denied)
}

// sound is the rule's verdict; a word that is none denies.
func (t *CallVerdict) sound() task.Verdict {
	if !isVerdict(t.Verdict) {
		return task.VerdictDeny
	}
	return t.Verdict
}

func anyAddress(p *EgressPoint) CIDR {
	if p.Addr.Is4() {
		return mustCIDR("0.0.0.0/0")
	}
	return mustCIDR("::/0")
}

// Seen says which commands a call consists of, as enforcement sees them. tool is
// "" for a command alone.
type Seen func(tool string, words []string) []CommandPoint

// Point reads a question as it is written in a file or typed. seen analyses its
// command; with nil nothing of that is known but the words.
func (q *Question) Point(home string, seen Seen) (Point, error) {
	if err := q.Check(); err != nil {
		return Point{}, err
	}
	if seen == nil {
		seen = func(_ string, words []string) []CommandPoint {
			return []CommandPoint{{Argv: words, Opaque: true}}
		}
	}
	var p Point
	if q.Egress != "" {
		e, err := ParseEgress(q.Egress)
		if err != nil {
			return Point{}, err
		}
		p.Egress = &e
	}
	if q.Mount != nil {
		p.Mount = &MountPoint{string(q.Mount.Path.expand(home)), q.Mount.Mode == AccessRW}
	}
	p.Env, p.Credential, p.Grant = q.Env, q.Credential, q.Grant
	if q.Tool == "" && len(q.Command) == 0 {
		return p, nil
	}
	t := ToolPoint{Tool: q.Tool, Egress: p.Egress, Credential: q.Credential}
	if q.Tool == "" {
		t.Tool = "*"
	}
	if len(q.Command) > 0 {
		t.Commands = seen(q.Tool, q.Command)
	}
	if q.Path != "" {
		t.Paths = []string{string(q.Path.expand(home))}
	}
	return Point{Tool: &t}, nil
}

// String renders the question on one line.
func (q *Question) String() string {
	var parts []string
	put := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	put("tool", q.Tool)
	put("egress", q.Egress)
	if q.Mount != nil {
		put("mount", q.Mount.String())
	}
	put("env", q.Env)
	put("credential", q.Credential)
	put("grant", string(q.Grant))
	put("command", strings.Join(q.Command, " "))
	put("path", string(q.Path))
	return strings.Join(parts, ", ")
}

// Tried is one line of the table of expected answers, and what came of it.
type Tried struct {
	Name   string       `json:"name"`
	Expect task.Verdict `json:"expect"`
	Answer
	OK   bool   `json:"ok"`
	Test Origin `json:"test"`
}

// Try answers every question of the rules' own table.
func (r *Rules) Try(home string, seen Seen) []Tried {
	out := []Tried{}
	for _, t := range r.Tests {
		x := Tried{Name: t.Value.Name, Expect: t.Value.Expect, Test: t.From}
		if x.Name == "" {
			x.Name = t.Value.Question.String()
		}
		p, err := t.Value.Question.Point(home, seen)
		if err != nil {
			x.Answer = Answer{Rule: fmt.Sprintf("the question cannot be read: %v", err)}
		} else {
			x.Answer = r.Explain(p)
			x.OK = x.Verdict == x.Expect
		}
		out = append(out, x)
	}
	return out
}
