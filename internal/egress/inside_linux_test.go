package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/caisson-dev/caisson/internal/task"
)

// inside is the argument that makes this program the one in the namespace.
const inside = "egress-test-inside"

// askDNS is the argument that makes it ask for a name.
const askDNS = "egress-test-ask"

// sockets are what is listened for inside, all of it from anywhere.
var sockets = []struct{ network, addr string }{
	{"tcp4", "127.0.0.1:3128"}, {"tcp4", "0.0.0.0:80"}, {"tcp4", "0.0.0.0:443"}, {"tcp6", "[::]:443"}, {"udp4", "0.0.0.0:53"}, {"udp6", "[::]:53"},
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == inside {
		if err := beInside(os.Args[2:]); err != nil {
			fmt.Println(err)
			os.Exit(99)
		}
	}
	if len(os.Args) > 3 && os.Args[1] == askDNS {
		fmt.Println(askAt(os.Args[2], os.Args[3]))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// askAt puts a question to one server and takes no other's word.
func askAt(server, name string) (string, error) {
	c, err := net.Dial("udp", server)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 1}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		return "", err
	}
	if _, err := c.Write(b); err != nil {
		return "", err
	}
	b = make([]byte, 512)
	n, err := c.Read(b)
	if err != nil {
		return "", err
	}
	if err := m.Unpack(b[:n]); err != nil {
		return "", err
	}
	return fmt.Sprint(m.RCode, " ", len(m.Answers)), nil
}

// beInside makes the routes and sockets, hands the sockets out and becomes the
// command.
func beInside(argv []string) error {
	for _, c := range []string{"link set lo up", "route add local 0.0.0.0/0 dev lo", "-6 route add local ::/0 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %s %w", c, out, err)
		}
	}
	var fds []int
	for _, s := range sockets {
		var f *os.File
		var err error
		if s.network[:3] == "udp" {
			a, _ := net.ResolveUDPAddr(s.network, s.addr)
			var u *net.UDPConn
			if u, err = net.ListenUDP(s.network, a); err == nil {
				f, err = u.File()
			}
		} else {
			var l net.Listener
			if l, err = net.Listen(s.network, s.addr); err == nil {
				f, err = l.(*net.TCPListener).File()
			}
		}
		if err != nil {
			return err
		}
		fds = append(fds, int(f.Fd()))
	}
	if err := syscall.Sendmsg(3, []byte("x"), syscall.UnixRights(fds...), nil, 0); err != nil {
		return err
	}
	if _, err := syscall.Read(3, make([]byte, 1)); err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, argv, os.Environ())
}

// within runs a shell line in a network namespace of which the gate has all
// sockets, and returns what it prints.
func (w *way) within(t *testing.T, env []string, line string) string {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[0])
	there := os.NewFile(uintptr(pair[1]), "channel")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], inside, "sh", "-c", line)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=/nonexistent"}, env...)
	cmd.ExtraFiles = []*os.File{there}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no namespaces here: " + err.Error())
	}
	there.Close()
	b, oob := make([]byte, 1), make([]byte, 256)
	n, on, _, _, err := syscall.Recvmsg(pair[0], b, oob, syscall.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		err = errors.Join(err, cmd.Wait())
		t.Skipf("no network namespace with routes of its own here: %s %v", out.String(), err)
	}
	msgs, err := syscall.ParseSocketControlMessage(oob[:on])
	if err != nil {
		t.Fatal(err)
	}
	fds, err := syscall.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != len(sockets) {
		t.Fatal(fds, err)
	}
	done := make(chan error, len(fds))
	var closers []io.Closer
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), sockets[i].addr)
		if sockets[i].network[:3] == "udp" {
			pc, err := net.FilePacketConn(f)
			if err != nil {
				t.Fatal(err)
			}
			closers = append(closers, pc)
			go func() { done <- w.ServeDNS(pc) }()
		} else {
			l, err := net.FileListener(f)
			if err != nil {
				t.Fatal(err)
			}
			closers = append(closers, l)
			if i == 0 {
				go func() { done <- w.ServeProxy(l) }()
			} else {
				go func() { done <- w.ServeDirect(l) }()
			}
		}
		f.Close()
	}
	if _, err := syscall.Write(pair[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	for _, c := range closers {
		c.Close()
	}
	for range closers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		fmt.Fprintf(&out, " [%v]", err)
	}
	return out.String()
}

