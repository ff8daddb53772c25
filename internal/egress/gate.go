package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Proto is the way in which something outside was asked for.
type Proto string

// The ways.
const (
	ProtoConnect Proto = "connect" // a tunnel through the HTTP proxy
	ProtoHTTP    Proto = "http"    // one request of plain HTTP
	ProtoHTTPS   Proto = "https"   // one request inside TLS that the gate ends
	ProtoSOCKS   Proto = "socks5"
	ProtoDirect  Proto = "direct" // by a program that knows no proxy
	ProtoDNS     Proto = "dns"    // the question for a name
)

// Point is what the policy is asked about: a connection or a request.
type Point struct {
	Proto  Proto
	Host   string     // the name; empty where an address was asked for
	Addr   netip.Addr // invalid as long as the name is not resolved
	Port   uint16     // 0: whether any port of it may be reached
	Method string     // empty, as Path, where nobody can read it
	Path   string     // without the query
	Act    Act        // of a request that is read
	// Held is the request as a whole, for the question about it; nil of a
	// connection, and for the Judge.
	Held *Held
}

// Answer is what the policy says of a Point. The zero Answer denies.
type Answer struct {
	Verdict task.Verdict
	Rule    string // in words, for the record
	// Range is the narrowest range of addresses in a rule that allows the point,
	// invalid where none of them names addresses.
	Range netip.Prefix
}

// Judge asks the policy, where deny counts before ask and ask before allow. It
// is asked about the name alone before anything is resolved, so it must then
// leave ranges in rules that allow aside; and once more with each address.
type Judge func(Point) Answer

// Asker puts a question that the policy leaves to a person. It returns only once
// it is answered or ctx ends; an error is a no, whose words the task is told.
type Asker func(ctx context.Context, p Point, rule string) (bool, error)

// Resolver finds addresses; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config is what a Gate is made of. Judge and Recorder are needed.
type Config struct {
	Judge    Judge
	Recorder Recorder
	Ask      Asker // nil: every question is answered with no
	Resolver Resolver
	// Dial connects to exactly this address; nil is a net.Dialer.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	Own  func() []netip.Addr // the addresses of this machine; nil reads its interfaces
	// Spool makes a file without a name for a request that waits for an answer; nil:
	// only short ones can.
	Spool func() (*os.File, error)
	// Registry says whether a host takes packages to offer them to others; nil: none.
	Registry func(host string) bool
	Limits   Limits
	IDs      *atomic.Uint64 // of decisions so far, for several gates of one task; nil: none
	Timeouts Timeouts
	Lender   Lender // nil: nothing is lent
	// Reads says of which destinations each request must be seen, since rules about
	// them name methods or paths; nil: of none.
	Reads func(Dest) bool
	// CA vouches inside for the servers whose TLS is ended here; nil: of nobody's.
	CA *CA
	// Roots are whom their certificates are held against; nil: this machine's.
	Roots *x509.CertPool
}

// Timeouts bound what may wait for ever. A zero takes the default.
type Timeouts struct {
	Resolve time.Duration // 10 s
	Dial    time.Duration // 15 s, for all addresses of one name
	Head    time.Duration // 30 s: for a request, a greeting, a handshake
	Idle    time.Duration // 30 min: without a byte in either direction
}

// Gate is the way out of one task. Safe for concurrent use.
type Gate struct {
	Config
	limiter *limiter
	streams chan struct{} // holds one for each request of HTTP/2 under way
	held    heldBytes
	names   names
	tls     outTLS
	ctx     context.Context
	stop    context.CancelCauseFunc
	open    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ownAt  time.Time
	own    []netip.Addr
}

var errClosed = errors.New("the way out is closed")

// New makes a Gate. Close ends it.
func New(c Config) (*Gate, error) {
	if c.Judge == nil || c.Recorder == nil {
		return nil, task.Errorf(task.CodeInternal, "egress.new", "a gate takes a judge and a recorder")
	}
	if c.Resolver == nil {
		c.Resolver = &net.Resolver{PreferGo: true}
	}
	if c.Dial == nil {
		var d net.Dialer
		c.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", to.String())
		}
	}
	if c.Own == nil {
		c.Own = interfaces
	}
	t := &c.Timeouts
	for _, v := range []struct {
		p *time.Duration
		d time.Duration
	}{{&t.Resolve, 10 * time.Second}, {&t.Dial, 15 * time.Second}, {&t.Head, 30 * time.Second}, {&t.Idle, 30 * time.Minute}} {
		if *v.p <= 0 {
			*v.p = v.d
		}
	}
	if c.IDs == nil {
		c.IDs = new(atomic.Uint64)
	}
	g := &Gate{Config: c, limiter: newLimiter(c.Limits)}
	g.streams = make(chan struct{}, g.limiter.Conns)
	g.ctx, g.stop = context.WithCancelCause(context.Background())
	return g, nil
}

