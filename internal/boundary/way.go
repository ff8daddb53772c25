package boundary

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/task"
)

// passage is the way out of one boundary: its gate, and what answers at the
// sockets inside.
type passage struct {
	gate   *egress.Gate
	kind   probe.Gate
	record *crossings
	served sync.WaitGroup
	lender *lender // nil: nothing is lent
	locals *locals // nil: nothing is asked for at sockets inside
	// open says that the boundary was measured: until then nothing leaves.
	open atomic.Bool
}

// passing says what a passage is for.
type passing struct {
	inst  backend.Instance
	kind  probe.Gate
	phase string // for the record; empty: the task itself
	// rules are those that count now, nil for none; an error lets nothing out.
	rules func() (*policy.Rules, error)
	lends bool       // what the task is lent
	ca    *egress.CA // whom programs inside trust; nil: nobody here
}

// pass makes the way out of a boundary before the first program runs that could
// use it. Nothing leaves by it before letOut. The caller ends it with end.
func (m *Manager) pass(l *live, w passing) (*passage, error) {
	from, ok := w.inst.(backend.Listeners)
	if !ok {
		return nil, task.Errorf(task.CodeUnsupported, "way", "a boundary of the backend %s has no way out", l.driver).WithHint("leave --net out")
	}
	s, err := from.Sockets()
	if err != nil {
		return nil, err
	}
	p := &passage{kind: w.kind, record: &crossings{m: m, l: l, phase: w.phase, most: maxRecord, measuring: true}}
	left, err := l.goneOut()
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	most := l.spec.Limits
	var lends egress.Lender
	if w.lends {
		if p.lender, err = m.newLender(l, func() error { _, err := w.rules(); return err }); err != nil {
			_ = s.Close()
			return nil, err
		}
		if p.lender != nil {
			lends = p.lender
		}
	}
	p.gate, err = egress.New(egress.Config{Lender: lends, Judge: p.judge(w.rules), Recorder: p.record, Ask: m.askWay(l), Reads: p.reads(w.rules), CA: w.ca, Spool: l.spool, Registry: policy.TakesPackages, IDs: &left.crossings,
		Limits: egress.Limits{Conns: int(most.NetConns), PerSecond: float64(most.NetRate), Burst: burst(most.NetRate), Bytes: most.NetBytes, Moved: &left.bytes}})
	if err != nil {
		_ = s.Close()
		p.lender.close(theEnd)
		return nil, err
	}
	if p.locals, err = m.openLocals(l, w.inst, p); err != nil {
		_ = s.Close()
		p.gate.Close()
		p.lender.close(theEnd)
		return nil, err
	}
	serve := func(err error) {
		if err != nil {
			m.cfg.Log("task " + string(l.id) + ": a part of its way out ended: " + err.Error())
		}
	}
	p.served.Go(func() { serve(p.gate.ServeProxy(s.Proxy)) })
	for _, d := range s.Direct {
		p.served.Go(func() { serve(p.gate.ServeDirect(d)) })
	}
	for _, n := range s.Names {
		p.served.Go(func() { serve(p.gate.ServeDNS(n)) })
	}
	return p, nil
}

// theEnd is why everything that was lent comes back.
const theEnd = "the boundary is ended"

// letOut has the rules count: the boundary was measured.
func (p *passage) letOut() {
	p.record.measured()
	p.open.Store(true)
}

// end ends every connection and records how.
func (p *passage) end() {
	p.gate.Close()
	p.locals.end()
	p.served.Wait()
	p.lender.close(theEnd)
	p.record.end()
}

// openWay makes the way out that the spec of a task names.
func (m *Manager) openWay(l *live, inst backend.Instance) error {
	if l.spec.Way == nil {
		return nil
	}
	kind := probe.GateList
	if l.open {
		kind = probe.GateOpen
	}
	p, err := m.pass(l, passing{inst: inst, kind: kind, rules: m.leavingOf(l), lends: true, ca: l.ca})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.way = p
	l.mu.Unlock()
	return nil
}

// letOut lets out of the task what its rules allow, from here on.
func (l *live) letOut() {
	if p := l.passage(); p != nil {
		p.letOut()
	}
}

func (l *live) passage() *passage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.way
}

