package sys

import (
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestParseTCPSockets(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1
   2: 0000000000000000FFFF00000100007F:0050 0000000000000000FFFF00000100007F:8000 01 00000000:00000000 00:00000000 00000000     5        0 1
   3: 0100007F:0050 0100007F:8000 05 00000000:00000000 00:00000000 00000000     0        0 0
   3: nonsense:0050 0100007F:8000 01 00000000:00000000 00:00000000 00000000     5        0 1
   4: short
`
	ap := netip.MustParseAddrPort
	want := []TCPSocket{
		{ap("127.0.0.1:3306"), ap("0.0.0.0:0"), TCPListen, 1000, true}, {ap("[::1]:8080"), ap("[::]:0"), TCPListen, 7, true}, {ap("127.0.0.1:80"), ap("127.0.0.1:32768"), TCPEstablished, 5, true}, {ap("127.0.0.1:80"), ap("127.0.0.1:32768"), 5, 0, false},
	}
	if got := parseTCPSockets(strings.NewReader(table)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

// TestPeerUID: the kernel says whose a client is, also one that speaks IPv6 to an
// IPv4 address, and one that is gone is nobody's.
func TestPeerUID(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if uid, err := PeerUID(c); err != nil || uid != os.Getuid() {
		t.Errorf("%d %v", uid, err)
	}
	// One that said something and closed: what it said can still be read.
	said, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := said.Write([]byte("do it")); err != nil {
		t.Fatal(err)
	}
	_ = said.Close()
	gone, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	if uid, err := PeerUID(gone); err == nil {
		t.Errorf("a client that closed is that of %d", uid)
	}
	if b, err := io.ReadAll(gone); string(b) != "do it" {
		t.Errorf("a dead test: %q %v", b, err)
	}
	_ = client.(*net.TCPConn).SetLinger(0)
	_ = client.Close()
	if uid, err := PeerUID(c); err == nil {
		t.Errorf("a client that is gone is that of %d", uid)
	}
}
