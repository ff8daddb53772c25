package egress

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// http serves requests one after another. Each is decided about by itself and
// gets a connection of its own: none is reused, so nothing that one request did
// to a connection reaches another, and none is sent twice. fixed is the
// destination of a tunnel; nil makes it a proxy.
func (s *session) http(fixed *Dest) {
	for {
		s.patient()
		if _, err := s.br.Peek(1); err != nil {
			return
		}
		s.within(s.g.Timeouts.Head)
		h, err := readHead(s.br)
		if err != nil {
			if task.CodeOf(err) == task.CodeDenied {
				s.refuse(fixed, "", err)
			}
			return // else it broke off
		}
		s.patient()
		if h.method == "CONNECT" {
			s.connect(h, fixed)
			return
		}
		u, err := h.url(fixed)
		if err != nil {
			s.refuse(fixed, h.method+" "+h.target, err)
			return
		}
		if !s.forward(h, u) {
			return
		}
	}
}

// refuse records a request that cannot be read and answers it.
func (s *session) refuse(fixed *Dest, said string, err error) {
	p := ProtoHTTP
	if strings.HasPrefix(said, "CONNECT ") {
		p = ProtoConnect
	}
	if fixed != nil {
		said = fixed.String() + " " + said
	}
	s.answer(s.g.unreadable(p, said, err))
}

// connect opens a tunnel.
func (s *session) connect(h *head, fixed *Dest) {
	said := h.method + " " + h.target
	d, err := ParseAuthority(h.target, 0)
	switch {
	case err != nil:
	case fixed != nil:
		err = refuse(ReasonProtocol, "a tunnel in a tunnel")
	case h.body():
		err = badDest("CONNECT with a body")
	case h.host != "":
		var host Dest
		if host, err = ParseAuthority(h.host, d.Port); err == nil && host != d {
			err = refuse(ReasonName, "CONNECT to %s with the Host %s", d, quoted(h.host))
		}
	}
	if err == nil {
		d, err = s.g.meant(d)
	}
	if err != nil {
		s.refuse(fixed, said, err)
		return
	}
	c, err := s.g.Open(s.g.ctx, Request{Proto: ProtoConnect, Dest: d})
	if err != nil {
		s.answer(err)
		return
	}
	if _, err := io.WriteString(s.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		c.finish(err)
		return
	}
	s.tunnel(d, c)
}

// url is where a request goes: of a proxy what its target says, of a tunnel
// where that leads. Its Host field says the same.
func (h *head) url(fixed *Dest) (URL, error) {
	var u URL
	var err error
	switch {
	case fixed == nil || !strings.HasPrefix(h.target, "/") && h.target != "*":
		u, err = ParseURL(h.target)
		if err == nil && fixed != nil && u.Dest != *fixed {
			err = refuse(ReasonName, "a request for %s on the way to %s", u.Dest, fixed)
		}
	case h.target == "*" && h.method == "OPTIONS":
		u = URL{*fixed, "*"}
	default:
		u = URL{*fixed, h.target}
		err = checkPath(h.target)
	}
	if err != nil || h.host == "" && h.minor == 0 && fixed == nil {
		return u, err
	}
	host, err := ParseAuthority(h.host, 80)
	if err != nil {
		return u, err
	}
	if host != u.Dest {
		return u, refuse(ReasonName, "a request for %s with the Host %s", u.Dest, quoted(h.host))
	}
	return u, nil
}

// forward sends one request and answers with what comes back. It says whether
// the client may ask for more.
func (s *session) forward(h *head, u URL) bool {
	d, err := s.g.meant(u.Dest)
	if err != nil {
		s.refuse(nil, h.method+" "+h.target, err)
		return false
	}
	path, _, _ := strings.Cut(u.Path, "?")
	var body io.Reader
	if h.body() {
		body = h.bodyOf(s.br)
	}
	hold := s.g.hold(h, d, u.Path, false, body)
	defer hold.release()
	hold.more, hold.watch = s.proceed, s.watch
	c, err := s.g.Open(s.g.ctx, Request{Proto: ProtoHTTP, Dest: d, Method: h.method, Path: path, act: hold.act, hold: hold})
	if err != nil {
		s.answer(err)
		return false
	}
	keep, err := s.exchange(h, d, u.Path, c, hold.sent())
	c.finish(err) // an upgraded one is finished by now
	return keep && err == nil
}