// closeWay ends the way out of the task.
func (l *live) closeWay() {
	l.mu.Lock()
	p := l.way
	l.way = nil
	l.mu.Unlock()
	if p != nil {
		p.end()
	}
}

// leavingOf returns the rules about a task's connections that are in force. Policy
// files are looked at again once a second at most.
func (m *Manager) leavingOf(l *live) func() (*policy.Rules, error) {
	var mu sync.Mutex
	var at time.Time
	var why error
	return func() (*policy.Rules, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) > time.Second {
			ctx, done := context.WithTimeout(l.ctx, startTime)
			defer done()
			why = m.mayBegin(ctx, l, false)
			at = time.Now()
		}
		return l.leaving.Load(), why
	}
}

// judge asks the rules about what wants to leave.
func (p *passage) judge(rules func() (*policy.Rules, error)) egress.Judge {
	return func(pt egress.Point) egress.Answer {
		if !p.open.Load() {
			return egress.Answer{Verdict: task.VerdictDeny, Rule: "the boundary is being measured"}
		}
		r, err := rules()
		switch {
		case err != nil:
			return egress.Answer{Verdict: task.VerdictDeny, Rule: err.Error()}
		case r == nil:
			return egress.Answer{Verdict: task.VerdictDeny, Rule: "the task has no network any more"}
		}
		a, within := r.Way(policy.EgressPoint{Host: pt.Host, Addr: pt.Addr, Port: pt.Port, Method: pt.Method, Path: pt.Path, Act: string(pt.Act)})
		rule := a.Rule
		if a.From.Where != "" {
			rule += " (" + a.From.String() + ")"
		}
		return egress.Answer{Verdict: a.Verdict, Rule: rule, Range: within}
	}
}

// reads says of which destinations the rules need to see each request. While the
// boundary is measured that is none: whatever is tried is refused as it is.
func (p *passage) reads(rules func() (*policy.Rules, error)) func(egress.Dest) bool {
	return func(d egress.Dest) bool {
		if !p.open.Load() {
			return false
		}
		r, err := rules()
		return err == nil && r.Reads(policy.EgressPoint{Host: d.Host.Name(), Addr: d.Host.Addr(), Port: d.Port})
	}
}

// crossings puts on record what leaves a task, and what was not let out. What is
// let out is durable before it happens; refusals that come again and again are
// counted.
type crossings struct {
	m     *Manager
	l     *live
	phase string
	most  int64 // bytes of the record, before nothing more is let out

	mu        sync.Mutex
	measuring bool
	seen      int // while it is measured
	folded    map[string]*folded
	minute    time.Time // when counting of refusals began
	told      int       // refusals that were put down since
}

// folded is a refusal that was put down once and came again.
type folded struct {
	body  map[string]any
	again int
	since time.Time
}

// foldTime is how long a refusal is counted before it is put down again, and
// maxTold the most of them that are put down one by one in that time.
const (
	foldTime = time.Minute
	maxTold  = 300
)

// maxRecord is the most bytes that the record of a task grows to by what programs
// inside ask for outside: it lies on the host's disk and counts for no limit of
// the task's.
const maxRecord = 1 << 30

// full says why nothing more leaves: each connection stands in the record.
func (c *crossings) full() error {
	if c.l.log.Size() < c.most {
		return nil
	}
	return task.Errorf(task.CodeLimit, "egress", "the record of the task has %d MiB, which is the most for a task whose programs go out so often: nothing more leaves", c.most>>20).
		WithHint("close the task and go on in another")
}

func (c *crossings) measured() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.measuring = false
}

// of says whose crossing it is, where it is not the task's own.
func (c *crossings) of(body map[string]any) {
	if c.phase != "" {
		body["phase"] = c.phase
	}
}

