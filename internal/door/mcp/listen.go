package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Listen serves streamable HTTP on a new Unix socket at path until ctx ends, and
// returns its cause. The folder is made where it is missing; one that others can
// enter is refused. Only processes of the same user get an answer.
func (s *Server) Listen(ctx context.Context, path string, ready func()) error {
	l, err := private(path)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(&guarded{l}) }()
	if ready != nil {
		ready()
	}
	var cause error
	select {
	case err := <-ended:
		cause = task.Errorf(task.CodeUnavailable, "mcp.listen", "the socket failed: %w", err)
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	s.halt(cause)
	s.calls.Wait()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if srv.Shutdown(late) != nil {
		_ = srv.Close()
	}
	return cause
}

// private makes the socket: mode 0600, in a folder of mode 0700.
func private(path string) (*net.UnixListener, error) {
	if !filepath.IsAbs(path) || path != filepath.Clean(path) {
		return nil, task.Errorf(task.CodeUsage, "mcp.listen", "the socket %q is no absolute path", path).WithHint("for example --listen unix:$XDG_RUNTIME_DIR/caisson-mcp/agent.sock")
	}
	dir := filepath.Dir(path)
	// A folder that others can enter is not tightened: it may be a home.
	fi, err := os.Lstat(dir)
	if err == nil && (!fi.IsDir() || fi.Mode().Perm()&0o077 != 0) {
		err = fmt.Errorf("%s: %w", dir, sys.ErrNotPrivate)
	} else {
		err = sys.PrivateDir(dir)
	}
	if err != nil {
		return nil, task.Errorf(task.CodeUnsafePath, "mcp.listen", "the socket's folder must be yours alone (mode 0700): %w", err).WithHint("name one of its own, for example --listen unix:$XDG_RUNTIME_DIR/caisson-mcp/agent.sock")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		e := task.Errorf(task.CodeConflict, "mcp.listen", "no socket at %s: %w", path, err)
		if _, serr := os.Lstat(path); serr == nil {
			return nil, e.WithHint("something is there: end its server, or remove it")
		}
		return nil, e.WithHint("take a shorter path")
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, task.Errorf(task.CodeUnsafePath, "mcp.listen", "%s: %w", path, err)
	}
	return l, nil
}

// guarded accepts connections of the same user only.
type guarded struct{ *net.UnixListener }

func (g *guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if sys.CheckPeer(c) == nil {
			return c, nil
		}
		_ = c.Close()
	}
}

// maxBody bounds one message.
const maxBody = 16 << 20

// handler answers both kinds of client: one that opens a session first, and one
// of the version that has none, which says so in every request.
func (s *Server) handler() http.Handler {
	server := func(*http.Request) *sdk.Server { return s.sdk }
	o := sdk.StreamableHTTPOptions{SessionTimeout: time.Hour, MaxRequestBodyBytes: maxBody, PropagateRequestCancellation: true}
	sessions := sdk.NewStreamableHTTPHandler(server, &o)
	o.Stateless = true
	single := sdk.NewStreamableHTTPHandler(server, &o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkWeb(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if r.Header.Get("Mcp-Protocol-Version") >= statelessVersion || r.Header.Get("Mcp-Method") != "" {
			single.ServeHTTP(w, r)
			return
		}
		sessions.ServeHTTP(w, r)
	})
}

// checkWeb refuses what a web page could send through whatever forwards to the
// socket: a host name that is not this machine's own, or an origin that is not
// the host itself.
func checkWeb(r *http.Request) error {
	if !loopback(r.Host) {
		return errors.New("the Host header names another machine")
	}
	if r.Header.Get("Referer") != "" {
		return errors.New("requests of a page are refused")
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	u, err := url.Parse(origins[0])
	if len(origins) > 1 || err != nil || u.Host == "" || u.Host != r.Host {
		return errors.New("requests from another origin are refused")
	}
	return nil
}

// loopback reports whether a Host header may be this server's. Clients of a
// socket that has no host name send an empty one, or "localhost".
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	switch host {
	case "", "localhost", "127.0.0.1", "::1", "[::1]", "unix", "caisson":
		return true
	}
	return false
}
