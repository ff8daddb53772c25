package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Held is what counts of one characteristic.
type Held struct {
	Value string
	// Facts are the statements that are as risky as the value; one for each kind
	// and subject of a characteristic that is a set.
	Facts []task.Fact
	// Lowered is the operator's statement that took it down; nil: none did.
	Lowered *task.Fact
}

// Profile is what is known of a task. A characteristic that nothing was said
// about counts as its riskiest value: the zero Profile needs every row.
type Profile map[task.Characteristic]Held

// Weigh joins facts: of each characteristic the riskiest value counts, whoever
// said it and in whatever order. lowered are the operator's statements that may
// take a characteristic down; those of any other source are ignored.
func Weigh(facts, lowered []task.Fact) Profile {
	p := Profile{}
	for _, c := range task.Characteristics {
		h := Held{}
		top := -1
		for _, f := range facts {
			if f.What != c {
				continue
			}
			r := c.Risk(f.Value)
			set := isSet(c) && r > 0 && top > 0
			switch {
			case r > top && !set:
				top, h.Value, h.Facts = r, f.Value, []task.Fact{f}
			case r == top || set:
				h.Facts = append(h.Facts, f)
				if r > top {
					top, h.Value = r, f.Value
				}
			}
		}
		if top < 0 {
			h.Value = task.Unknown
			h.Facts = []task.Fact{{What: c, Value: task.Unknown, Source: task.SourceDefault, Evidence: "nothing was said about it", Confidence: task.Guess}}
			top = c.Risk(task.Unknown)
		}
		for i := range lowered {
			l := lowered[i]
			if l.What != c || l.Source != task.SourceOperator || !slices.Contains(c.Values(), l.Value) {
				continue
			}
			if r := c.Risk(l.Value); r < top {
				top, h.Value, h.Facts, h.Lowered = r, l.Value, []task.Fact{l}, &l
			}
		}
		sortFacts(h.Facts)
		p[c] = h
	}
	return p
}

// isSet says that several values of a characteristic stand beside each other.
func isSet(c task.Characteristic) bool {
	return c == task.MutableState || c == task.ExternalAccess || c == task.Credentials || c == task.Concurrency
}

func sortFacts(fs []task.Fact) {
	slices.SortStableFunc(fs, func(a, b task.Fact) int {
		for _, d := range []int{
			a.What.Risk(b.Value) - a.What.Risk(a.Value),
			strings.Compare(string(a.Source), string(b.Source)), strings.Compare(a.Rule, b.Rule),
			strings.Compare(a.Subject, b.Subject), strings.Compare(a.Evidence, b.Evidence), strings.Compare(a.Value, b.Value),
		} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
}

// at returns the facts of c that are at least as risky as from; nil where the
// value that counts is below it.
func (p Profile) at(c task.Characteristic, from string) []task.Fact {
	h, ok := p[c]
	if !ok {
		return []task.Fact{{What: c, Value: task.Unknown, Source: task.SourceDefault, Confidence: task.Guess}}
	}
	least := c.Risk(from)
	if c.Risk(h.Value) < least {
		return nil
	}
	var out []task.Fact
	for _, f := range h.Facts {
		if c.Risk(f.Value) >= least {
			out = append(out, f)
		}
	}
	return out
}

// factText renders a fact for a person: what, by whom, from where.
func factText(f task.Fact) string {
	s := fmt.Sprintf("%s=%s", f.What, f.Value)
	if f.Subject != "" {
		s += " (" + f.Subject + ")"
	}
	by := string(f.Source)
	if f.Rule != "" {
		by += " " + f.Rule
	}
	if f.Evidence != "" {
		return s + ", by " + by + ": " + f.Evidence
	}
	return s + ", by " + by
}

// Launch is how a task was started, as far as the shipped defaults ask.
type Launch struct {
	Familiar   string // why the code counts as trusted; empty: it does not
	Unfamiliar string // why not, where somebody or something says so
	Supervised bool   // a person is at the terminal
	// Broad says why nobody watches for long; empty: somebody may.
	Broad    string
	Overlaps []string // tasks at work on the same source
	// Direct is work of a person in their own checkout that is short, watched
	// and the only one there: row R1.
	Direct bool
}

// Defaults are the shipped statements about a task: what holds unless somebody
// says more. A command can be anything, which is row R3.
func Defaults(l Launch) []task.Fact {
	say := func(c task.Characteristic, value, evidence string) task.Fact {
		return task.Fact{What: c, Value: value, Source: task.SourceDefault, Evidence: evidence, Confidence: task.Certain}
	}
	none := func(c task.Characteristic) task.Fact {
		return task.Fact{What: c, Value: c.Values()[0], Source: task.SourceDefault, Evidence: "nothing says otherwise", Confidence: task.Guess}
	}
	facts := []task.Fact{}
	switch {
	case l.Unfamiliar != "":
		facts = append(facts, say(task.CodeTrust, "unfamiliar", l.Unfamiliar))
	case l.Familiar != "":
		facts = append(facts, say(task.CodeTrust, "trusted", l.Familiar))
	default:
		facts = append(facts, say(task.CodeTrust, "unfamiliar", "nobody said that they know this code"))
	}
	switch {
	case l.Broad != "":
		facts = append(facts, say(task.Supervision, "broad-unsupervised", l.Broad))
	case l.Supervised:
		facts = append(facts, say(task.Supervision, "supervised", "a person is at the terminal"))
	default:
		facts = append(facts, say(task.Supervision, "asynchronous", "no terminal, or --unattended: nobody watches each step"))
	}
	for _, t := range l.Overlaps {
		facts = append(facts, task.Fact{What: task.Concurrency, Value: "overlaps", Subject: t, Source: task.SourceInventory, Confidence: task.Certain})
	}
	if len(l.Overlaps) == 0 {
		facts = append(facts, task.Fact{What: task.Concurrency, Value: "single", Source: task.SourceInventory, Confidence: task.Certain})
	}
	switch {
	case l.Direct:
		facts = append(facts, say(task.Executes, "none", "what runs is your own work: short, watched, alone in your checkout"))
	default:
		facts = append(facts, say(task.Executes, "generated", "a task can run any command"))
	}
	said := map[task.Characteristic]bool{}
	for _, f := range facts {
		said[f.What] = true
	}
	for _, c := range task.Characteristics {
		if !said[c] {
			facts = append(facts, none(c))
		}
	}
	return facts
}
