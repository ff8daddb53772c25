package boundary

import (
	"context"
	"errors"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

const (
	portsSchema  = "caisson.ports/1"
	grantPublish = "publish" // PORT or HOST-PORT:PORT of --publish
	// maxInward is how many connections at a time lead into one task.
	maxInward = 32
	// maxPublished is the most ports of one task that are published.
	maxPublished = 32
	// Ports that nobody chose lie here: below those that the kernel gives to
	// clients, and the same one for a name as long as it is free.
	firstPublished, publishedRange = 20000, 10000
)

// offer is one port of a task that the host offers.
type offer struct {
	port   task.Port
	pub    *egress.Publication
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu   sync.Mutex
	told map[string]time.Time // refusals on record, by reason
}

func (o *offer) end() {
	o.cancel()
	o.ended.Wait()
}

// checkPublish reads what a request wants to be published.
func checkPublish(q *task.Request) error {
	if len(q.Publish) > maxPublished {
		return task.Errorf(task.CodeUsage, "plan", "--publish is given %d times, and a task has %d published ports at most", len(q.Publish), maxPublished)
	}
	for _, s := range q.Publish {
		if _, err := task.ParsePublish(s); err != nil {
			return task.Errorf(task.CodeUsage, "plan", "--publish %v", err).WithHint("for example --publish 3000, or --publish 8080:3000 for port 8080 of this machine; it is offered on 127.0.0.1 alone")
		}
	}
	return nil
}

// Ports implements door.Engine: it says where servers inside wait and which of
// them the host offers, after what o asks for.
func (m *Manager) Ports(ctx context.Context, ref string, o door.PortsOptions) (*task.PortsReport, error) {
	q := task.Request{Publish: o.Publish}
	if err := checkPublish(&q); err != nil {
		return nil, err
	}
	var out *task.PortsReport
	err := m.act(ctx, ref, doing{
		op: "ports",
		live: func(l *live, t inventory.Task) (err error) {
			out, err = m.ports(ctx, l, o)
			return err
		},
		remote: func(x Remote) (err error) { out, err = x.Ports(ctx, o); return err },
		ended: func(l *live, t inventory.Task) error {
			return task.Errorf(task.CodeState, "ports", "task %s is %s: nothing in it waits for connections", l.id, t.View.State).WithHint("`caisson resume %s` opens a kept task again", l.id)
		},
	})
	return out, err
}

func (m *Manager) ports(ctx context.Context, l *live, o door.PortsOptions) (*task.PortsReport, error) {
	for _, n := range o.Withdraw {
		if err := m.withdraw(ctx, l, n); err != nil {
			return nil, err
		}
	}
	for _, s := range o.Publish {
		p, err := task.ParsePublish(s)
		if err == nil {
			err = m.publishPort(ctx, l, p, true)
		}
		if err != nil {
			return nil, err
		}
	}
	rep := &task.PortsReport{Schema: portsSchema, Task: l.id, Ports: l.published()}
	in, ok := l.inward()
	if !ok {
		return rep, nil
	}
	at, err := in.Listening()
	if err != nil {
		return nil, err
	}
	for _, a := range at {
		i := slices.IndexFunc(rep.Ports, func(p task.Port) bool { return p.Inside == int(a.Port()) })
		if i < 0 {
			i = len(rep.Ports)
			rep.Ports = append(rep.Ports, task.Port{Inside: int(a.Port())})
		}
		rep.Ports[i].Listening = true
		rep.Ports[i].At = append(rep.Ports[i].At, a.Addr().String())
	}
	if m.frontStands() {
		for i := range rep.Ports {
			if p := &rep.Ports[i]; p.Host != 0 {
				p.URL = "http://" + strconv.Itoa(p.Inside) + "." + strings.ToLower(l.label()) + ".localhost:" + strconv.Itoa(frontPort())
			}
		}
	}
	slices.SortFunc(rep.Ports, func(a, b task.Port) int { return a.Inside - b.Inside })
	return rep, nil
}

func (l *live) inward() (backend.Inward, bool) {
	inst, _ := l.standing()
	in, ok := inst.(backend.Inward)
	return in, ok
}

// published lists what the host offers of the task.
func (l *live) published() []task.Port {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []task.Port{}
	for _, o := range l.offers {
		out = append(out, o.port)
	}
	return out
}

// publishPort offers a port. told: it goes on record, and into the task's view.
func (m *Manager) publishPort(ctx context.Context, l *live, p task.Port, told bool) error {
	const op = "ports"
	in, ok := l.inward()
	if !ok {
		return task.Errorf(task.CodeUnsupported, op, "the host has no way into a boundary of the backend %s", l.driver)
	}
	if w := l.spec.Way; w != nil && taken(w, uint16(p.Inside)) || p.Inside == 0 {
		return task.Errorf(task.CodeUsage, op, "port %d inside is the way out of the task, so no server of its own is there", p.Inside)
	}
	for _, have := range l.published() {
		if have.Inside == p.Inside && (p.Host == 0 || p.Host == have.Host) {
			return nil // it is
		}
		if have.Inside == p.Inside {
			return task.Errorf(task.CodeConflict, op, "port %d is published at %d already", p.Inside, have.Host).WithHint("`caisson ports --withdraw %d %s` first", p.Inside, l.id)
		}
	}
	if len(l.published()) >= maxPublished {
		return task.Errorf(task.CodeLimit, op, "a task has %d published ports at most", maxPublished)
	}
	listener, err := l.listenHost(p)
	if err != nil {
		return err
	}
	p.Host = listener.Addr().(*net.TCPAddr).Port
	o := &offer{port: p, told: map[string]time.Time{}}
	o.pub = &egress.Publication{
		Listener: listener,
		Dial:     func(ctx context.Context) (net.Conn, error) { return dialLoopback(ctx, in, uint16(p.Inside)) },
		Peer:     m.mayConnect,
		Ours:     l.owns,
		Refused:  func(why string) { m.portRefused(l, o, why) },
	}
	if told {
		// The record first.
		if _, err := l.log.Append(ctx, evidence.PortPublished, m.actor(), map[string]any{"inside": p.Inside, "host": p.Host, "address": "127.0.0.1"}); err != nil {
			_ = listener.Close()
			return err
		}
	}
	m.front.use(m)
	octx, cancel := context.WithCancel(context.WithoutCancel(l.ctx))
	o.cancel = cancel
	o.ended.Go(func() { _ = o.pub.Serve(octx) })
	l.mu.Lock()
	l.offers = append(l.offers, o)
	l.mu.Unlock()
	if !told {
		return nil
	}
	return m.viewPorts(ctx, l)
}

func (m *Manager) viewPorts(ctx context.Context, l *live) error {
	ps := l.published()
	return m.cfg.DB.Update(ctx, l.id, func(v *task.View) { v.Ports = ps })
}

// listenHost takes a port of the host: the one that was asked for, or one that
// belongs to the task's name and that port as long as it is free.
func (l *live) listenHost(p task.Port) (net.Listener, error) {
	if p.Host != 0 {
		n, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Host)))
		if err != nil {
			code := task.CodeUnavailable
			if errors.Is(err, syscall.EADDRINUSE) {
				code = task.CodeConflict
			}
			return nil, task.Errorf(code, "ports", "port %d of this machine cannot be had: %w", p.Host, err).WithHint("leave the number out: caisson finds one that is free")
		}
		return n, nil
	}
	name := l.label()
	h := fnv.New32a()
	_, _ = h.Write([]byte(name + ":" + strconv.Itoa(p.Inside)))
	var last error
	for i := range uint32(200) {
		port := firstPublished + int((h.Sum32()+i*7)%publishedRange)
		n, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return n, nil
		}
		last = err
	}
	return nil, task.Errorf(task.CodeUnavailable, "ports", "no port of this machine is free: %w", last)
}

