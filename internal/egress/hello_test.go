package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"testing"
)

// realHello is the greeting of Go's own client.
func realHello(t testing.TB, name string) []byte {
	a, b := net.Pipe()
	go func() {
		// Nobody answers: it fails once a is closed.
		_ = tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	buf := make([]byte, 4096)
	n := 0
	for {
		m, err := b.Read(buf[n:])
		if n += m; err != nil {
			t.Fatal(err)
		}
		if n > recordHeader && n >= recordHeader+int(binary.BigEndian.Uint16(buf[3:])) {
			break
		}
	}
	a.Close()
	b.Close()
	return buf[:n]
}

type ext struct {
	kind int
	data []byte
}

func vec(size int, b []byte) []byte {
	n := len(b)
	var out []byte
	for i := size - 1; i >= 0; i-- {
		out = append(out, byte(n>>(8*i)))
	}
	return append(out, b...)
}

func sniExt(names ...string) ext {
	var l []byte
	for _, n := range names {
		l = append(append(l, 0), vec(2, []byte(n))...)
	}
	return ext{extServerName, vec(2, l)}
}

func hello(exts ...ext) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, vec(1, nil)...)
	body = append(body, vec(2, []byte{0x13, 1})...)
	body = append(body, vec(1, []byte{0})...)
	var l []byte
	for _, e := range exts {
		l = append(l, byte(e.kind>>8), byte(e.kind))
		l = append(l, vec(2, e.data)...)
	}
	if exts != nil {
		body = append(body, vec(2, l)...)
	}
	return record(append([]byte{1}, vec(3, body)...))
}

func record(b []byte) []byte { return append([]byte{22, 3, 1}, vec(2, b)...) }

func TestHello(t *testing.T) {
	good := hello(sniExt("example.com"))
	in := good[recordHeader:]
	flip := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
		err  error
	}{
		{"a plain one", good, "example.com", nil},
		{"Go's client", realHello(t, "example.com"), "example.com", nil},
		{"with what follows it", append(bytes.Clone(good), 20, 3, 3, 0, 1, 1), "example.com", nil},
		{"an unknown extension", hello(ext{0x1234, []byte{1}}, sniExt("a.b")), "a.b", nil},
		{"no name", hello(ext{10, []byte{0, 2, 0, 29}}), "", nil},
		{"no extensions", hello(), "", nil},

		{"encrypted", hello(sniExt("a.b"), ext{extECH, []byte{0}}), "", errECH},
		{"encrypted, as it was before", hello(ext{extESNI, []byte{0}}, sniExt("a.b")), "", errECH},
		{"two names", hello(sniExt("a.b", "c.d")), "", errNamesMany},
		{"two name lists", hello(sniExt("a.b"), sniExt("c.d")), "", errHelloForm},
		{"an empty name", hello(sniExt("")), "", errHelloForm},
		{"an empty list", hello(ext{extServerName, []byte{0, 0}}), "", errHelloForm},
		{"bytes after the list", hello(ext{extServerName, append(vec(2, append([]byte{0}, vec(2, []byte("a.b"))...)), 0)}), "", errHelloForm},
		{"another kind of name", hello(ext{extServerName, vec(2, append([]byte{1}, vec(2, []byte("a.b"))...))}), "", errNameOdd},
		{"in two records", append(record(in[:20]), record(in[20:])...), "", errHelloSize},
		{"one record, two messages", record(append(bytes.Clone(in), in...)), "", errHelloForm},
		{"another message", flip(5, 2), "", errHelloForm},
		{"another version", flip(1, 2), "", errNotTLS},
		{"another record", flip(0, 23), "", errNotTLS},
		{"SSL 2", []byte{0x80, 0x2e, 1, 0, 2}, "", errNotTLS},
		{"text", []byte("GET / HTTP/1.1\r\n"), "", errNotTLS},
		{"an empty record", []byte{22, 3, 1, 0, 0}, "", errHelloForm},
		{"a long record", []byte{22, 3, 1, 0xff, 0xff, 1, 0, 0xff, 0xfb}, "", errHelloSize},
		{"nothing", nil, "", errHelloMore},
	} {
		if got, err := parseHello(c.b); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v, want %q, %v", c.name, got, err, c.want, c.err)
		}
	}
	for i := range good {
		if got, err := parseHello(good[:i]); got != "" || !errors.Is(err, errHelloMore) {
			t.Fatalf("the first %d bytes: %q, %v", i, got, err)
		}
	}
}

func FuzzHello(f *testing.F) {
	f.Add(hello(sniExt("example.com")))
	f.Add(hello(sniExt("a.b", "c.d"), ext{extECH, nil}))
	f.Add(realHello(f, "example.com"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, err := parseHello(b)
		if err != nil {
			if name != "" {
				t.Fatalf("a refusal with the name %q", name)
			}
			return
		}
		// What stands behind the record changes nothing, and less is never enough.
		size := recordHeader + int(binary.BigEndian.Uint16(b[3:]))
		if again, err := parseHello(append(bytes.Clone(b[:size]), b...)); err != nil || again != name {
			t.Fatalf("%q, then %q, %v", name, again, err)
		}
		if _, err := parseHello(b[:size-1]); !errors.Is(err, errHelloMore) {
			t.Fatalf("one byte less: %v", err)
		}
		if bytes.Count(b[:size], []byte(name)) == 0 {
			t.Fatalf("%q is not in it", name)
		}
	})
}