// Close ends all connections, and returns once all of them are recorded.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.stop(errClosed)
	g.open.Wait()
}

// enter counts something that Close waits for; it fails once that began.
func (g *Gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.open.Add(1)
	}
	return !g.closed
}

// Request is one thing that was asked for.
type Request struct {
	Proto  Proto
	Dest   Dest
	Method string // both empty where nobody can read them
	Path   string
	act    Act
	hold   *holding // nil: it cannot be held
	spare  *spare   // a connection that it may take; nil: none
}

// Open decides, resolves, checks and dials. Nothing leaves this machine for a
// destination that is not allowed, not even the question for its address. The
// error is a *Refusal. The caller closes what it gets.
func (g *Gate) Open(ctx context.Context, r Request) (_ *Conn, err error) {
	began := time.Now()
	ctx, cancel := g.bound(ctx)
	defer cancel()
	if !g.enter() {
		return nil, refuse(ReasonClosed, "%v", errClosed)
	}
	defer func() {
		if err != nil {
			g.open.Done()
		}
	}()
	if err := g.limiter.admit(ctx); err != nil {
		return nil, g.exhausted(r, err)
	}
	d, err := g.decide(ctx, r)
	if err != nil {
		g.limiter.leave()
		return nil, err
	}
	c := &Conn{gate: g, id: d.ID, began: began}
	if r.hold != nil && r.hold.looks != nil {
		r.act = r.hold.looks.Act
	}
	if !g.takes(c, r, d.Asked) {
		var to []netip.AddrPort
		if to, err = g.resolve(ctx, r, d.Asked); err == nil {
			err = c.dial(ctx, to)
		}
	}
	if err != nil {
		g.limiter.leave()
		g.Recorder.Ended(Outcome{ID: d.ID, Addr: c.Addr, Reason: ReasonOf(err), Text: err.Error(), Duration: time.Since(began)})
		return nil, err
	}
	return c, nil
}

// exhausted records a refusal for want of connections, rate or bytes.
func (g *Gate) exhausted(r Request, err error) error {
	if ReasonOf(err) != ReasonLimit {
		return err
	}
	d := Decision{ID: g.IDs.Add(1), Time: time.Now(), Proto: r.Proto, Dest: r.Dest, Method: r.Method, Path: r.Path, Verdict: task.VerdictDeny, Rule: err.Error(), Reason: ReasonLimit}
	if rerr := g.Recorder.Decided(d); rerr != nil {
		return refuseRecord(rerr)
	}
	return err
}