// dialLoopback reaches a server that waits at either loopback address.
func dialLoopback(ctx context.Context, in backend.Inward, port uint16) (net.Conn, error) {
	c, err := in.DialInside(ctx, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port))
	if err != nil && task.CodeOf(err) == task.CodeUnavailable {
		if c6, err6 := in.DialInside(ctx, netip.AddrPortFrom(netip.IPv6Loopback(), port)); err6 == nil {
			return c6, nil
		}
	}
	return c, err
}

// mayConnect lets in whose task it is, and nobody else of this machine.
func (m *Manager) mayConnect(c net.Conn) error {
	uid, err := sys.PeerUID(c)
	if err != nil {
		return task.Errorf(task.CodeDenied, "ports", "whose connection it is cannot be told: %v", err)
	}
	if uid != os.Getuid() && uid != m.cfg.Identity.UID {
		return task.Errorf(task.CodeDenied, "ports", "user %d of this machine may not connect: the task is not theirs", uid)
	}
	return nil
}

// portRefused puts a refusal on record, the same one once a minute.
func (m *Manager) portRefused(l *live, o *offer, why string) {
	o.mu.Lock()
	now := time.Now()
	again := now.Sub(o.told[why]) < foldTime || len(o.told) >= 100
	if !again {
		o.told[why] = now
	}
	o.mu.Unlock()
	if again {
		return
	}
	if _, err := l.log.AppendBulk(context.Background(), evidence.PortRefused, self, map[string]any{"inside": o.port.Inside, "host": o.port.Host, "why": short(why, 500)}); err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
}

