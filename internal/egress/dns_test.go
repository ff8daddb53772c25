package egress

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-dev/caisson/internal/task"
)

func question(t testing.TB, name string, typ dnsmessage.Type) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name + ".")
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: n, Type: typ, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// askName is the address that a boundary gets for a name.
func askName(t testing.TB, g *Gate, name string) (netip.Addr, bool) {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(g.answerName(question(t, name, dnsmessage.TypeA))); err != nil {
		t.Fatal(err)
	}
	if len(m.Answers) != 1 {
		if m.RCode != dnsmessage.RCodeNameError {
			t.Errorf("%s: %v", name, m.RCode)
		}
		return netip.Addr{}, false
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A), true
}

func TestNames(t *testing.T) {
	w := open(t, Config{Judge: func(p Point) Answer {
		switch p.Host {
		case "a.test", "b.test":
			return Answer{Verdict: task.VerdictAllow}
		case "ask.test":
			return Answer{Verdict: task.VerdictAsk}
		}
		return Answer{}
	}})
	a, ok := askName(t, w.Gate, "a.test")
	if !ok || !synthetic.Contains(a) {
		t.Fatalf("%v %v", a, ok)
	}
	if again, _ := askName(t, w.Gate, "A.Test"); again != a {
		t.Errorf("%v, then %v", a, again)
	}
	if b, ok := askName(t, w.Gate, "b.test"); !ok || b == a {
		t.Errorf("two names at %v", b)
	}
	if _, ok := askName(t, w.Gate, "ask.test"); !ok {
		t.Error("a name that a person is asked about has no address")
	}
	for _, bad := range []string{"evil.test", "data.a.test", "localhost", "127.1", "wpad", "_x._tcp.a.test", "1.0.0.127.in-addr.arpa", "a-.test"} {
		if a, ok := askName(t, w.Gate, bad); ok {
			t.Errorf("%s is at %v", bad, a)
		}
	}
	for _, typ := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeTXT, dnsmessage.TypeMX, 65, 255} {
		var m dnsmessage.Message
		if err := m.Unpack(w.answerName(question(t, "a.test", typ))); err != nil || m.RCode != 0 || len(m.Answers) != 0 {
			t.Errorf("%v: %+v %v", typ, m, err)
		}
		if err := m.Unpack(w.answerName(question(t, "evil.test", typ))); err != nil || m.RCode != dnsmessage.RCodeNameError {
			t.Errorf("%v of another: %+v %v", typ, m, err)
		}
	}
	if q := w.zone.questions(); len(q) != 0 {
		t.Errorf("asked outside for %q", q)
	}
	d, _ := w.notes.all()
	if len(d) == 0 || d[0].Proto != ProtoDNS || d[0].Dest.Host.Name() != "a.test" || d[0].Verdict != task.VerdictAllow {
		t.Errorf("recorded as %+v", d)
	}
	d1, err := w.meant(Dest{Host{addr: a}, 443})
	if err != nil || d1.String() != "a.test:443" {
		t.Errorf("%v %v", d1, err)
	}
	if d1, err := w.meant(Dest{Host{addr: netip.MustParseAddr("198.19.1.1")}, 443}); err == nil {
		t.Errorf("nobody's address means %v", d1)
	}
}

func TestNamesRunOut(t *testing.T) {
	var n names
	for i := range maxNames {
		if a, ok := n.addrOf(fmt.Sprint("n", i)); !ok || !synthetic.Contains(a) || n.nameOf(a) != fmt.Sprint("n", i) {
			t.Fatalf("%d: %v %v", i, a, ok)
		}
	}
	if a, ok := n.addrOf("more"); ok {
		t.Errorf("%v is somebody's", a)
	}
	if a, ok := n.addrOf("n0"); !ok || a.String() != "198.18.0.1" {
		t.Errorf("the first is at %v", a)
	}
}

func FuzzQuestion(f *testing.F) {
	f.Add([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 4, 't', 'e', 's', 't', 0, 0, 1, 0, 1})
	f.Add([]byte{0, 7, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1, 0xc0, 12, 0, 1, 0, 1})
	g, err := New(Config{Judge: only("a.test"), Recorder: &notes{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out := g.answerName(b)
		if out == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(out); err != nil {
			t.Fatal(err)
		}
		if !m.Response || len(m.Answers) > 1 || len(m.Answers) == 1 && !strings.EqualFold(m.Questions[0].Name.String(), "a.test.") {
			t.Fatalf("%+v", m)
		}
	})
}

// moved is a listener whose connections were wanted at another address.
type moved struct {
	net.Listener
	at string
}

type movedConn struct {
	*net.TCPConn
	at *net.TCPAddr
}

func (c movedConn) LocalAddr() net.Addr { return c.at }

func (m moved) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return movedConn{c.(*net.TCPConn), net.TCPAddrFromAddrPort(netip.MustParseAddrPort(m.at))}, nil
}

// TestDirect takes programs that know no proxy where their address meant.
func TestDirect(t *testing.T) {
	port := web(t, nil)
	w := open(t, Config{Judge: only("good.test", "127.0.0.1")})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dns := make(chan error, 1)
	go func() { dns <- w.ServeDNS(pc) }()
	q, err := net.Dial("udp", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	q.SetDeadline(time.Now().Add(60 * time.Second))
	q.Write(question(t, "good.test", dnsmessage.TypeA))
	b := make([]byte, 512)
	n, err := q.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(b[:n]); err != nil || len(m.Answers) != 1 {
		t.Fatalf("%+v %v", m, err)
	}
	name := netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A).String()
	for at, want := range map[string]string{
		fmt.Sprintf("%s:%d", name, port):               "200",
		fmt.Sprintf("[::ffff:127.0.0.1]:%d", port):     "403", // the Host names another destination
		fmt.Sprintf("198.19.255.1:%d", port):           "",
		"169.254.169.254:80":                           "",
		fmt.Sprintf("93.184.215.14:%d", port):          "",
		fmt.Sprintf("[64:ff9b::7f00:1]:%d", port):      "",
		fmt.Sprintf("[2606:4700:4700::1111]:%d", port): "",
		fmt.Sprintf("[fe80::1%%lo]:%d", port):          "",
		fmt.Sprintf("[2002:7f00:1::]:%d", port):        "",
		fmt.Sprintf("[::127.0.0.1]:%d", port):          "",
		fmt.Sprintf("127.0.0.2:%d", port):              "",
		fmt.Sprintf("[fd00:ec2::254]:%d", 80):          "",
	} {
		l := listen(t)
		done := make(chan error, 1)
		go func() { done <- w.ServeDirect(moved{l, at}) }()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: good.test:%d\r\nConnection: close\r\n\r\n", port)
		b, _ := io.ReadAll(c)
		if want == "" && len(b) != 0 || !strings.Contains(string(b), want) {
			t.Errorf("%s: %q", at, b)
		}
		c.Close()
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	w.Close()
	if err := <-dns; err != nil {
		t.Error(err)
	}
}
