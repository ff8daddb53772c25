package sshagent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Loan is what a task was lent: some keys of somebody, for some hosts.
type Loan struct {
	Handle string // how the policy calls it
	// Keys opens the keys to be listed. It is asked for each request, so that a loan
	// which was taken back or whose time is over has none: then its error says why.
	Keys func(ctx context.Context) (Keys, error)
	// Use is asked for each signature: it counts it, asks whom it has to ask, puts it
	// on record and calls sign with the keys. Its error refuses.
	Use func(ctx context.Context, u Use, sign func(Keys) error) error
	// Named are the keys that are lent, by fingerprint (SHA256:…) or by comment. A
	// certificate is named by the fingerprint of all of it alone.
	Named []string
	Hosts []Host
	Users []string // who may be logged in as; none: anybody
	// Namespaces are what documents may be signed for (ssh-keygen -Y), as "git";
	// none: no document is.
	Namespaces []string
}

// Use is one signature.
type Use struct {
	Handle      string
	Fingerprint string
	Comment     string
	Host        string // at which somebody logs in; empty: a document is signed
	User        string
	Namespace   string
	Digest      [32]byte // of what is signed
}

// String says what is signed.
func (u Use) String() string {
	key := u.Fingerprint
	if u.Comment != "" {
		key += " (" + visible(u.Comment) + ")"
	}
	if u.Host == "" {
		return fmt.Sprintf("a document for %s with the SSH key %s", u.Namespace, key)
	}
	return fmt.Sprintf("a login at %s as %s with the SSH key %s", u.Host, u.User, key)
}

// Config is all that a Filter needs. Everything is required.
type Config struct {
	// Loans are those that count now.
	Loans func() []Loan
	// Refused gets what was refused and why, in words without anything secret. It is
	// called by several goroutines, and as often as a program inside tries.
	Refused func(what, why string)
}

// The bounds of what one task may ask for.
const (
	maxConns    = 32
	maxRequests = 64   // of one connection
	maxSessions = 4096 // that are remembered as used
	maxIdle     = 5 * time.Minute
)

// Filter is the agent of one task. Safe for concurrent use.
type Filter struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	served sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	ended bool
	// used are sessions that were bound: each belongs to one connection, so that
	// what one program sent is of no use to another.
	used  map[[32]byte]bool
	order [][32]byte
}

// New returns a filter that answers nobody yet. The caller ends it with Close.
func New(cfg Config) (*Filter, error) {
	if cfg.Loans == nil || cfg.Refused == nil {
		return nil, errors.New("sshagent: incomplete")
	}
	f := &Filter{cfg: cfg, conns: map[net.Conn]bool{}, used: map[[32]byte]bool{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// Serve answers whoever connects until the listener is closed, which Close does
// too. It closes the listener.
func (f *Filter) Serve(l net.Listener) error {
	stop := context.AfterFunc(f.ctx, func() { _ = l.Close() })
	defer stop()
	defer l.Close()
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		if f.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if c != nil {
				_ = c.Close()
			}
			return nil
		}
		if err != nil {
			if pause > 10*time.Second {
				return err
			}
			// The machine is out of descriptors, or the client is gone already.
			pause = max(5*time.Millisecond, 2*pause)
			select {
			case <-time.After(pause):
			case <-f.ctx.Done():
			}
			continue
		}
		pause = 0
		f.mu.Lock()
		full := len(f.conns) >= maxConns
		if !full && !f.ended {
			f.conns[c] = true
			f.served.Go(func() { f.serve(c) })
		}
		f.mu.Unlock()
		if full {
			f.cfg.Refused("a connection to the SSH agent", "too many are open")
			_ = c.Close()
		}
	}
}

// Close ends every connection and waits for the last one.
func (f *Filter) Close() {
	f.cancel()
	f.mu.Lock()
	f.ended = true
	for c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.served.Wait()
}

func (f *Filter) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		f.mu.Lock()
		delete(f.conns, c)
		f.mu.Unlock()
	}()
	s := &client{f: f}
	for range maxRequests {
		_ = c.SetReadDeadline(time.Now().Add(maxIdle))
		msg, err := readMessage(c)
		if err != nil {
			if !errors.Is(err, io.EOF) && f.ctx.Err() == nil {
				f.cfg.Refused("a message to the SSH agent", err.Error())
			}
			return
		}
		answer := s.answer(msg)
		out := binary.BigEndian.AppendUint32(nil, uint32(len(answer)))
		_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write(append(out, answer...)); err != nil {
			return
		}
	}
	f.cfg.Refused("a request to the SSH agent", fmt.Sprintf("more than %d of one connection", maxRequests))
}

// readMessage reads one message, without the length in front of it.
func readMessage(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("it ends before its length")
		}
		return nil, io.EOF // silent for too long, or closed
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > maxMessage {
		return nil, fmt.Errorf("a length of %d", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, errors.New("it is shorter than it says")
	}
	return b, nil
}