// attempts is how often something inside asked for something while the boundary
// was measured.
func (c *crossings) attempts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// Decided implements egress.Recorder.
func (c *crossings) Decided(d egress.Decision) error {
	body := map[string]any{"crossing": d.ID, "proto": string(d.Proto), "verdict": string(d.Verdict), "rule": short(d.Rule, 1000)}
	c.of(body)
	put := func(name, value string) {
		if value != "" {
			body[name] = short(value, 2000)
		}
	}
	if !d.Dest.Host.IsZero() {
		to := d.Dest.Host.String()
		if d.Dest.Port != 0 {
			to = d.Dest.String()
		}
		put("to", to)
	}
	put("said", d.Said)
	put("method", d.Method)
	put("path", d.Path)
	put("act", string(d.Act))
	put("request", d.Digest)
	put("reason", string(d.Reason))
	if d.Asked {
		body["asked"] = true
	}
	ctx := context.Background()
	if d.Verdict == task.VerdictAllow && d.Proto != egress.ProtoDNS {
		if err := c.full(); err != nil {
			return err
		}
		_, err := c.l.log.Append(ctx, evidence.EgressDecided, insider, body)
		return err
	}
	c.mu.Lock()
	if c.measuring {
		c.seen++
		c.mu.Unlock()
		return nil
	}
	due := c.fold(d, body)
	c.mu.Unlock()
	if d.Verdict == task.VerdictDeny && d.Proto != egress.ProtoDNS { // a question for a name is no connection, and comes in pairs
		c.l.refused.Add(1)
	}
	if c.full() != nil {
		return nil // it was not let out
	}
	for _, b := range due {
		if _, err := c.l.log.AppendBulk(ctx, evidence.EgressDecided, insider, b); err != nil {
			return err
		}
	}
	return nil
}

// fold returns what is to be put down of a refusal now. Called with mu held.
func (c *crossings) fold(d egress.Decision, body map[string]any) (due []map[string]any) {
	now := time.Now()
	if now.Sub(c.minute) > foldTime {
		due = c.sweep(now)
		c.minute, c.told = now, 0
	}
	key := strings.Join([]string{string(d.Proto), d.Dest.String(), string(d.Reason), string(d.Verdict), d.Digest, d.Method, d.Path}, "\x00")
	if d.Dest.Host.IsZero() {
		key += "\x00" + d.Said
	}
	if f := c.folded[key]; f != nil {
		f.again++
		return due
	}
	if c.told >= maxTold {
		key = "" // of too many kinds to tell them apart
		body = map[string]any{"proto": "any", "verdict": string(task.VerdictDeny), "rule": "further refusals of other kinds than those above"}
		if f := c.folded[key]; f != nil {
			f.again++
			return due
		}
	}
	c.told++
	if c.folded == nil {
		c.folded = map[string]*folded{}
	}
	c.folded[key] = &folded{body: body, since: now}
	return append(due, body)
}

// sweep returns the counts of what came again, and begins anew. Called with mu
// held.
func (c *crossings) sweep(now time.Time) (due []map[string]any) {
	for _, f := range c.folded {
		if f.again == 0 {
			continue
		}
		b := map[string]any{}
		for k, v := range f.body {
			b[k] = v
		}
		b["again"], b["within_s"] = f.again, max(1, int(now.Sub(f.since).Seconds()))
		due = append(due, b)
	}
	c.folded = nil
	return due
}

// end puts down what was only counted so far.
func (c *crossings) end() {
	c.mu.Lock()
	due := c.sweep(time.Now())
	c.mu.Unlock()
	for _, b := range due {
		if _, err := c.l.log.AppendBulk(context.Background(), evidence.EgressDecided, insider, b); err != nil {
			c.m.cfg.Log("task " + string(c.l.id) + ": refusals of its way out are not on record: " + err.Error())
			return
		}
	}
}

// Ended implements egress.Recorder.
func (c *crossings) Ended(o egress.Outcome) {
	body := map[string]any{"crossing": o.ID, "up": o.Up, "down": o.Down, "ms": o.Duration.Milliseconds()}
	c.of(body)
	if o.Addr.IsValid() {
		body["address"] = o.Addr.String()
	}
	if o.Reason == egress.ReasonAddress {
		c.l.refused.Add(1)
	}
	if o.Reason != "" {
		body["reason"], body["text"] = string(o.Reason), short(o.Text, 1000)
	}
	if _, err := c.l.log.AppendBulk(context.Background(), evidence.EgressEnded, self, body); err != nil {
		c.m.cfg.Log("task " + string(c.l.id) + ": the end of a connection is not on record: " + err.Error())
	}
}

// insider is who asks for something outside: a program of the task, and nobody
// knows which.
var insider = evidence.Actor{Kind: "task", ID: "inside"}
