package boundary

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// wished are the destinations of a request_access, each as --allow takes it.
func wished(a *contract.RequestAccessArgs) ([]string, error) {
	port := a.Port
	if port == 0 {
		port = 443
	}
	host := strings.TrimSuffix(a.Host, ".")
	if strings.ContainsAny(host, "*/@ \t\r\n?#%") || host == "" {
		return nil, contract.Fail(contract.BadArgs, "host is one name or one address")
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		host = ip.String()
	}
	at := net.JoinHostPort(host, strconv.Itoa(port))
	if len(a.Methods) == 0 && a.Path == "" {
		return []string{at}, nil
	}
	scheme, path := "http://", a.Path
	if port == 443 || port == 8443 {
		scheme = "https://"
	}
	if path == "" {
		path = "/"
	}
	if !strings.HasPrefix(path, "/") {
		return nil, contract.Fail(contract.BadArgs, "path begins with /")
	}
	if len(a.Methods) == 0 {
		return []string{scheme + at + path}, nil
	}
	var out []string
	for _, m := range a.Methods {
		out = append(out, strings.ToUpper(m)+" "+scheme+at+path)
	}
	return out, nil
}

// access finds out what a request_access is about, and refuses what no answer
// could make possible before anybody is asked.
func (l *live) access(k *toolCall, a *contract.RequestAccessArgs) error {
	list, err := wished(a)
	if err != nil {
		return badCall(k.tool, err)
	}
	for _, s := range list {
		e, err := addition(s)
		if err != nil {
			return badCall(k.tool, contract.Fail(contract.BadArgs, "%s", err.Error()))
		}
		if e.CIDR.IsValid() && !e.CIDR.IsSingleIP() {
			return badCall(k.tool, contract.Fail(contract.BadArgs, "host is one name or one address"))
		}
	}
	k.wants = list
	return nil
}

// fetchable refuses an address that the gate would not read, before rules about
// calls are asked: they and the gate must speak of the same place.
func fetchable(k *toolCall, a *contract.FetchArgs) error {
	if _, _, err := egress.ParseWeb(a.URL); err != nil {
		return badCall(k.tool, contract.Fail(contract.BadArgs, "url: %s", approval.Visible(short(err.Error(), 500))))
	}
	return nil
}

// endpoint is the destination that a call names, for rules about calls; nil: none.
func (k *toolCall) endpoint() *policy.EgressPoint {
	switch a := k.args.(type) {
	case *contract.FetchArgs:
		u, _, err := egress.ParseWeb(a.URL)
		if err != nil {
			return nil // it was refused: see fetchable
		}
		path, _, _ := strings.Cut(u.Path, "?")
		p := &policy.EgressPoint{Host: u.Dest.Host.Name(), Addr: u.Dest.Host.Addr(), Port: u.Dest.Port, Method: "GET", Path: path}
		if a.Method != "" {
			p.Method = a.Method
		}
		return p
	case *contract.RequestAccessArgs:
		p := &policy.EgressPoint{Host: strings.ToLower(strings.TrimSuffix(a.Host, ".")), Port: uint16(a.Port)}
		if a.Port == 0 {
			p.Port = 443
		}
		return addressed(p)
	}
	return nil
}

// addressed puts an address where one stands in the place of a name.
func addressed(p *policy.EgressPoint) *policy.EgressPoint {
	if a, err := netip.ParseAddr(strings.Trim(p.Host, "[]")); err == nil {
		p.Host, p.Addr = "", a
	}
	return p
}

// mayAsk says whether a model's request for destinations is for a person to
// answer: not where they may be reached already, and not where the policy does
// not let a model ask.
func (m *Manager) mayAsk(ctx context.Context, l *live, k *toolCall) (needless bool, err error) {
	needless = true
	for _, s := range k.wants {
		e, err := addition(s)
		if err != nil {
			return false, err
		}
		if _, err := m.mayWiden(ctx, l, "model", e); err != nil {
			return false, err
		}
		needless = needless && l.reaches(e)
	}
	return needless, nil
}

// reaches says whether the rules of this moment let all of e out.
func (l *live) reaches(e policy.Egress) bool { return lets(l.leaving.Load(), e) }

// lets says whether rules let all of e out.
func lets(r *policy.Rules, e policy.Egress) bool {
	if r == nil {
		return false
	}
	for _, g := range r.Granted {
		if e.In(g.Egress) {
			for _, d := range r.Denied {
				if d.Egress != nil && e.In(d.Egress) {
					return false
				}
			}
			return true
		}
	}
	return false
}

