package boundary

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Published ports have names as well, http://PORT.TASK.localhost:N, with one N
// for all tasks of a user. There is no daemon: whichever process offers ports and
// finds N free answers there for all of them, and when it ends another does.

// frontPort is N: below the ports of publications, and another for another user.
func frontPort() int { return firstPublished - 1000 + os.Getuid()%1000 }

// frontRetry is how often a process looks whether N became free.
const frontRetry = 3 * time.Second

// nameFront is this process's part of that. The zero value is ready.
type nameFront struct {
	mu     sync.Mutex
	users  int
	cancel context.CancelFunc
	done   chan struct{}
}

// use begins to answer, or to wait for its turn, with the first port.
func (f *nameFront) use(m *Manager) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users++; f.users > 1 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.done = cancel, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		m.answerNames(ctx)
	}(f.done)
}

// leave ends that with the last one.
func (f *nameFront) leave() {
	f.mu.Lock()
	f.users--
	cancel, done := f.cancel, f.done
	last := f.users == 0
	f.mu.Unlock()
	if last {
		cancel()
		<-done
	}
}

func (m *Manager) answerNames(ctx context.Context) {
	for {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(frontPort())))
		if err == nil {
			n := &egress.Named{Listener: l, Peer: m.mayConnect, Find: m.portOf}
			if err := n.Serve(ctx); err != nil {
				m.cfg.Log("names of published ports: " + err.Error())
			}
			_ = l.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(frontRetry):
		}
	}
}

// frontStands says whether a process of this user answers at N: who got it first
// may be somebody else, whose answers nobody is to be sent to.
func (m *Manager) frontStands() bool {
	return oursListens(frontPort())
}

// oursListens says whether a process of this user waits at a port of 127.0.0.1.
func oursListens(port int) bool {
	all, err := sys.TCPSockets("self")
	if err != nil {
		return false
	}
	want := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
	for _, s := range all {
		if s.State == sys.TCPListen && s.Local == want {
			return s.UID == os.Getuid()
		}
	}
	return false
}

// portOf finds a port of a ready task by the task's name or id. Of a task whose
// supervisor was killed the view is left over: its port may be another's by now.
func (m *Manager) portOf(ctx context.Context, name, port string) int {
	inside, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	list, err := m.cfg.DB.List(ctx, false)
	if err != nil {
		return 0
	}
	for _, t := range list {
		if t.View.State != task.Ready || !strings.EqualFold(t.View.Name, name) && string(t.ID()) != name {
			continue
		}
		if t.Supervisor == nil || sys.Look(identOf(t.Supervisor.Process)) != sys.Living {
			continue
		}
		for _, p := range t.View.Ports {
			if p.Inside == inside && oursListens(p.Host) {
				return p.Host
			}
		}
	}
	return 0
}

// label is what the task is called in names of its ports.
func (l *live) label() string {
	if l.name != "" {
		return l.name
	}
	return string(l.id)
}

// owns says whether a name and port of this machine lead to the task.
func (l *live) owns(host string, port uint16) bool {
	for _, p := range l.published() {
		if p.Host == int(port) {
			return true
		}
	}
	name, _, ok := egress.NamedHost(net.JoinHostPort(host, strconv.Itoa(int(port))), port)
	return ok && int(port) == frontPort() && (strings.EqualFold(name, l.name) && l.name != "" || name == string(l.id))
}
