//go:build linux

package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// waits bounds one answer. It is long, for a loaded machine; nothing waits for it
// but what hangs.
const waits = 20 * time.Second

// errNothing says that a connection was ended without an answer of a server's.
var errNothing = fmt.Errorf("no answer of a server: %w", unix.EACCES)

// errSaidNo is the way out's own answer.
type errSaidNo string

func (e errSaidNo) Error() string { return "refused: " + string(e) }
func (errSaidNo) Unwrap() error   { return unix.EACCES }

// reach connects to host at port: through the way out in one of its kinds where
// there is one, else to the address that the caller knows for it.
func reach(kind, host, port, direct string) (net.Conn, error) {
	if !c.Inside || kind == "direct" {
		return dialFor(net.JoinHostPort(direct, port))
	}
	conn, err := dialFor(c.Far.Proxy)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "connect":
		err = connect(conn, host, port)
	case "socks", "socks address":
		err = socks5(conn, kind, host, port)
	case "socks4a":
		err = socks4(conn, host, port)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func dialFor(at string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", at, waits)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(waits))
	}
	return conn, err
}

func connect(conn net.Conn, host, port string) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n", host, port, host, port); err != nil {
		return quiet(err)
	}
	head, err := untilBlank(conn)
	line, _, _ := strings.Cut(head, "\r\n")
	if f := strings.Fields(line); len(f) > 1 && f[1] == "200" {
		return nil
	} else if len(f) > 1 {
		return errSaidNo(line)
	}
	return quiet(err)
}

// untilBlank reads a head byte by byte, for what follows it belongs to others.
func untilBlank(conn net.Conn) (string, error) {
	var b []byte
	one := make([]byte, 1)
	for len(b) < 16<<10 && !bytes.HasSuffix(b, []byte("\r\n\r\n")) {
		if _, err := conn.Read(one); err != nil {
			return string(b), err
		}
		b = append(b, one[0])
	}
	return string(b), nil
}

// quiet makes one error of a connection that ended without a word.
func quiet(err error) error {
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		return err
	}
	return errNothing
}

func socks5(conn net.Conn, kind, host, port string) error {
	to := append([]byte{3, byte(len(host))}, host...)
	if a := net.ParseIP(host).To4(); kind == "socks address" && a != nil {
		to = append([]byte{1}, a...)
	}
	n := portNumber(port)
	if _, err := conn.Write([]byte{5, 1, 0}); err != nil {
		return quiet(err)
	}
	var b [2]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return quiet(err)
	}
	if _, err := conn.Write(append(append([]byte{5, 1, 0}, to...), byte(n>>8), byte(n))); err != nil {
		return quiet(err)
	}
	var r [10]byte
	if _, err := io.ReadFull(conn, r[:]); err != nil {
		return quiet(err)
	}
	if r[1] != 0 {
		return errSaidNo(fmt.Sprintf("SOCKS answer %d", r[1]))
	}
	return nil
}

func socks4(conn net.Conn, host, port string) error {
	n := portNumber(port)
	if _, err := conn.Write(append([]byte{4, 1, byte(n >> 8), byte(n), 0, 0, 0, 1, 'm', 'e', 0}, host+"\x00"...)); err != nil {
		return quiet(err)
	}
	var r [8]byte
	if _, err := io.ReadFull(conn, r[:]); err != nil {
		return quiet(err)
	}
	if r[1] != 0x5a {
		return errSaidNo(fmt.Sprintf("SOCKS answer %d", r[1]))
	}
	return nil
}

func portNumber(port string) (n int) { _, _ = fmt.Sscan(port, &n); return n }

// answer sends text and returns all that comes back.
func answer(conn net.Conn, text string) (string, error) {
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", quiet(err)
	}
	b, err := io.ReadAll(io.LimitReader(conn, 1<<20))
	if len(b) == 0 {
		return "", quiet(err)
	}
	return string(b), nil
}

// served says whether a server of Far's answered, and which: its line begins so.
const served = "far server "

// farAddress is the address of the server that answered; empty: none did.
func farAddress(text string) string {
	_, rest, ok := strings.Cut(text, served)
	if !ok {
		return ""
	}
	at, _, _ := strings.Cut(rest, " ")
	return at
}

// came judges an answer: an error that is a refusal unless a server that may not be
// reached has answered.
func came(text string, err error, mayNot func(at, text string) bool) error {
	if err != nil {
		return err
	}
	if at := farAddress(text); at != "" && mayNot(at, text) {
		return nil
	}
	line, _, _ := strings.Cut(text, "\r\n")
	if farAddress(text) != "" {
		return fmt.Errorf("another server answered: %w", errConfined)
	}
	return errSaidNo(line)
}

func anyServer(string, string) bool { return true }

// get is the request that every server of Far answers. where is the property and
// the attempt, for the server's log.
func get(target, host, where string) string {
	return fmt.Sprintf("GET %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, where, host)
}

// ask makes one request for host in a way of asking.
func ask(kind, host, direct, where string) (string, error) {
	switch kind {
	case "get", "websocket", "pipelined", "another Host":
		conn, err := reach("", host, "80", direct)
		if err != nil {
			return "", err
		}
		target := "http://" + host
		if !c.Inside {
			target = ""
		}
		switch kind {
		case "websocket":
			return answer(conn, strings.Replace(get(target, host, where), "Connection: close\r\n", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", 1))
		case "pipelined":
			first := strings.Replace(get("http://"+c.Far.Allowed, c.Far.Allowed, "/first"), "Connection: close\r\n", "", 1)
			text, err := answer(conn, first+get(target, host, where))
			return behind(text, where), err
		case "another Host":
			if c.Inside {
				target = "http://" + c.Far.Allowed
			}
		}
		return answer(conn, get(target, host, where))
	case "in a tunnel":
		conn, err := reach("connect", c.Far.Allowed, "80", direct)
		if err != nil {
			return "", err
		}
		first := strings.Replace(get("", c.Far.Allowed, "/first"), "Connection: close\r\n", "", 1)
		text, err := answer(conn, first+get("", host, where))
		return behind(text, where), err
	case "prior knowledge":
		conn, err := reach("connect", host, "80", direct)
		if err != nil {
			return "", err
		}
		return answer(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	case "socks address":
		at := direct
		if c.Inside && direct == c.Far.AllowedAt {
			// What stands for it inside; its own address is in no rule.
			list, err := net.DefaultResolver.LookupHost(context.Background(), c.Far.Allowed)
			if err != nil {
				return "", err
			}
			at = list[0]
		}
		conn, err := reach(kind, at, "80", direct)
		if err != nil {
			return "", err
		}
		return answer(conn, get("", host, where))
	}
	conn, err := reach(kind, host, "80", direct)
	if err != nil {
		return "", err
	}
	return answer(conn, get("", host, where))
}

// behind is what of an answer belongs to the request with where in its path.
func behind(text, where string) string {
	for part := range strings.SplitSeq(text, served) {
		if strings.Contains(part, where) {
			return served + part
		}
	}
	return "nothing for it"
}
