// Package gitcred answers git, which asks inside a boundary for a name and a
// password, with the name and the placeholder of what the task was lent for that
// very repository. It speaks what git's own credential-cache speaks to its daemon,
// so nothing has to run inside and no configuration of the task is read.
//
// Its limit: it holds no secret and opens no listener. What a placeholder becomes,
// and where, is decided where requests leave.
package gitcred

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Loan is a repository, or several below one path, with what git is told there.
type Loan struct {
	Host     string // as git names it: in lower case, with ":PORT" where it is not 443
	Path     string // "team/repo.git", without a slash at its ends; empty: all of the host
	User     string
	Password string // the placeholder
}

// covers says whether a path of a request lies in a loan: the whole one, or below it.
func (l Loan) covers(path string) bool {
	rest, ok := strings.CutPrefix(path, l.Path)
	return ok && (l.Path == "" || rest == "" || rest[0] == '/')
}

// Config is all that a Server needs. Everything is required.
type Config struct {
	// Loans are those that count now.
	Loans func() []Loan
	// Refused gets what was asked for and not given, in words.
	Refused func(what, why string)
}

// The bounds of one request.
const (
	maxRequest = 16 << 10
	maxLines   = 64
	maxConns   = 32
	maxTime    = time.Minute
)

// Server answers the programs of one task. Safe for concurrent use.
type Server struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	served sync.WaitGroup
	room   chan struct{}
}

// New returns a server that answers nobody yet. The caller ends it with Close.
func New(cfg Config) (*Server, error) {
	if cfg.Loans == nil || cfg.Refused == nil {
		return nil, errors.New("gitcred: incomplete")
	}
	s := &Server{cfg: cfg, room: make(chan struct{}, maxConns)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Serve answers whoever connects until Close. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	stop := context.AfterFunc(s.ctx, func() { _ = l.Close() })
	defer stop()
	defer s.served.Wait()
	defer l.Close()
	for pause := time.Duration(0); ; {
		select {
		case s.room <- struct{}{}:
		case <-s.ctx.Done():
			return nil
		}
		c, err := l.Accept()
		if err != nil {
			<-s.room
			switch {
			case s.ctx.Err() != nil, errors.Is(err, net.ErrClosed):
				return nil
			case pause > 10*time.Second:
				return err
			}
			// The machine is out of descriptors, or the client is gone already.
			pause = max(5*time.Millisecond, 2*pause)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
			continue
		}
		pause = 0
		s.served.Go(func() {
			defer func() { _ = c.Close(); <-s.room }()
			done := context.AfterFunc(s.ctx, func() { _ = c.Close() })
			defer done()
			_ = c.SetDeadline(time.Now().Add(maxTime))
			b, err := io.ReadAll(io.LimitReader(c, maxRequest+1))
			if err != nil {
				return
			}
			_, _ = c.Write(s.Answer(b))
		})
	}
}

// Close ends Serve. Serve returns when the last answer was given.
func (s *Server) Close() { s.cancel() }

// Answer is what a whole request is answered with; nothing, where nothing was lent.
func (s *Server) Answer(request []byte) []byte {
	q, err := parse(request)
	if err != nil {
		s.cfg.Refused("a question of git for a password", err.Error())
		return nil
	}
	if q.action != "get" {
		return nil // store and erase: the host keeps its own
	}
	what := "a password for " + q.String()
	if q.protocol != "https" {
		s.cfg.Refused(what, "only https is given any")
		return nil
	}
	path, err := plain(q.path)
	if err != nil {
		s.cfg.Refused(what, err.Error())
		return nil
	}
	var best *Loan
	for _, l := range s.cfg.Loans() {
		if l.Host == q.host && l.covers(path) && (q.user == "" || q.user == l.User) && (best == nil || len(l.Path) > len(best.Path)) {
			best = &l
		}
	}
	if best == nil {
		s.cfg.Refused(what, "nothing was lent for it")
		return nil
	}
	return []byte("username=" + best.User + "\npassword=" + best.Password + "\n")
}

// question is what git asks.
type question struct {
	action, protocol, host, path, user string
}

func (q question) String() string {
	return fmt.Sprintf("%.200q", (&url.URL{Scheme: q.protocol, Host: q.host, Path: "/" + q.path}).String())
}

// parse reads a request: lines of name=value. What could be read in two ways is an
// error; names that are not known are passed over, as the protocol demands.
func parse(b []byte) (q question, err error) {
	if len(b) > maxRequest {
		return q, errors.New("it is too long")
	}
	if bytes.ContainsAny(b, "\x00\r") {
		return q, errors.New("it has a NUL or a carriage return")
	}
	seen := map[string]bool{}
	n := 0
	for line := range strings.Lines(string(b)) {
		line, whole := strings.CutSuffix(line, "\n")
		if n++; n > maxLines || !whole {
			return q, errors.New("it has too many lines, or its last one is cut")
		}
		if line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return q, errors.New("a line is not of the form name=value")
		}
		to := map[string]*string{"action": &q.action, "protocol": &q.protocol, "host": &q.host, "path": &q.path, "username": &q.user}[name]
		if to == nil {
			if name == "url" { // would say all of them once more
				return q, errors.New("it has a url beside its parts")
			}
			continue
		}
		if seen[name] {
			return q, fmt.Errorf("it says %s twice", name)
		}
		seen[name] = true
		*to = value
	}
	if !seen["action"] || q.action == "get" && (!seen["protocol"] || !seen["host"] || q.host == "") {
		return q, errors.New("it does not say for what")
	}
	for _, c := range q.host {
		if c <= ' ' || c > '~' || c == '/' || c == '@' {
			return q, errors.New("its host is none")
		}
	}
	q.host = strings.TrimSuffix(strings.ToLower(q.host), ":443")
	return q, nil
}

// plain holds a path to the one form that can be compared: git gives it decoded,
// so a part that a server would read differently is refused.
func plain(path string) (string, error) {
	path = strings.Trim(path, "/")
	if strings.ContainsAny(path, "%\\?#;") {
		return "", errors.New("its path can be read in two ways")
	}
	for _, c := range path {
		if c < ' ' || c == 0x7f {
			return "", errors.New("its path has control characters")
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." || part == "" && path != "" {
			return "", errors.New("its path has parts that lead elsewhere")
		}
	}
	return path, nil
}

// Settings are the settings by which git inside asks at a Unix socket for what
// was lent, and nobody else for it. Each is a name and a value, in order.
func Settings(loans []Loan, socket string) [][2]string {
	var out [][2]string
	seen := map[string]bool{}
	for _, l := range loans {
		at := "https://" + l.Host
		if l.Path != "" {
			at += "/" + l.Path
		}
		if seen[at] {
			continue
		}
		seen[at] = true
		out = append(out,
			[2]string{"credential." + at + ".helper", ""}, // of others none
			[2]string{"credential." + at + ".helper", "cache --socket " + socket},
			[2]string{"credential." + at + ".useHttpPath", "true"})
	}
	return out
}