// bound ends ctx with the gate.
func (g *Gate) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.ctx, func() { cancel(errClosed) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// decide holds what was asked for against the policy, and records the answer
// before anything else happens.
func (g *Gate) decide(ctx context.Context, r Request) (Decision, error) {
	d := Decision{ID: g.IDs.Add(1), Time: time.Now(), Proto: r.Proto, Dest: r.Dest, Method: r.Method, Path: r.Path, Act: r.act, Verdict: task.VerdictDeny}
	refuse := func(reason Reason, format string, args ...any) (Decision, error) {
		d.Reason = reason
		err := refuse(reason, format, args...)
		if rerr := g.Recorder.Decided(d); rerr != nil {
			return d, refuseRecord(rerr)
		}
		return d, err
	}
	if r.Dest.Host.IsZero() || r.Dest.Port == 0 {
		return refuse(ReasonForm, "no destination")
	}
	p := r.point(r.Dest.Host.Addr())
	a := g.Judge(p)
	d.Rule = a.Rule
	switch a.Verdict {
	case task.VerdictAllow:
	case task.VerdictAsk:
		var err error
		if a, err = g.ask(ctx, &r, &d, p, a); err != nil {
			d.Reason = ReasonOf(err)
			d.Rule = a.Rule + "; " + err.Error()
			if rerr := g.Recorder.Decided(d); rerr != nil {
				return d, refuseRecord(rerr)
			}
			return d, err
		}
	default:
		return refuse(ReasonRule, "%s: %s", r.Dest, a.Rule)
	}
	if addr := p.Addr; addr.IsValid() {
		if class := g.class(addr); class != ClassPublic && !grants(a.Range, addr, class) {
			d.Rule += fmt.Sprintf("; but it is %s, which only a rule about that address grants", class) + meant(class, netip.AddrPortFrom(addr, r.Dest.Port), "")
			return refuse(ReasonAddress, "%s is %s, which only a rule about that address grants", r.Dest, class)
		}
	}
	d.Verdict = task.VerdictAllow
	if err := g.Recorder.Decided(d); err != nil {
		return d, refuseRecord(err)
	}
	return d, nil
}

func (r *Request) point(a netip.Addr) Point {
	return Point{Proto: r.Proto, Host: r.Dest.Host.Name(), Addr: a, Port: r.Dest.Port, Method: r.Method, Path: r.Path, Act: r.act}
}

// maxAddrs is the most addresses of one name that are looked at.
const maxAddrs = 64

// resolve finds where an allowed destination is. One address that may not be
// reached refuses all of them: who answers with such a set tries which is taken.
func (g *Gate) resolve(ctx context.Context, r Request, asked bool) ([]netip.AddrPort, error) {
	if a := r.Dest.Host.Addr(); a.IsValid() {
		return []netip.AddrPort{netip.AddrPortFrom(a, r.Dest.Port)}, nil
	}
	// Names of the loopback interface are nobody's to answer: a name server that is
	// asked for one learns of it, and may lie.
	if n := r.Dest.Host.Name(); n == "localhost" || strings.HasSuffix(n, ".localhost") {
		return nil, refuse(ReasonAddress, "%s is the loopback interface, which only a rule about its address grants", r.Dest.Host)
	}
	ctx, cancel := context.WithTimeout(ctx, g.Timeouts.Resolve)
	defer cancel()
	// The final dot keeps the search list of this machine out of it.
	addrs, err := g.Resolver.LookupNetIP(ctx, "ip", r.Dest.Host.Name()+".")
	if err != nil || len(addrs) == 0 {
		return nil, refuse(ReasonResolve, "%s has no address that this machine can find", r.Dest.Host)
	}
	if len(addrs) > maxAddrs {
		return nil, refuse(ReasonResolve, "%s has %d addresses", r.Dest.Host, len(addrs))
	}
	var out []netip.AddrPort
	for _, a := range addrs {
		a = a.Unmap()
		if err := g.permit(r, a, asked); err != nil {
			return nil, err
		}
		if ap := netip.AddrPortFrom(a, r.Dest.Port); !slices.Contains(out, ap) {
			out = append(out, ap)
		}
	}
	return out, nil
}

// takes gives c the connection that was made for what r is a part of, where r may go
// to its address. While a person thought the server may have left it.
func (g *Gate) takes(c *Conn, r Request, asked bool) bool {
	s := r.spare
	if s == nil || s.conn == nil || asked || g.permit(r, s.addr.Addr(), false) != nil {
		return false
	}
	c.Conn, c.Addr = s.conn, s.addr
	s.conn = nil
	return true
}

// permit judges one address of an allowed destination.
func (g *Gate) permit(r Request, a netip.Addr, asked bool) error {
	if r.Dest.Host.Addr().IsValid() {
		return nil // it was judged as what was asked for
	}
	ans := g.Judge(r.point(a))
	switch class := g.class(a); {
	case a.Zone() != "":
		return refuse(ReasonAddress, "%s has the address %s, which names an interface", r.Dest.Host, a).toTask("%s has an address that may not be reached", r.Dest.Host)
	case class != ClassPublic && !grants(ans.Range, a, class):
		return refuse(ReasonAddress, "%s has the address %s: %s, which only a rule about that address grants%s", r.Dest.Host, a, class, meant(class, netip.AddrPortFrom(a, r.Dest.Port), " beside the name")).
			toTask("%s has an address that only a rule about that address grants; the record of the task says which", r.Dest.Host)
	case ans.Verdict == task.VerdictAsk && !asked:
		return refuse(ReasonAsk, "%s has the address %s, about which a person is to be asked, and was not by this name: %s", r.Dest.Host, a, ans.Rule).
			toTask("%s has an address about which a person is to be asked", r.Dest.Host)
	case ans.Verdict != task.VerdictAllow && ans.Verdict != task.VerdictAsk:
		return refuse(ReasonRule, "%s has the address %s: %s", r.Dest.Host, a, ans.Rule).toTask("%s has an address that a rule denies", r.Dest.Host)
	}
	return nil
}

// meant is the next step of a person who wants a special address reached; nothing
// where nobody has a service of their own. Never for the task, which would learn
// where a name leads.
func meant(class Class, to netip.AddrPort, beside string) string {
	switch class {
	case ClassPrivate, ClassShared, ClassLoopback, ClassLinkLocal, ClassDocumentation, ClassOwn:
		return "; if it is meant: --allow " + to.String() + beside + ", or a rule of the policy about that address"
	}
	return ""
}

// class is ClassOf, and knows this machine's own public addresses.
func (g *Gate) class(a netip.Addr) Class {
	c := ClassOf(a)
	if c != ClassPublic {
		return c
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.ownAt) > ownFor {
		g.own, g.ownAt = g.Own(), time.Now()
	}
	if slices.Contains(g.own, a) {
		return ClassOwn
	}
	return c
}

// ownFor is how long the list of this machine's addresses counts.
const ownFor = 5 * time.Second

func interfaces() []netip.Addr {
	l, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range l {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}

// maxDials is the most addresses of one name that are tried.
const maxDials = 4

// dial connects to the first address that answers: one of those that were
// checked, and to no name.
func (c *Conn) dial(ctx context.Context, to []netip.AddrPort) error {
	g := c.gate
	ctx, cancel := context.WithTimeout(ctx, g.Timeouts.Dial)
	defer cancel()
	to = to[:min(len(to), maxDials)]
	var last error
	for i, a := range to {
		each, done := ctx, func() {}
		if t, ok := ctx.Deadline(); ok && i < len(to)-1 {
			each, done = context.WithTimeout(ctx, time.Until(t)/2)
		}
		conn, err := g.Dial(each, a)
		done()
		if err != nil {
			last = err
			continue
		}
		if have, ok := conn.RemoteAddr().(*net.TCPAddr); ok && netip.AddrPortFrom(have.AddrPort().Addr().Unmap(), have.AddrPort().Port()) != a {
			conn.Close()
			return refuse(ReasonAddress, "dialled %s and reached %s", a, have).toTask("it cannot be reached")
		}
		c.Conn, c.Addr = conn, a
		return nil
	}
	return refuse(ReasonDial, "%s cannot be reached: %v", to[0], last).toTask("it cannot be reached")
}

// Reason says why something was refused or how a connection ended. The set is
// closed.
type Reason string

// The reasons.
const (
	ReasonForm     Reason = "form"        // what was asked for cannot be read in one way only
	ReasonRule     Reason = "rule"        // a rule denies it, or none allows it
	ReasonAsk      Reason = "ask"         // a person did not agree
	ReasonAddress  Reason = "address"     // the address is special and not granted
	ReasonResolve  Reason = "resolve"     // the name has no address
	ReasonDial     Reason = "dial"        // nobody answers there
	ReasonName     Reason = "server-name" // the names in the stream are not the one that was allowed
	ReasonLimit    Reason = "limit"       // the task's connections, rate or bytes are used up
	ReasonRecord   Reason = "record"      // it could not be recorded
	ReasonClosed   Reason = "closed"      // the task ended
	ReasonTimeout  Reason = "timeout"     // it was silent for too long
	ReasonTLS      Reason = "tls"         // it did not come to TLS, on either side of the gate
	ReasonProtocol Reason = "protocol"    // asked for in a way that is not offered
	ReasonBroken   Reason = "broken"      // one of the ends broke off
)

// Refusal is the error of everything that is not let out.
type Refusal struct {
	Reason Reason
	err    error
	// inside is what the task is told instead: where a name leads on the host's
	// network is for the record alone.
	inside string
}

// Error is for a person.
func (r *Refusal) Error() string { return r.err.Error() }

// Unwrap is the error with its code.
func (r *Refusal) Unwrap() error { return r.err }

func refuse(why Reason, format string, args ...any) *Refusal {
	code := task.CodeDenied
	switch why {
	case ReasonResolve, ReasonDial, ReasonTLS:
		code = task.CodeUnavailable
	case ReasonLimit, ReasonTimeout:
		code = task.CodeLimit
	case ReasonRecord:
		code = task.CodeEvidence
	case ReasonClosed:
		code = task.CodeState
	}
	return &Refusal{Reason: why, err: task.Errorf(code, "egress", "%s", fmt.Sprintf(format, args...))}
}

// toTask sets what the task is told.
func (r *Refusal) toTask(format string, args ...any) *Refusal {
	r.inside = fmt.Sprintf(format, args...)
	return r
}

// forTask is what the task is told of err.
func forTask(err error) string {
	var r *Refusal
	if errors.As(err, &r) && r.inside != "" {
		return r.inside
	}
	return err.Error()
}

func refuseRecord(err error) *Refusal {
	return refuse(ReasonRecord, "it cannot be recorded, so it may not happen: %v", err).toTask("it cannot be recorded, so it may not happen")
}

// ReasonOf is the reason in err, ReasonBroken for any other error and "" for none.
func ReasonOf(err error) Reason {
	if err == nil {
		return ""
	}
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ReasonBroken
}