// permitAccess is permit for request_access: whatever the rules about calls say,
// a person answers, for this one destination and once.
func (m *Manager) permitAccess(ctx context.Context, l *live, k *toolCall, res *task.ToolResult) error {
	needless, err := m.mayAsk(ctx, l, k)
	if err != nil {
		return m.refuseErr(ctx, l, k, res, err)
	}
	if needless {
		return nil
	}
	if l.unattended {
		res.Verdict, res.Rule = task.VerdictDeny, "a person is to agree, and nobody attends this task"
		return m.refuse(ctx, l, k, res, task.Errorf(task.CodeDenied, "tool", "%s: %s", k.tool, res.Rule).WithHint("go on without it, and say in the result what could not be reached"))
	}
	res.Verdict, res.Rule = task.VerdictAsk, "a model asks for more than the task may reach"
	leave, err := l.outward.enter(time.Now())
	if err == nil {
		defer leave()
		err = l.outward.refused(k.wants, time.Now())
	}
	if err != nil {
		return m.refuseErr(ctx, l, k, res, err)
	}
	err = m.ask(ctx, l, k, res, nil)
	if task.CodeOf(err) == task.CodeDenied {
		l.outward.deny(k.wants, time.Now())
	}
	return err
}

// shownAccess is what a person is shown of a request.
func shownAccess(k *toolCall) string {
	a, ok := k.args.(*contract.RequestAccessArgs)
	if !ok {
		return ""
	}
	var b strings.Builder
	for _, s := range k.wants {
		b.WriteString("let the task reach " + approval.Visible(s) + ", until it ends\n")
	}
	b.WriteString("the model says why: " + approval.Cut(a.Reason, contract.MaxReason, ""))
	return b.String()
}

// widenTool carries out a request that a person agreed to.
func (m *Manager) widenTool(ctx context.Context, l *live, k *toolCall, res *task.ToolResult) (*contract.RequestAccessResult, error) {
	out := &contract.RequestAccessResult{Allowed: k.wants}
	if res.Approval == "" {
		out.Already = true
		return out, nil
	}
	reason := ""
	if a, ok := k.args.(*contract.RequestAccessArgs); ok {
		reason = approval.Visible(short(a.Reason, contract.MaxReason))
	}
	for _, s := range k.wants {
		notes, err := m.widen(ctx, l, "model", task.Widened{To: s, By: m.actor().ID, Question: res.Approval, Reason: reason, At: time.Now().UTC()})
		if err != nil {
			return nil, err
		}
		out.Note = strings.Join(notes, "; ")
	}
	return out, nil
}

// ungranted is in what the rules say of a destination that a person could add.
const ungranted = "nothing grants it"

// fetchTool gets what is at a URL, by the task's own way out.
func (m *Manager) fetchTool(ctx context.Context, l *live, a *contract.FetchArgs) (*contract.FetchResult, error) {
	p := l.passage()
	if p == nil {
		return nil, contract.Fail(contract.Permission, "the task has no way out: a person opens one with `caisson open --net allowlist`")
	}
	method, most := a.Method, a.MaxBytes
	if method == "" {
		method = "GET"
	}
	if most == 0 {
		most = contract.MaxInline
	}
	wait := l.asking.Wait
	if wait <= 0 {
		wait = askTime
	}
	ctx, done := context.WithTimeoutCause(ctx, wait+egress.FetchTime, task.Errorf(task.CodeLimit, "fetch", "it took too long"))
	defer done()
	ctx, stop := l.while(ctx)
	defer stop()
	f, err := p.gate.Fetch(ctx, method, a.URL, most)
	if err != nil {
		code := contract.Permission
		switch egress.ReasonOf(err) {
		case egress.ReasonForm:
			code = contract.BadArgs
		case egress.ReasonResolve, egress.ReasonDial, egress.ReasonTLS, egress.ReasonBroken, egress.ReasonProtocol:
			code = contract.NotFound
		case egress.ReasonLimit, egress.ReasonTimeout:
			code = contract.Limit
		case egress.ReasonClosed:
			code = contract.Canceled
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			code = contract.Canceled
		}
		text := egress.ForTask(err)
		if egress.ReasonOf(err) == egress.ReasonRule && strings.Contains(text, ungranted) {
			text = short(text, 900) + "; request_access asks a person for it"
		}
		return nil, contract.Fail(code, "%s", approval.Visible(short(text, 1000)))
	}
	res := &contract.FetchResult{URL: approval.Visible(short(f.URL, contract.MaxURL)), Status: f.Status, ContentType: approval.Visible(short(f.Header.Get("Content-Type"), 200)), Size: int64(len(f.Body)), Truncated: f.Truncated}
	if text, ok := asText(f.Header.Get("Content-Type"), f.Header.Get("Content-Encoding"), f.Body, f.Truncated); ok {
		res.Text = text
	} else if len(f.Body) > 0 {
		res.Binary = true
	}
	return res, nil
}

// asText is a body as UTF-8, where it is text.
func asText(kind, packed string, b []byte, cut bool) (string, bool) {
	if packed != "" && !strings.EqualFold(packed, "identity") || bytes.IndexByte(b, 0) >= 0 {
		return "", false
	}
	if cut { // in the middle of a letter
		for n := 0; n < utf8.UTFMax && len(b) > 0 && !utf8.Valid(b[max(0, len(b)-utf8.UTFMax):]); n++ {
			b = b[:len(b)-1]
		}
	}
	if utf8.Valid(b) {
		return string(b), true
	}
	if typ, _, err := mime.ParseMediaType(kind); err == nil && strings.HasPrefix(typ, "text/") {
		return strings.ToValidUTF8(string(b), "\ufffd"), true
	}
	return "", false
}
