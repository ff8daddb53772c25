package egress

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
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
		port := uint16(80)
		if s.ended {
			port = 443
		}
		u, err := h.url(fixed, port)
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
	if s.ended {
		p = ProtoHTTPS
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
	s.pass(ProtoConnect, d, func(err error) bool {
		if err == nil {
			_, err := io.WriteString(s.conn, "HTTP/1.1 200 Connection established\r\n\r\n")
			return err == nil
		}
		s.answer(err)
		return false
	})
}

// url is where a request goes: of a proxy what its target says, of a tunnel
// where that leads. Its Host field says the same.
// port is the one that a Host field need not name.
func (h *head) url(fixed *Dest, port uint16) (URL, error) {
	var u URL
	var err error
	switch {
	case port == 443 && !strings.HasPrefix(h.target, "/") && h.target != "*":
		err = badDest("%s is no path", quoted(h.target))
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
	host, err := ParseAuthority(h.host, port)
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
	x := &sending{g: s.g, h: h, to: d, target: u.Path, tls: s.ended, spare: s.spare}
	if h.body() {
		x.body = h.bodyOf(s.br)
	}
	return x.do(s.g.ctx, s)
}

// reply passes an answer on, and says whether the client sees where it ends.
func (s *session) reply(x *sending, resp *http.Response, sent <-chan struct{}) (keep bool, err error) {
	h := x.h
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
	if err := x.trailerOf(resp).Write(bw); err != nil {
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
	dropHop(resp.Header)
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

// dropHop takes out of the header of an answer what ended here.
func dropHop(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = strings.Trim(name, " \t"); isToken(name) && !strings.EqualFold(name, "upgrade") {
				h.Del(name)
			}
		}
	}
	for name := range h {
		if lower := strings.ToLower(name); lower == "content-length" || slices.Contains(hop, lower) {
			delete(h, name)
		}
	}
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
func (s *session) upgraded(x *sending, resp *http.Response, br *bufio.Reader) error {
	c := x.c
	if err := writeHead(s.conn, resp, []field{{"Connection", "Upgrade"}, {"Upgrade", "websocket"}}); err != nil {
		return err
	}
	if n := br.Buffered(); n > 0 {
		early, _ := br.Peek(n)
		c.Conn = &replay{Conn: c.Conn, first: bytes.Clone(early)}
		c.count(&c.down, int64(-n)) // they are counted once more
	}
	if x.loan != nil {
		c.Conn = &through{c.Conn, x.loan.Body(c.Conn)}
	}
	var first []byte
	if n := s.br.Buffered(); n > 0 {
		first, _ = s.br.Peek(n)
	}
	c.with(s.conn).run(first)
	return nil
}

// interim implements front.
func (s *session) interim(x *sending, resp *http.Response) error {
	if x.h.minor != 1 {
		return nil
	}
	return writeHead(s.conn, resp, nil)
}

// quit implements front.
func (s *session) quit() { s.conn.SetReadDeadline(time.Unix(1, 0)) }

// statusOf is what a refusal is in HTTP.
func statusOf(err error) int {
	switch ReasonOf(err) {
	case ReasonForm, ReasonProtocol:
		return http.StatusBadRequest
	case ReasonResolve, ReasonDial, ReasonTLS:
		return http.StatusBadGateway
	case ReasonLimit:
		return http.StatusTooManyRequests
	case ReasonRecord, ReasonClosed:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// answer tells the client why not, and ends the connection.
func (s *session) answer(err error) {
	status := statusOf(err)
	body := "caisson: " + forTask(err) + "\n"
	s.last([]byte(fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nX-Caisson-Refused: %s\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), ReasonOf(err), body)))
}