// exchange is forward on the connection c.
func (s *session) exchange(h *head, d Dest, path string, c *Conn, from io.Reader) (keep bool, err error) {
	up := metered{c}
	if err := h.write(up, d, path); err != nil {
		s.answer(refuse(ReasonDial, "%s does not take the request", d))
		return false, err
	}
	var body sync.WaitGroup
	var bodyErr error
	if h.body() {
		body.Go(func() { bodyErr = h.copyBody(up, from) })
		defer func() {
			if err != nil || !keep { // nobody waits for the rest of it
				c.Conn.Close()
				s.conn.SetReadDeadline(time.Unix(1, 0))
			}
			body.Wait()
			keep = keep && bodyErr == nil
		}()
	}
	limit := &io.LimitedReader{R: up, N: maxReply}
	br := bufio.NewReaderSize(limit, 32<<10)
	for range maxInterim {
		resp, err := http.ReadResponse(br, &http.Request{Method: h.method})
		if err != nil {
			s.answer(refuse(ReasonDial, "%s gives no answer that can be read", d))
			return false, err
		}
		limit.N = maxReply
		switch {
		case resp.StatusCode == http.StatusSwitchingProtocols:
			if !h.upgrade || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
				s.answer(refuse(ReasonProtocol, "%s changes to a protocol that was not asked for", d))
				return false, refuse(ReasonProtocol, "%s changes to a protocol that was not asked for", d)
			}
			limit.N = 1 << 62
			return false, s.upgraded(resp, br, c)
		case resp.StatusCode < 200:
			if h.minor == 1 {
				if err := writeHead(s.conn, resp, nil); err != nil {
					return false, err
				}
			}
			continue
		}
		limit.N = 1 << 62
		done := make(chan struct{})
		if h.body() {
			go func() { body.Wait(); close(done) }()
		} else {
			close(done)
		}
		return s.reply(h, resp, done)
	}
	s.answer(refuse(ReasonProtocol, "%s gives no final answer", d))
	return false, refuse(ReasonProtocol, "%s gives no final answer", d)
}

const (
	maxReply   = 1 << 20 // the head of an answer
	maxInterim = 16      // answers before the final one
)

