package source

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/task"
)

// maxRisks bounds the list; what is left out is counted in a last entry.
const maxRisks = 10_000

// riskLook compares the old and the new content of a file and says, in a
// sentence, what changed that makes it count; empty: nothing did. nil is a side
// that does not exist. It must not fail: what it cannot read counts.
type riskLook func(before, after []byte) string

// riskNameIndex is made by the first look at a result, not at every start of the
// program.
var riskNameIndex = sync.OnceValue(func() *riskNames { return compileRisks(riskRules) })

// Risks lists what of the result tools on the host would execute or trust once
// it is in a checkout, sorted by path. Only what changed counts. It reads
// objects and, where the result is from files, their modes; nothing is run. also
// says of further paths that they count.
func (r *Result) Risks(ctx context.Context, also ...func(path string) bool) ([]task.Risk, error) {
	cs := slices.Clone(r.raw) // judging writes into them
	if len(cs) == 0 {
		return []task.Risk{}, nil
	}
	l := &riskList{seen: map[string]map[string]bool{}}
	for i := range cs {
		cs[i].judgeName(l)
		cs[i].judgeAlso(also, l)
	}
	t, err := r.meetTree(ctx, cs)
	if err != nil {
		return nil, err
	}
	if err := r.judgeAliases(ctx, cs, t, l); err != nil {
		return nil, err
	}
	if err := r.judgeContents(ctx, cs, l); err != nil {
		return nil, err
	}
	t.judge(cs, l)
	r.judgeModes(cs, l)
	return l.done(), nil
}

// riskList collects entries: one for each path and rule.
type riskList struct {
	risks []task.Risk
	seen  map[string]map[string]bool
	more  int
}

func (l *riskList) add(p []byte, rule, why string) {
	key := string(p)
	if l.seen[key][rule] {
		return
	}
	if len(l.risks) >= maxRisks {
		l.more++
		return
	}
	if l.seen[key] == nil {
		l.seen[key] = map[string]bool{}
	}
	l.seen[key][rule] = true
	l.risks = append(l.risks, task.Risk{Path: showRisk(key), Rule: rule, Why: why, Raw: bytes.Clone(p)})
}

// showRisk shows a path so that what deceives in it is seen.
func showRisk(p string) string {
	for _, part := range strings.Split(p, "/") {
		if deceives(part) != "" {
			return strconv.QuoteToASCII(p)
		}
	}
	return quote(p)
}

func (l *riskList) done() []task.Risk {
	sort.SliceStable(l.risks, func(i, j int) bool { return bytes.Compare(l.risks[i].Raw, l.risks[j].Raw) < 0 })
	if l.more > 0 {
		l.risks = append(l.risks, task.Risk{Rule: ruleTooMany, Why: fmt.Sprintf("%s: %d more", whyOf(ruleTooMany), l.more)})
	}
	if l.risks == nil {
		return []task.Risk{}
	}
	return l.risks
}

// whyOf returns the sentence of a rule without names.
func whyOf(id string) string {
	for _, r := range codeRules {
		if r.id == id {
			return r.why
		}
	}
	return id
}

// rawChange is a change with the names of both objects.
type rawChange struct {
	task.Change
	oldOID, newOID string
	look           *riskRule // whose content decides
	then           *riskRule // holds when the content does not count
	folded         []string
	target         string // of a link
	targetWhole    bool   // target is all of it
}

const modeLink = 0o120000

func (c *rawChange) isFile() bool { return c.NewMode&0o170000 == 0o100000 }

// judgeName applies the rules that look at the change alone.
func (c *rawChange) judgeName(l *riskList) {
	c.folded = foldPath(string(c.Path))
	c.judgeAs(c.folded, "", l)
	if c.Status == 'D' {
		return
	}
	if c.NewMode == gitlink {
		l.add(c.Path, ruleGitlink, whyOf(ruleGitlink))
	}
	for _, part := range strings.Split(string(c.Path), "/") {
		if why := deceives(part); why != "" {
			l.add(c.Path, ruleName, why)
			break
		}
	}
}

// judgeAlso applies what a policy adds, to the name as it is and folded. A link
// may stand in the place of a folder that a pattern means the files of.
func (c *rawChange) judgeAlso(also []func(string) bool, l *riskList) {
	for _, f := range also {
		for _, name := range []string{string(c.Path), strings.Join(c.folded, "/")} {
			if f(name) || c.Status != 'D' && !c.isFile() && f(name+"/any") {
				l.add(c.Path, rulePolicy, whyOf(rulePolicy))
			}
		}
	}
}

// judgeAs applies the rules of names to one folded name that a change has. via
// says how it has it, before the sentence of a rule; empty: it is its own.
func (c *rawChange) judgeAs(folded []string, via string, l *riskList) {
	names := riskNameIndex()
	i := names.find(folded, -1)
	if i < 0 && c.NewMode != modeLink {
		return
	}
	if i < 0 {
		if i = names.folder(folded); i >= 0 {
			l.add(c.Path, riskRules[i].id, cmp.Or(via, "it is ")+"a link in the place of a folder with such files, and so all that it leads to counts as one: "+riskRules[i].why)
		}
		return
	}
	rule := riskRules[i].through(via)
	switch {
	case c.Status == 'D':
		if rule.lost != "" {
			l.add(c.Path, rule.id, rule.lost)
		}
	case rule.look == nil || !c.isFile() || !c.sameKind() || c.look != nil && c.look.id != rule.id:
		l.add(c.Path, rule.id, rule.why)
	default: // a first name, or another one with the same rule, whose look decides for both
		if c.look == nil {
			c.look = rule
		}
		for i >= 0 && riskRules[i].look != nil {
			i = names.find(folded, i)
		}
		if i >= 0 && c.then == nil {
			c.then = riskRules[i].through(via)
		}
	}
}

// through returns the rule with sentences that begin with via.
func (r riskRule) through(via string) *riskRule {
	if via == "" {
		return &r
	}
	look := r.look
	r.why = via + r.why
	if r.lost != "" {
		r.lost = via + r.lost
	}
	if look != nil {
		r.look = func(before, after []byte) string {
			if why := look(before, after); why != "" {
				return via + why
			}
			return ""
		}
	}
	return &r
}

// sameKind reports whether the old side, if any, is a file as well: only then
// contents can be compared.
func (c *rawChange) sameKind() bool { return c.OldMode == 0 || c.OldMode&0o170000 == 0o100000 }