// TestInside has real programs in a network namespace without an interface, whose
// sockets this process owns: with the proxy, without, and with every way around.
func TestInside(t *testing.T) {
	program(t, "curl")
	program(t, "ip")
	port := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.Host) }))
	tlsPort, ca := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.TLS.ServerName) }))
	control := web(t, nil) // of which the gate knows nothing
	far := netip.MustParseAddr("93.184.215.14")
	w := open(t, Config{
		Judge: func(p Point) Answer {
			if p.Host == "example.com" && (p.Port == 0 || p.Port == 80 || p.Port == 443) {
				return Answer{Verdict: task.VerdictAllow, Rule: "test"}
			}
			return Answer{Verdict: task.VerdictDeny, Rule: "nothing grants it"}
		},
		Resolver: &zone{at: map[string][]string{"example.com": {far.String()}}},
		Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			at := map[netip.AddrPort]int{netip.AddrPortFrom(far, 80): port, netip.AddrPortFrom(far, 443): tlsPort}[to]
			if at == 0 {
				return nil, fmt.Errorf("dialled %s", to)
			}
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", at))
			if err != nil {
				return nil, err
			}
			return elsewhere{c.(*net.TCPConn), net.TCPAddrFromAddrPort(to)}, nil
		},
	})
	ask := func(server, name string) string {
		return fmt.Sprintf("%s %s '%s' %s", os.Args[0], askDNS, server, name)
	}
	proxy := []string{"HTTP_PROXY=http://127.0.0.1:3128", "http_proxy=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128"}
	for _, c := range []struct {
		name string
		env  []string
		line string
		want string // "" is nothing of a server's
	}{
		{"the proxy", proxy, "curl -sS -m 60 http://example.com/", "hello example.com"},
		{"the proxy, TLS", proxy, "curl -sS -m 60 --cacert " + ca + " https://example.com/", "hello example.com"},
		{"no proxy", nil, "curl -sS -m 60 http://example.com/", "hello example.com"},
		{"no proxy, TLS", nil, "curl -sS -m 60 --cacert " + ca + " https://example.com/", "hello example.com"},
		{"NO_PROXY", append(proxy, "NO_PROXY=*"), "curl -sS -m 60 http://example.com/", "hello example.com"},

		{"any server of names", nil, ask("8.8.8.8:53", "example.com"), "RCodeSuccess 1"},
		{"one on the loopback", nil, ask("127.0.0.53:53", "example.com"), "RCodeSuccess 1"},
		{"one of IPv6", nil, ask("[2001:db8::53]:53", "example.com"), "RCodeSuccess 1"},
		{"any server of names, another name", nil, ask("8.8.8.8:53", "data.evil.example.com"), "RCodeNameError 0"},

		{"another name", nil, "curl -sS -m 60 http://evil.example.com/", ""},
		{"another name by the proxy", proxy, "curl -sS -m 60 http://evil.example.com/", ""},
		{"NO_PROXY to another name", append(proxy, "NO_PROXY=*"), "curl -sS -m 60 http://evil.example.com/", ""},
		{"an address", nil, "curl -sS -m 60 http://" + far.String() + "/", ""},
		{"an address, with the allowed name", nil, "curl -sS -m 60 --resolve example.com:80:" + far.String() + " http://example.com/", ""},
		{"an IPv6 address", nil, "curl -gsS -m 60 --cacert " + ca + " --resolve 'example.com:443:[2606:4700::1]' https://example.com/", ""},
		{"the name's address, with another name", nil, "curl -ksS -m 60 --connect-to evil.example.com:443:example.com:443 https://evil.example.com/", ""},
		{"another port", nil, "curl -sS -m 60 http://example.com:8080/", ""},
		{"a loopback port of the host", nil, fmt.Sprintf("curl -sS -m 60 http://127.0.0.1:%d/", control), ""},
		{"the same by the proxy", nil, fmt.Sprintf("curl -sS -m 60 -p -x http://127.0.0.1:3128 http://127.0.0.1:%d/", control), ""},
		{"metadata", nil, "curl -sS -m 60 http://169.254.169.254/", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := w.within(t, c.env, c.line)
			if c.want == "" && strings.Contains(out, "hello") || !strings.Contains(out, c.want) {
				d, o := w.notes.all()
				t.Errorf("%q, want %q; %+v %+v", out, c.want, d, o)
			}
		})
	}
	for _, q := range w.zone.questions() {
		if q != "example.com." {
			t.Errorf("resolved %q", q)
		}
	}
}

// elsewhere is a connection to a server of the test that stands for a far one.
type elsewhere struct {
	*net.TCPConn
	at net.Addr
}

func (e elsewhere) RemoteAddr() net.Addr { return e.at }
