//go:build linux

package hostsockets_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/hostsockets"
	"github.com/caisson-dev/caisson/internal/worker/crossing"
)

var secret = [crossing.KeySize]byte{1, 2, 3}

// carried opens a way whose sockets stay on a thread of its own, and returns what
// makes connections there.
func carried(t *testing.T) (s backend.Sockets, dir string, dial func(kind int, at string) net.Conn) {
	t.Helper()
	dir = t.TempDir()
	c, err := hostsockets.OpenCarried(dir, secret, way)
	if err != nil {
		t.Fatal(err)
	}
	var set hostsockets.Set
	set.SetCarried(c)
	t.Cleanup(set.Close)
	if s, err = set.Sockets(); err != nil {
		t.Fatal(err)
	}
	door := filepath.Join(dir, hostsockets.DoorName)
	var inward []int
	apart(t, func() error {
		fds, err := crossing.Open(&crossing.Way{Proxy: way.Proxy, Ports: way.Ports, At: way.At})
		if err != nil {
			return err
		}
		for range 8 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			inward = append(inward, fd)
		}
		for range 2 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			inward = append(inward, fd)
		}
		if err := crossing.Try(door, secret); err != nil {
			return err
		}
		return (&crossing.Carrier{Path: door, Key: secret}).Carry(fds)
	})
	t.Cleanup(func() { hostsockets.CloseAll(inward) })
	return s, dir, func(kind int, at string) net.Conn {
		t.Helper()
		for i, fd := range inward {
			if have, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || have != kind {
				continue
			}
			inward = append(inward[:i:i], inward[i+1:]...)
			a := netip.MustParseAddrPort(at)
			err := unix.Connect(fd, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())})
			if err != nil {
				unix.Close(fd)
				t.Fatalf("%s: %v", at, err)
			}
			f := os.NewFile(uintptr(fd), at)
			defer f.Close()
			c, err := net.FileConn(f)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			t.Cleanup(func() { c.Close() })
			return c
		}
		t.Fatal("no socket is left")
		return nil
	}
}

// What comes inside arrives as if the host had the sockets: where it was meant to go,
// every byte both ways, and each end for itself.
func TestCarried(t *testing.T) {
	s, _, dial := carried(t)
	for _, x := range []struct {
		to string
		l  net.Listener
	}{{"127.0.0.1:61080", s.Proxy}, {"192.0.2.7:443", s.Direct[0]}, {"198.18.0.9:80", s.Direct[0]}, {"127.0.0.1:5432", s.Direct[0]}} {
		got := make(chan string, 1)
		go func() {
			c, err := x.l.Accept()
			if err != nil {
				got <- err.Error()
				return
			}
			defer c.Close()
			b, err := io.ReadAll(c) // to the end that the client made, while it still reads
			got <- fmt.Sprint(c.LocalAddr(), " ", len(b), " ", err)
			_, _ = c.Write([]byte(strings.Repeat("y", 300000)))
		}()
		c := dial(unix.SOCK_STREAM, x.to)
		if _, err := c.Write([]byte(strings.Repeat("x", 200000))); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); err != nil || len(b) != 300000 {
			t.Errorf("%s: %d bytes came back: %v", x.to, len(b), err)
		}
		if g := <-got; g != x.to+" 200000 <nil>" {
			t.Errorf("%s: the host had %q", x.to, g)
		}
	}
	go func() {
		var b [512]byte
		for {
			n, from, err := s.Names[0].ReadFrom(b[:])
			if err != nil {
				return
			}
			_, _ = s.Names[0].WriteTo([]byte("answer to "+string(b[:n])), from)
		}
	}()
	q := dial(unix.SOCK_DGRAM, "127.0.0.1:53")
	if _, err := q.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	var b [512]byte
	if n, err := q.Read(b[:]); err != nil || string(b[:n]) != "answer to question" {
		t.Errorf("%q %v", b[:n], err)
	}
}

// A client that goes away ends it for the host, and a host that does for the client.
func TestCarriedEnds(t *testing.T) {
	s, _, dial := carried(t)
	accept := func() net.Conn {
		t.Helper()
		c, err := s.Direct[0].Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return c
	}
	c := dial(unix.SOCK_STREAM, "192.0.2.7:443")
	h := accept()
	_ = c.Close()
	if b, err := io.ReadAll(h); err != nil || len(b) > 0 {
		t.Errorf("the host had %q %v of a client that went away", b, err)
	}
	c = dial(unix.SOCK_STREAM, "192.0.2.7:443")
	h = accept()
	_ = h.Close()
	if b, err := io.ReadAll(c); len(b) > 0 {
		t.Errorf("the client had %q %v of a host that went away", b, err)
	}
	// One that nobody reads holds up no other.
	full := dial(unix.SOCK_STREAM, "192.0.2.7:443")
	accept()
	_ = full.SetDeadline(time.Now().Add(200 * time.Millisecond))
	for {
		if _, err := full.Write(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	other := dial(unix.SOCK_STREAM, "192.0.2.7:443")
	h = accept()
	go func() { _, _ = io.WriteString(h, "here"); _ = h.Close() }()
	if b, err := io.ReadAll(other); string(b) != "here" {
		t.Errorf("%q %v", b, err)
	}
}

// Who does not know the secret, or says what cannot be, is nobody: programs inside
// can connect to the door as well.
func TestCarriedForged(t *testing.T) {
	s, dir, _ := carried(t)
	door := filepath.Join(dir, hostsockets.DoorName)
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"no secret":           crossing.Header{Kind: crossing.Connection, At: netip.MustParseAddrPort("192.0.2.7:443")}.Encode(),
		"half a header":       crossing.Header{Key: secret, Kind: crossing.Connection}.Encode()[:40],
		"another kind":        crossing.Header{Key: secret, Kind: 'x', At: netip.MustParseAddrPort("192.0.2.7:443")}.Encode(),
		"where nothing is":    crossing.Header{Key: secret, Kind: crossing.Connection, At: netip.MustParseAddrPort("192.0.2.7:444")}.Encode(),
		"no address":          crossing.Header{Key: secret, Kind: crossing.Connection}.Encode(),
		"a question too long": append(crossing.Header{Key: secret, Kind: crossing.Question}.Encode(), 0xff, 0xff),
	} {
		c, err := net.DialTimeout("unix", door, patience)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write(b)
		_ = c.(*net.UnixConn).CloseWrite()
		if got, _ := io.ReadAll(c); len(got) > 0 {
			t.Errorf("%s: the host said %q", name, got)
		}
		_ = c.Close()
	}
	if err := crossing.Try(door, [crossing.KeySize]byte{9}); err == nil {
		t.Error("a wrong secret is a right one")
	}
	came := make(chan net.Conn, 1)
	go func() {
		if c, err := s.Direct[0].Accept(); err == nil {
			came <- c
		}
	}()
	select {
	case c := <-came:
		t.Errorf("%v came through", c.LocalAddr())
	case <-time.After(50 * time.Millisecond):
	}
}
