package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// OutwardRules say which requests on their way out stop for a person. They take
// away from what base, request and flags allow, and give nothing.
type OutwardRules struct {
	// Verdict is about requests that are known, by their form, to change something
	// that others see, or that nobody takes back: a push, a publication, a
	// deletion. Empty: what others say, or ask.
	Verdict task.Verdict `json:"verdict,omitempty"`
	Ask     []Egress     `json:"ask,omitempty"`  // further requests that a person is asked about
	Read    []Host       `json:"read,omitempty"` // hosts whose TLS the gate ends, so that requests are seen
}

// Check implements Checker.
func (o *OutwardRules) Check() error {
	if o.Verdict != "" && !isVerdict(o.Verdict) {
		return fmt.Errorf("verdict: %w", &WordError{string(o.Verdict), wordsOf(verdicts)})
	}
	return nil
}

// OutwardFrom is one kind of request that a person is asked about.
type OutwardFrom struct {
	Egress
	From Origin `json:"from"`
}

// outward joins what documents say of requests that stop.
func (m *merger) outward(o *OutwardRules) {
	strictest(m, &m.r.Outward.Verdict, o.Verdict, verdicts, "outward.verdict")
	for i, e := range o.Ask {
		own := e
		for _, it := range (Item{Egress: &own}).expand(m.c.Home, m.c.Remotes) {
			addOnce(m, "outward.ask", &m.r.Outward.Ask, OutwardFrom{*it.Egress, m.from(fmt.Sprintf("outward.ask[%d]", i))}, it.key())
		}
	}
	for i, h := range o.Read {
		own := Egress{Host: h}
		for _, it := range (Item{Egress: &own}).expand(m.c.Home, m.c.Remotes) {
			addSet(m, "outward.read", &m.r.Outward.Read, it.Egress.Host, m.from(fmt.Sprintf("outward.read[%d]", i)))
		}
	}
}

// MergedOutward is what all of them say.
type MergedOutward struct {
	Verdict Set[task.Verdict] `json:"verdict"` // empty: ask
	Ask     []OutwardFrom     `json:"ask"`
	Read    []Set[Host]       `json:"read"`
}

// reads says whether the requests to a host are to be seen.
func (o *MergedOutward) reads(host string) bool {
	return slices.ContainsFunc(o.Read, func(h Set[Host]) bool { return h.Value.Covers(host) })
}

// stops holds what is allowed against the rules about requests that stop.
func (o *MergedOutward) stops(p EgressPoint, a Answer) Answer {
	for _, x := range o.Ask {
		if x.deniesWay(p) {
			a = Answer{Verdict: task.VerdictAsk, Rule: "a person is asked each time: " + x.Egress.String(), From: x.From}
			break
		}
	}
	if p.Act == "" {
		return a
	}
	v := o.Verdict.Value
	if v == "" {
		v = task.VerdictAsk
	}
	if slices.Index(verdicts, v) > slices.Index(verdicts, a.Verdict) || !isVerdict(v) {
		a = Answer{Verdict: v, Rule: "outward.verdict is " + string(v) + " for what others see or nobody takes back: " + p.Act, From: o.Verdict.From}
	}
	return a
}

// known is p with what its method and path alone say that it does. The gate also
// looks at header fields and body.
func (p EgressPoint) known() EgressPoint {
	switch {
	case p.Act != "":
	case p.Method == "DELETE":
		p.Act = "delete"
	case p.Method == "POST" && strings.HasSuffix(p.Path, "/git-receive-pack"):
		p.Act = "push"
	}
	return p
}

// OutwardNote says what becomes of requests that change what others see, and
// where they are not seen. A nil r is what is shipped.
func (r *Rules) OutwardNote(unattended bool) string {
	o := MergedOutward{}
	if r != nil {
		o = r.Outward
	}
	becomes := "a person is asked about"
	switch {
	case o.Verdict.Value == task.VerdictAllow:
		becomes = "nobody is asked about"
	case o.Verdict.Value == task.VerdictDeny:
		becomes = "nothing comes of"
	case unattended:
		becomes = "nobody is there to ask, so nothing comes of"
	}
	where := []string{"plain HTTP"}
	for _, h := range o.Read {
		where = append(where, "TLS to "+string(h.Value))
	}
	text := becomes + " requests that change what others see (push, publish, delete …), where they are read: " + strings.Join(where, ", ")
	if o.Verdict.From.Where != "" {
		text += " (" + o.Verdict.From.String() + ")"
	}
	return text + "; inside any other TLS, and in SSH, nobody sees them: outward.read of a policy names hosts that are to be read"
}
