package egress

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// Named offers the published ports of all tasks of a user at one port, by names
// below localhost: PORT.TASK.localhost. It speaks HTTP alone.
type Named struct {
	Listener net.Listener // the host's, on a loopback address; Serve closes it
	// Peer refuses who may not connect.
	Peer func(net.Conn) error
	// Find returns the port of the host at which a port of a task is published; 0:
	// none. Both are texts of the client's.
	Find func(ctx context.Context, task, port string) int
}

// Serve answers until ctx ends.
func (n *Named) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := log.New(io.Discard, "", 0)
	s := &http.Server{Handler: n.handler(ctx), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: time.Minute, ErrorLog: quiet, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	err := s.Serve(&letIn{n.Listener, n.Peer})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// letIn is a listener that lets in only who may connect.
type letIn struct {
	net.Listener
	peer func(net.Conn) error
}

func (a *letIn) Accept() (net.Conn, error) {
	for {
		c, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if a.peer != nil && a.peer(c) == nil {
			return c, nil
		}
		_ = c.Close()
	}
}

func (n *Named) handler(ctx context.Context) http.Handler {
	own := uint16(0)
	if a, ok := n.Listener.Addr().(*net.TCPAddr); ok {
		own = a.AddrPort().Port()
	}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: 5 * time.Second}
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		task, port, ok := NamedHost(r.Host, own)
		if !ok {
			http.Error(w, "caisson: this is http://PORT.TASK.localhost:"+strconv.Itoa(int(own))+"; `caisson ports TASK` lists what there is", http.StatusNotFound)
			return
		}
		if err := admits(r, func(host string, p uint16) bool {
			t, _, ok := NamedHost(net.JoinHostPort(host, strconv.Itoa(int(p))), own)
			return ok && t == task
		}); err != nil {
			http.Error(w, "caisson: "+err.Error(), http.StatusForbidden)
			return
		}
		at := n.Find(r.Context(), task, port)
		if at == 0 {
			http.Error(w, "caisson: no such port of such a task is published; `caisson ports TASK` lists what there is", http.StatusNotFound)
			return
		}
		(&httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", net.JoinHostPort("127.0.0.1", strconv.Itoa(at)), p.In.Host
			},
			Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, "caisson: the server inside does not answer", http.StatusBadGateway)
			},
		}).ServeHTTP(w, r)
	})
}

// NamedHost reads PORT.TASK.localhost:N, where N is the one port; all in lower
// case.
func NamedHost(host string, n uint16) (task, port string, ok bool) {
	d, err := ParseAuthority(host, 80)
	if err != nil || d.Port != n {
		return "", "", false
	}
	name, ok := strings.CutSuffix(d.Host.Name(), ".localhost")
	if !ok {
		return "", "", false
	}
	port, task, ok = strings.Cut(name, ".")
	return task, port, ok && task != "" && port != ""
}
