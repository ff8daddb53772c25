package policy

import (
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Call is everything that a verdict depends on.
type Call struct {
	// Proved says that the call would be carried out in a boundary that was
	// measured. The shipped default allows nothing anywhere else.
	Proved bool
	// Unattended says that nobody is there to answer questions.
	Unattended bool
	Tool       string
	// Subjects are what a rule's pattern is held against: the names that a path
	// has, or the text of a command. One that matches is enough.
	Subjects []string
	// Unsure says that the call may reach something by another name than those,
	// by a link for example: then every pattern counts as if it matched.
	Unsure bool
	// Point is the same call as the rules of files see it; its Tool and Unsure are
	// those above.
	Point ToolPoint
}

// VerdictFor says whether a tool call may be made, and by which rule. Of the
// rules that match, deny counts before ask and ask before allow, in whatever
// order they stand. The zero Call is denied.
func VerdictFor(rules []task.ToolRule, c Call) (task.Verdict, string) {
	if !c.Proved {
		return task.VerdictDeny, "not-proved"
	}
	if c.Tool == "" {
		return task.VerdictDeny, "no-tool"
	}
	best, why := task.VerdictAllow, "default: in a proved boundary"
	for _, r := range rules {
		if !matches(r, c) {
			continue
		}
		switch {
		case r.Verdict == task.VerdictAllow:
		case r.Verdict == task.VerdictAsk:
			if best == task.VerdictAllow {
				best, why = task.VerdictAsk, r.String()
			}
		default: // deny, and every word that is none
			return task.VerdictDeny, r.String()
		}
	}
	if best == task.VerdictAsk && c.Unattended {
		return task.VerdictDeny, why + ", and nobody is there to ask"
	}
	return best, why
}

func matches(r task.ToolRule, c Call) bool {
	if !Match(r.Tool, c.Tool) {
		return false
	}
	if r.Pattern == "" || c.Unsure {
		return true
	}
	for _, s := range c.Subjects {
		if Match(r.Pattern, s) {
			return true
		}
	}
	return false
}

// Match holds a text against a pattern in which * is any number of characters,
// / among them, and ? is one; there is no way to write those two themselves.
func Match(pattern, s string) bool {
	// The last * is where a mismatch goes on; an earlier one need not be tried again.
	p, star, at := 0, -1, 0
	rs, ps := []rune(s), []rune(pattern)
	for i := 0; i < len(rs); {
		switch {
		case p < len(ps) && ps[p] == '*':
			star, at = p, i
			p++
		case p < len(ps) && (ps[p] == '?' || ps[p] == rs[i]):
			p++
			i++
		case star >= 0:
			at++
			p, i = star+1, at
		default:
			return false
		}
	}
	return strings.Trim(string(ps[p:]), "*") == ""
}
