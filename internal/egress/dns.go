package egress

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-dev/caisson/internal/task"
)

// maxQuestion is the most bytes of one question, with what EDNS adds.
const maxQuestion = 1232

// nameFor is how long a program may keep the address of a name.
const nameFor = 300 // seconds

// ServeDNS answers programs that look names up themselves. Nothing is asked
// outside: a name that may be reached has an address that stands for it here and
// is no real one, so a question carries nothing out, two names never share an
// address, and the connection is decided about by its name. Every other name
// does not exist. It closes pc, and returns when pc or the gate is closed.
func (g *Gate) ServeDNS(pc net.PacketConn) error {
	defer pc.Close()
	stop := context.AfterFunc(g.ctx, func() { pc.Close() })
	defer stop()
	next := questions(pc)
	buf := make([]byte, maxQuestion)
	for {
		n, reply, err := next(buf)
		if err != nil {
			if g.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				continue
			}
			return err
		}
		if g.limiter.pace(g.ctx) != nil {
			continue
		}
		if b := g.answerName(buf[:n]); b != nil {
			reply(b)
		}
	}
}

// asked reads one question; reply sends its answer. A client that is gone needs
// none, so an error of reply is nobody's.
type asked func(b []byte) (n int, reply func([]byte), err error)

func plainQuestions(pc net.PacketConn) asked {
	return func(b []byte) (int, func([]byte), error) {
		n, from, err := pc.ReadFrom(b)
		return n, func(out []byte) { _, _ = pc.WriteTo(out, from) }, err
	}
}

// answerName answers one question; nil is no answer.
func (g *Gate) answerName(b []byte) []byte {
	var p dnsmessage.Parser
	in, err := p.Start(b)
	if err != nil || in.Response {
		return nil
	}
	out := dnsmessage.Header{ID: in.ID, Response: true, OpCode: in.OpCode, RecursionDesired: in.RecursionDesired, RecursionAvailable: true}
	q, err := p.Question()
	if err != nil || in.Truncated {
		out.RCode = dnsmessage.RCodeFormatError
		return built(out, nil, nil)
	}
	if _, more := p.Question(); !errors.Is(more, dnsmessage.ErrSectionDone) {
		out.RCode = dnsmessage.RCodeFormatError
		return built(out, nil, nil)
	}
	if in.OpCode != 0 || q.Class != dnsmessage.ClassINET {
		out.RCode = dnsmessage.RCodeNotImplemented
		return built(out, &q, nil)
	}
	d := Decision{Time: time.Now(), Proto: ProtoDNS, Method: q.Type.String(), Verdict: task.VerdictDeny}
	h, err := ParseName(q.Name.String())
	if err != nil {
		d.Said, d.Rule, d.Reason = quoted(q.Name.String()), err.Error(), ReasonForm
	} else {
		d.Dest.Host = h
		// What a person is asked about is the connection, which needs an address.
		a := g.Judge(Point{Proto: ProtoDNS, Host: h.Name()})
		if d.Rule = a.Rule; a.Verdict == task.VerdictAllow || a.Verdict == task.VerdictAsk {
			d.Verdict = a.Verdict
		} else {
			d.Reason = ReasonRule
		}
	}
	if d.Reason == "" && g.names.has(h.Name()) {
		return g.address(out, q, h) // recorded when it got its address
	}
	d.ID = g.IDs.Add(1)
	if err := g.Recorder.Decided(d); err != nil {
		out.RCode = dnsmessage.RCodeServerFailure
		return built(out, &q, nil)
	}
	if d.Reason != "" {
		out.RCode = dnsmessage.RCodeNameError
		return built(out, &q, nil)
	}
	return g.address(out, q, h)
}

// address answers for a name that may be reached. It has no address of IPv6 and
// no other record, keys for a hidden server name among them.
func (g *Gate) address(out dnsmessage.Header, q dnsmessage.Question, h Host) []byte {
	a, ok := g.names.addrOf(h.Name())
	if !ok {
		out.RCode = dnsmessage.RCodeServerFailure
		return built(out, &q, nil)
	}
	if q.Type != dnsmessage.TypeA {
		return built(out, &q, nil)
	}
	return built(out, &q, &dnsmessage.AResource{A: a.As4()})
}

func built(h dnsmessage.Header, q *dnsmessage.Question, a *dnsmessage.AResource) []byte {
	m := dnsmessage.Message{Header: h}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
	}
	if a != nil {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: nameFor}, Body: a}}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}