// withdraw ends the offer of a port inside.
func (m *Manager) withdraw(ctx context.Context, l *live, inside int) error {
	l.mu.Lock()
	i := slices.IndexFunc(l.offers, func(o *offer) bool { return o.port.Inside == inside })
	var o *offer
	if i >= 0 {
		o = l.offers[i]
		l.offers = slices.Delete(l.offers, i, i+1)
	}
	l.mu.Unlock()
	if o == nil {
		return task.Errorf(task.CodeNotFound, "ports", "port %d is not published", inside).WithHint("`caisson ports %s` lists what is", l.id)
	}
	o.end()
	m.front.leave()
	return errors.Join(m.withdrawn(ctx, l, o), m.viewPorts(ctx, l))
}

func (m *Manager) withdrawn(ctx context.Context, l *live, o *offer) error {
	conns, refused := o.pub.Used()
	_, err := l.log.AppendBulk(ctx, evidence.PortWithdrawn, self, map[string]any{"inside": o.port.Inside, "host": o.port.Host, "connections": conns, "refused": refused})
	return err
}

// closePorts ends all offers. told: that goes on record.
func (m *Manager) closePorts(l *live, told bool) {
	l.mu.Lock()
	all := l.offers
	l.offers = nil
	l.mu.Unlock()
	for _, o := range all {
		o.end()
		m.front.leave()
		if !told || l.log == nil {
			continue
		}
		if err := m.withdrawn(context.Background(), l, o); err != nil {
			m.cfg.Log("task " + string(l.id) + ": " + err.Error())
		}
	}
}

// publishAll offers what a task was opened with.
func (m *Manager) publishAll(ctx context.Context, l *live, list []string) error {
	for _, s := range list {
		p, err := task.ParsePublish(s)
		if err == nil {
			err = m.publishPort(ctx, l, p, true)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// republish offers again what was put aside. A port that somebody took meanwhile
// is replaced by another, unless a person chose it.
func (m *Manager) republish(ctx context.Context, l *live, list []task.Port) {
	for _, p := range list {
		err := m.publishPort(ctx, l, p, false)
		if err != nil {
			p.Host = 0
			if err = m.publishPort(ctx, l, p, true); err != nil {
				m.cfg.Log("task " + string(l.id) + ": " + err.Error())
			}
		}
	}
}
