package boundary

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// handleOf is a credential of the policy as the broker knows it.
func handleOf(c policy.CredentialFrom) broker.Handle {
	w := c.Whole()
	h := broker.Handle{
		Name: c.Name, Prod: w.Class != "dev", As: mannerOf(w.As), Env: slices.Clone(w.Env), Set: w.Set, Form: w.Form,
		From: broker.Source{Env: w.Read.Env, File: string(w.Read.File), Command: w.Read.Command, Keyring: w.Read.Keyring, Agent: w.Read.Agent != nil && *w.Read.Agent},
		User: w.User, Header: w.Header, Region: w.Region, Service: w.Service, Keys: w.Keys, HostKeys: w.HostKeys, Sign: w.Sign, Always: w.Inject == "always",
		Lifetime: time.Duration(w.Lifetime), Uses: int(w.Uses), Approve: broker.Approve(w.Approve),
	}
	for _, e := range w.To {
		host, port := e.Host.Split(w.Port())
		d := broker.Dest{Host: host, Port: port, Path: string(e.Path)}
		for _, m := range e.Methods {
			d.Methods = append(d.Methods, string(m))
		}
		h.To = append(h.To, d)
	}
	return h
}

// mannerOf says how an API's own way of giving a credential is carried out.
func mannerOf(as string) broker.Manner {
	switch as {
	case "anthropic", "google":
		return broker.Header
	case "openai":
		return broker.Bearer
	}
	return broker.Manner(as)
}

// The kinds of grants of credentials, with a handle each.
const (
	grantLend     = "lend"
	grantLendProd = "lend-prod" // of class prod: each use is asked about
)

// lend says which credentials the task is lent: those that somebody asked for,
// which the policy was asked about by now, and those that the policy lends. What
// their variables hold inside comes back; a variable that a person set stays.
func (d *decided) lend() (env map[string]string, findings []task.Finding, err error) {
	type one struct {
		c   policy.CredentialFrom
		how string // in words
		src string // of the grant
	}
	var list []one
	r := d.rules.Rules
	for _, name := range d.req.Lend {
		c, some := r.Handle(name)
		if !some {
			return nil, nil, d.noHandle(name)
		}
		if !slices.ContainsFunc(list, func(o one) bool { return o.c.Name == name }) {
			list = append(list, one{c, "--lend " + name, "flag"})
		}
	}
	for _, s := range r.Lent() {
		if !slices.ContainsFunc(list, func(o one) bool { return o.c.Name == s.Value.Name }) {
			list = append(list, one{s.Value, s.From.String(), string(s.From.Source)})
		}
	}
	env = map[string]string{}
	by := map[string]string{}
	for _, o := range list {
		h := handleOf(o.c)
		for _, n := range slices.Concat(h.Env, slices.Sorted(maps.Keys(h.Set))) {
			if other := by[n]; other != "" {
				return nil, nil, task.Errorf(task.CodeUsage, "plan", "the credentials %s and %s both set the variable %s", other, h.Name, n).
					WithHint("lend one of the two, or have one name another variable: env of the handle")
			}
			by[n] = h.Name
			if slices.ContainsFunc(d.req.Env, func(kv string) bool { k, _, _ := strings.Cut(kv, "="); return k == n }) {
				findings = append(findings, task.Finding{ID: "loan-hidden", Axis: task.CRD, Cap: 1, Location: h.Name,
					Text: "the variable " + n + " is what --env says, not the placeholder of the credential " + h.Name, Fix: "leave --env " + n + " out"})
			}
		}
		l := broker.Lent{Handle: h, Placeholder: broker.NewPlaceholder(&h)}
		maps.Copy(env, l.Placeholder.Env(&h))
		d.lent = append(d.lent, l)
		kind, class := grantLend, "dev"
		if h.Prod {
			kind, class = grantLendProd, "prod"
		}
		d.grants = append(d.grants, task.Grant{Kind: kind, Value: h.Name, Source: o.src})
		d.loanFacts = append(d.loanFacts, task.Fact{What: task.Credentials, Value: class, Subject: h.Name, Source: task.Source(o.src), Evidence: o.how, Confidence: task.Certain})
		findings = append(findings, d.closed(&h)...)
	}
	return env, findings, nil
}

// noHandle is the refusal of a handle that no policy defines.
func (d *decided) noHandle(name string) error {
	var have []string
	if r := d.rules.Rules; r != nil {
		for _, c := range r.Credentials {
			have = append(have, c.Name)
		}
	}
	e := task.Errorf(task.CodeUsage, "plan", "--lend %s: no policy defines such a credential", short(name, 80))
	if near := sys.Nearest(name, have); near != "" {
		return e.WithHint("did you mean %s?", near)
	}
	if len(have) > 0 {
		return e.WithHint("there are %s", strings.Join(have, ", "))
	}
	return e.WithHint("write it under credentials in your policy file; `caisson policy schema` and docs/guide.md say how")
}

// closed says which destinations of a handle the task may not reach: lending opens
// no way.
func (d *decided) closed(h *broker.Handle) (out []task.Finding) {
	for _, to := range h.To {
		p := policy.EgressPoint{Host: to.Host, Port: to.Port, Method: "GET", Path: "/"}
		if len(to.Methods) > 0 {
			p.Method = to.Methods[0]
		}
		if to.Path != "" {
			p.Path = to.Path
		}
		if h.As == broker.SSH {
			p.Method, p.Path = "", ""
		}
		if a, err := netip.ParseAddr(to.Host); err == nil {
			p.Host, p.Addr = "", a
		}
		if d.leaving != nil {
			if a, _ := d.leaving.Way(p); a.Verdict != task.VerdictDeny {
				continue
			}
		}
		at := net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port)))
		out = append(out, task.Finding{ID: "loan-closed", Axis: task.CRD, Cap: 3, Location: h.Name,
			Text: "the credential " + h.Name + " is for " + at + ", which the task may not reach", Fix: "--allow " + at})
	}
	return out
}

// lendStill has what a decision of now lends count for what the task was lent.
func (l *live) lendStill(lent []broker.Lent) {
	if p := l.passage(); p != nil {
		p.lender.still(lent, "the policy does not lend it any more")
	}
}

// lendNone holds no secret any more: the task may not have what it was given, or
// nobody knows. While that is so nothing is lent either.
func (l *live) lendNone(why error) {
	if p := l.passage(); p != nil && p.lender != nil {
		p.lender.desk.Drop("what was decided about the task does not hold any more: " + short(why.Error(), 300))
	}
}