// client is one connection.
type client struct {
	f     *Filter
	bound *binding
	// spoiled is why nothing is signed any more here; empty: it is not.
	spoiled string
	signed  map[string]bool // what was signed: once each
}

var kinds = map[byte]string{17: "add a key", 25: "add a key", 20: "add a key of a card", 26: "add a key of a card", 21: "remove a key of a card",
	18: "remove a key", 19: "remove all keys", 22: "lock the agent", 23: "unlock the agent"}

// answer is what a message is answered with.
func (s *client) answer(msg []byte) []byte {
	no := func(answer byte, what, why string) []byte {
		s.f.cfg.Refused(what, why)
		return []byte{answer}
	}
	switch msg[0] {
	case msgList:
		if len(msg) != 1 {
			return no(msgFailure, "list keys", errForm.Error())
		}
		return s.list()
	case msgSign:
		sig, what, err := s.sign(msg[1:])
		if err != nil {
			return no(msgFailure, what, err.Error())
		}
		return appendBytes([]byte{msgSignature}, ssh.Marshal(sig))
	case msgExtension:
		f := fields{b: msg[1:]}
		name := f.text()
		if f.bad || name != sessionBind {
			return no(msgExtensionFailure, fmt.Sprintf("the extension %.60q", name), "no other than "+sessionBind+" is known")
		}
		if err := s.bind(f.b); err != nil {
			return no(msgExtensionFailure, "bind a session", err.Error())
		}
		return []byte{msgSuccess}
	}
	what := kinds[msg[0]]
	if what == "" {
		what = fmt.Sprintf("request %d", msg[0])
	}
	return no(msgFailure, what, "an agent that is lent lists keys and signs, and does nothing else")
}

// bind takes down with which host this connection has its session. What does not
// hold spoils the connection.
func (s *client) bind(contents []byte) error {
	b, err := parseBinding(contents)
	switch {
	case err != nil:
	case b.forwarded:
		err = errors.New("the agent was forwarded to another machine")
	case s.bound != nil:
		err = errors.New("the connection is bound to a session already")
	case len(s.signed) > 0:
		err = errors.New("something was signed before")
	case len(s.f.loansAt(b.host)) == 0:
		err = fmt.Errorf("the key %s is of no host that a key was lent for", fingerprint(b.host))
	case !s.f.first(b.session):
		err = errors.New("another connection was bound to the same session")
	}
	if err != nil {
		s.bound, s.spoiled = nil, "its session was not bound: "+err.Error()
		return err
	}
	s.bound = b
	return nil
}

// first takes down that a session was bound, and says whether it was the first time.
func (f *Filter) first(session []byte) bool {
	k := sha256.Sum256(session)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used[k] {
		return false
	}
	f.used[k] = true
	if f.order = append(f.order, k); len(f.order) > maxSessions {
		delete(f.used, f.order[0])
		f.order = f.order[1:]
	}
	return true
}

// at returns the host of a loan that has a key.
func (l *Loan) at(key []byte) (Host, bool) {
	for _, h := range l.Hosts {
		if slices.ContainsFunc(h.Keys, func(k []byte) bool { return bytes.Equal(k, key) }) {
			return h, true
		}
	}
	return Host{}, false
}

func (f *Filter) loansAt(key []byte) (out []Loan) {
	for _, l := range f.cfg.Loans() {
		if _, ok := l.at(key); ok {
			out = append(out, l)
		}
	}
	return out
}

// loans are those that this connection may use.
func (s *client) loans() []Loan {
	switch {
	case s.spoiled != "":
		return nil
	case s.bound != nil:
		return s.f.loansAt(s.bound.host)
	}
	return s.f.cfg.Loans()
}

// named returns which of the keys are lent. A comment that two keys have names
// none, for their owner meant one.
func (l *Loan) named(all []Key) ([]Key, error) {
	var out []Key
	for _, n := range l.Named {
		var found []Key
		for _, k := range all {
			f := fields{b: k.Blob}
			kind := string(f.bytes())
			if algorithms[kind] == nil || len(k.Blob) > maxMessage/4 {
				continue
			}
			if k.Fingerprint() == n || k.Comment == n && !strings.HasPrefix(n, "SHA256:") && !strings.Contains(kind, "-cert-") {
				found = append(found, k)
			}
		}
		if len(found) > 1 && !strings.HasPrefix(n, "SHA256:") {
			return nil, fmt.Errorf("%d keys have the comment %.100q: name one by its fingerprint", len(found), n)
		}
		for _, k := range found {
			if !slices.ContainsFunc(out, func(o Key) bool { return bytes.Equal(o.Blob, k.Blob) }) {
				out = append(out, k)
			}
		}
	}
	return out, nil
}

