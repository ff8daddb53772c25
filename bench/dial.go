//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// dialArg begins the arguments of this program as a client that connects: of what
// lies between it and the server it knows at most a proxy. proxyArg makes it a
// plain proxy.
const (
	dialArg  = "__dial"
	proxyArg = "__proxy"
)

// dialled is what a client saw: how long each connection took to its first byte,
// or how long all bytes of the one.
type dialled struct {
	First []time.Duration `json:"first"`
	All   time.Duration   `json:"all"`
}

// playDial connects: "connect ADDRESS PROXY N" or "stream ADDRESS PROXY BYTES",
// where - is no proxy. The server says what was asked of it by the first byte.
func playDial(args []string) int {
	out, err := dialAs(args)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func dialAs(args []string) (out dialled, err error) {
	if len(args) != 4 {
		return out, fmt.Errorf("a client takes a mode, an address, a proxy and a number")
	}
	n, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return out, err
	}
	if args[0] == "stream" {
		at := time.Now()
		c, err := through(args[1], args[2])
		if err != nil {
			return out, err
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "%d\n", n); err != nil {
			return out, err
		}
		// Not io.Copy: that would splice, and a program that uses what it gets reads it.
		buf := make([]byte, 256<<10)
		for left := n; left > 0; {
			k, err := c.Read(buf)
			if left -= int64(k); err != nil && left > 0 {
				return out, fmt.Errorf("%d bytes are missing: %w", left, err)
			}
		}
		out.All = time.Since(at)
		return out, nil
	}
	for range n {
		at := time.Now()
		c, err := through(args[1], args[2])
		if err != nil {
			return out, err
		}
		_, err = io.WriteString(c, "1\n")
		if err == nil {
			_, err = io.ReadFull(c, make([]byte, 1))
		}
		out.First = append(out.First, time.Since(at))
		c.Close()
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// through connects to a server, by the proxy's CONNECT where there is one.
func through(to, proxy string) (net.Conn, error) {
	if proxy == "-" {
		return net.Dial("tcp", to)
	}
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to); err != nil {
		return nil, err
	}
	head := make([]byte, 0, 256)
	for one := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, one[0]) {
		if _, err := io.ReadFull(c, one); err != nil || len(head) > 4096 {
			return nil, fmt.Errorf("the proxy gave no answer: %q %v", head, err)
		}
	}
	if !strings.HasPrefix(string(head), "HTTP/1.1 200") {
		return nil, fmt.Errorf("the proxy said %q", head)
	}
	return c, nil
}

// gives answers each connection with as many bytes as it asks for, until ctx ends.
func gives(ctx context.Context) (at string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				line, err := bufio.NewReader(c).ReadString('\n')
				n, perr := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
				if err != nil || perr != nil {
					return
				}
				buf := make([]byte, 256<<10)
				for n > 0 {
					k, err := c.Write(buf[:min(n, int64(len(buf)))])
					if err != nil {
						return
					}
					n -= int64(k)
				}
			}()
		}
	}()
	return l.Addr().String(), nil
}

// playProxy is the plain proxy: what a page of Go is, with no rules, no record and
// no look at what passes. It says where it listens.
func playProxy() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(l.Addr())
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
			return
		}
		up, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer up.Close()
		w.WriteHeader(http.StatusOK)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		go func() {
			_, _ = io.CopyN(up, rw, int64(rw.Reader.Buffered()))
			_, _ = io.Copy(up, c)
			if t, ok := up.(*net.TCPConn); ok {
				_ = t.CloseWrite()
			}
		}()
		_, _ = io.Copy(c, up)
	}))
	fmt.Fprintln(os.Stderr, err)
	return 1
}