// write sends the head on: with our own word on where it goes and how it ends.
func (h *head) write(w io.Writer, d Dest, path string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", h.method, path, d.hostField())
	for _, f := range h.fields {
		b.WriteString(f.name + ": " + f.value + "\r\n")
	}
	if h.chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	}
	if h.upgrade {
		b.WriteString("Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	} else {
		b.WriteString("Connection: close\r\n\r\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// hostField is d as a Host field, without the port that goes without saying.
func (d Dest) hostField() string {
	return strings.TrimSuffix(d.String(), ":80")
}

// copyBody sends the body on, in chunks of our own where it comes in chunks.
func (h *head) copyBody(w io.Writer, r io.Reader) error {
	if !h.chunked {
		_, err := io.CopyN(w, r, h.length)
		return err
	}
	bw := bufio.NewWriterSize(w, 32<<10)
	cw := httputil.NewChunkedWriter(bw)
	if err := copyFlushed(cw, r, bw.Flush); err != nil {
		return err
	}
	if err := cw.Close(); err != nil {
		return err
	}
	bw.WriteString("\r\n")
	return bw.Flush()
}

// sentFor is how long an answer waits for the end of its request.
const sentFor = 100 * time.Millisecond

// reply passes an answer on, and says whether the client sees where it ends.
func (s *session) reply(h *head, resp *http.Response, sent <-chan struct{}) (keep bool, err error) {
	// The body is not closed: that would read all that a client no longer wants.
	// The connection is, by whoever opened it.
	empty := h.method == "HEAD" || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	keep = !h.last
	var own []field
	chunked := false
	switch {
	case resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified:
	case resp.ContentLength >= 0:
		own = append(own, field{"Content-Length", strconv.FormatInt(resp.ContentLength, 10)})
	case empty:
	case h.minor == 1:
		chunked = true
		own = append(own, field{"Transfer-Encoding", "chunked"})
	default:
		keep = false
	}
	select {
	case <-sent:
	case <-time.After(sentFor): // an answer before the end of the request: what is left of it has no reader
		keep = false
	}
	if !keep {
		own = append(own, field{"Connection", "close"})
	} else if h.minor == 0 {
		own = append(own, field{"Connection", "keep-alive"})
	}
	bw := bufio.NewWriterSize(s.conn, 32<<10)
	if err := writeHead(bw, resp, own); err != nil {
		return false, err
	}
	if empty {
		return keep, bw.Flush()
	}
	if !chunked {
		if err := copyFlushed(bw, resp.Body, bw.Flush); err != nil {
			return false, err
		}
		return keep, bw.Flush()
	}
	cw := httputil.NewChunkedWriter(bw)
	if err := copyFlushed(cw, resp.Body, bw.Flush); err != nil {
		return false, err // without the last chunk: the client sees that it is cut off
	}
	if err := cw.Close(); err != nil {
		return false, err
	}
	bw.WriteString("\r\n")
	return keep, bw.Flush()
}

// writeHead writes the head of an answer without what ended here. The reason
// phrase is the standard's: that of the server is free text.
func writeHead(w io.Writer, resp *http.Response, own []field) error {
	var b strings.Builder
	text := http.StatusText(resp.StatusCode)
	if text == "" {
		text = "Status"
	}
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", resp.StatusCode, text)
	for _, v := range resp.Header["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.Trim(name, " \t"); isToken(name) && !strings.EqualFold(name, "upgrade") {
				resp.Header.Del(name)
			}
		}
	}
	for name := range resp.Header {
		if lower := strings.ToLower(name); lower == "content-length" || slices.Contains(hop, lower) {
			delete(resp.Header, name)
		}
	}
	if err := resp.Header.Write(&b); err != nil {
		return err
	}
	for _, f := range own {
		b.WriteString(f.name + ": " + f.value + "\r\n")
	}
	b.WriteString("\r\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// copyFlushed passes on what there is as soon as it is there.
func copyFlushed(w io.Writer, r io.Reader, flush func() error) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if werr := flush(); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// upgraded passes the answer on, and then bytes both ways.
func (s *session) upgraded(resp *http.Response, br *bufio.Reader, c *Conn) error {
	if err := writeHead(s.conn, resp, []field{{"Connection", "Upgrade"}, {"Upgrade", "websocket"}}); err != nil {
		return err
	}
	if n := br.Buffered(); n > 0 {
		early, _ := br.Peek(n)
		if _, err := s.conn.Write(early); err != nil {
			return err
		}
	}
	var first []byte
	if n := s.br.Buffered(); n > 0 {
		first, _ = s.br.Peek(n)
	}
	c.with(s.conn).run(first)
	return nil
}

// answer tells the client why not, and ends the connection.
func (s *session) answer(err error) {
	status := http.StatusForbidden
	switch ReasonOf(err) {
	case ReasonForm, ReasonProtocol:
		status = http.StatusBadRequest
	case ReasonResolve, ReasonDial:
		status = http.StatusBadGateway
	case ReasonLimit:
		status = http.StatusTooManyRequests
	case ReasonRecord, ReasonClosed:
		status = http.StatusServiceUnavailable
	}
	body := "caisson: " + forTask(err) + "\n"
	s.last([]byte(fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nX-Caisson-Refused: %s\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), ReasonOf(err), body)))
}