// lent returns the keys that are lent by a loan.
func (l *Loan) lent(ctx context.Context) ([]Key, error) {
	keys, err := l.Keys(ctx)
	if err != nil {
		return nil, err
	}
	all, err := keys.List(ctx)
	if err != nil {
		return nil, err
	}
	return l.named(all)
}

func (s *client) list() []byte {
	var out []Key
	for _, l := range s.loans() {
		some, err := l.lent(s.f.ctx)
		if err != nil {
			s.f.cfg.Refused("the keys of "+l.Handle, err.Error())
			continue
		}
		for _, k := range some {
			if !slices.ContainsFunc(out, func(o Key) bool { return bytes.Equal(o.Blob, k.Blob) }) {
				out = append(out, k)
			}
		}
	}
	b := binary.BigEndian.AppendUint32([]byte{msgKeys}, uint32(len(out)))
	for _, k := range out {
		b = appendBytes(appendBytes(b, k.Blob), []byte(visible(k.Comment)))
	}
	return b
}

// sign makes a signature that is asked for, or says what was wanted and why it is
// not made.
func (s *client) sign(msg []byte) (*ssh.Signature, string, error) {
	f := fields{b: msg}
	blob, data := f.bytes(), f.bytes()
	flags := f.number()
	what := "sign with the key " + fingerprint(blob)
	if err := f.end(); err != nil {
		return nil, "sign", err
	}
	p, err := parsePurpose(data)
	if err == nil {
		err = s.fits(p, blob, data, flags)
	}
	if err != nil {
		return nil, what, err
	}
	why := errors.New("the key was not lent")
	for _, l := range s.loans() {
		u := Use{Handle: l.Handle, Fingerprint: fingerprint(blob), User: p.user, Namespace: p.namespace, Digest: sha256.Sum256(data)}
		if p.namespace != "" {
			if !slices.Contains(l.Namespaces, p.namespace) {
				why = fmt.Errorf("documents for %q are not signed with it", p.namespace)
				continue
			}
		} else {
			h, _ := l.at(s.bound.host)
			u.Host = h.String()
			if len(l.Users) > 0 && !slices.Contains(l.Users, p.user) {
				why = fmt.Errorf("it is not lent for the user %s", p.user)
				continue
			}
		}
		some, err := l.lent(s.f.ctx)
		if err != nil {
			why = err
			continue
		}
		i := slices.IndexFunc(some, func(k Key) bool { return bytes.Equal(k.Blob, blob) })
		if i < 0 {
			continue
		}
		u.Comment = some[i].Comment
		what = "sign " + u.String()
		var sig *ssh.Signature
		err = l.Use(s.f.ctx, u, func(k Keys) (err error) {
			if s.signed == nil {
				s.signed = map[string]bool{}
			}
			s.signed[string(data)] = true
			sig, err = s.made(k, blob, data, flags)
			return err
		})
		if err == nil && sig == nil {
			err = errors.New("it was not signed")
		}
		return sig, what, err
	}
	return nil, what, why
}

// fits holds what is to be signed against the connection and the key.
func (s *client) fits(p purpose, blob, data []byte, flags uint32) error {
	f := fields{b: blob}
	alg, ok := algorithms[string(f.bytes())][flags]
	switch {
	case s.spoiled != "":
		return errors.New(s.spoiled)
	case !ok:
		return errors.New("signatures of this kind are not made")
	case s.signed[string(data)]:
		return errors.New("the same was signed before")
	case p.namespace != "":
		if s.bound != nil {
			return errors.New("the connection is bound to a session, and a document is none")
		}
		return nil
	case s.bound == nil:
		return errors.New("the connection is not bound to a session with a host: the client is older than OpenSSH 8.9, or no client")
	case !bytes.Equal(p.session, s.bound.session):
		return errors.New("it is a login in another session than the one that is bound")
	case p.host != nil && !bytes.Equal(p.host, s.bound.host):
		return errors.New("it is a login at another host than the one that is bound")
	case !bytes.Equal(p.key, blob) || p.algorithm != alg[0]:
		return errors.New("it is a login with another key")
	}
	return nil
}

// made has the signature made and looks whether it is what was asked for.
func (s *client) made(keys Keys, blob, data []byte, flags uint32) (*ssh.Signature, error) {
	var raw []byte
	if s.bound != nil {
		raw = s.bound.raw
	}
	sig, err := keys.Sign(s.f.ctx, blob, data, flags, raw)
	if err != nil {
		return nil, fmt.Errorf("it was not signed: %v", err)
	}
	f := fields{b: blob}
	if want := algorithms[string(f.bytes())][flags][1]; sig.Format != want {
		return nil, fmt.Errorf("the signature is of the kind %.40q and not %s", sig.Format, want)
	}
	return sig, nil
}

// visible is text of others without what a terminal acts on.
func visible(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), maxText)]
}
