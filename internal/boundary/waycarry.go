package boundary

import (
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// carriedRules are rules about connections on their way into the program that a
// supervisor becomes.
type carriedRules struct {
	Some                   bool
	Net                    string
	NetFrom                policy.Origin
	Granted, Asked, Denied []carriedRule
	// Of requests that stop: the verdict as one rule, what is asked about, hosts that
	// are read.
	Outward         string
	OutwardFrom     policy.Origin
	OutAsk, OutRead []carriedRule
}

// carriedCA is the certificate of a boundary and its secret, which goes from memory
// to memory.
type carriedCA struct{ Cert, Key []byte }

type carriedRule struct {
	Host, CIDR, Path string
	Ports            []policy.Port
	Methods          []policy.Method
	Via              string
	Source, Where    string
}

func carryRules(r *policy.Rules) (c carriedRules) {
	if r == nil {
		return c
	}
	put := func(e *policy.Egress, via string, from policy.Origin) carriedRule {
		o := carriedRule{Host: string(e.Host), Path: string(e.Path), Ports: e.Ports, Methods: e.Methods, Via: via, Source: string(from.Source), Where: from.Where}
		if !e.CIDR.IsZero() {
			o.CIDR = e.CIDR.String()
		}
		return o
	}
	c.Some, c.Net, c.NetFrom = true, string(r.Net.Value), r.Net.From
	for _, g := range r.Granted {
		c.Granted = append(c.Granted, put(g.Egress, g.Via, g.From))
	}
	for _, a := range r.Asked {
		c.Asked = append(c.Asked, put(a.Egress, "", a.From))
	}
	for _, d := range r.Denied {
		c.Denied = append(c.Denied, put(d.Egress, "", d.From))
	}
	c.Outward, c.OutwardFrom = string(r.Outward.Verdict.Value), r.Outward.Verdict.From
	for i := range r.Outward.Ask {
		c.OutAsk = append(c.OutAsk, put(&r.Outward.Ask[i].Egress, "", r.Outward.Ask[i].From))
	}
	for _, h := range r.Outward.Read {
		c.OutRead = append(c.OutRead, put(&policy.Egress{Host: h.Value}, "", h.From))
	}
	return c
}

// rules returns what carryRules was given.
func (c carriedRules) rules() (*policy.Rules, error) {
	if !c.Some {
		return nil, nil
	}
	r := &policy.Rules{Net: policy.Set[policy.NetMode]{Value: policy.NetMode(c.Net), From: c.NetFrom}}
	item := func(o carriedRule) (policy.Item, policy.Origin, error) {
		e := &policy.Egress{Host: policy.Host(o.Host), Path: policy.URLPath(o.Path), Ports: o.Ports, Methods: o.Methods}
		var err error
		if o.CIDR != "" {
			err = e.CIDR.UnmarshalText([]byte(o.CIDR))
		}
		return policy.Item{Egress: e}, policy.Origin{Source: task.Source(o.Source), Where: o.Where}, err
	}
	for _, o := range c.Granted {
		it, from, err := item(o)
		if err != nil {
			return nil, err
		}
		r.Granted = append(r.Granted, policy.Granted{Item: it, Via: o.Via, From: from})
	}
	for _, o := range c.Asked {
		it, from, err := item(o)
		if err != nil {
			return nil, err
		}
		r.Asked = append(r.Asked, policy.Asked{Item: it, From: from})
	}
	for _, o := range c.Denied {
		it, from, err := item(o)
		if err != nil {
			return nil, err
		}
		r.Denied = append(r.Denied, policy.Denied{Item: it, From: from})
	}
	r.Outward.Verdict = policy.Set[task.Verdict]{Value: task.Verdict(c.Outward), From: c.OutwardFrom}
	for _, o := range c.OutAsk {
		it, from, err := item(o)
		if err != nil {
			return nil, err
		}
		r.Outward.Ask = append(r.Outward.Ask, policy.OutwardFrom{Egress: *it.Egress, From: from})
	}
	for _, o := range c.OutRead {
		it, from, err := item(o)
		if err != nil {
			return nil, err
		}
		r.Outward.Read = append(r.Outward.Read, policy.Set[policy.Host]{Value: it.Egress.Host, From: from})
	}
	return r, nil
}
