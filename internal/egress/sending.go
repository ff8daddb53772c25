package egress

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"
)

// sending is one request on its way out, whichever version of HTTP it came in.
type sending struct {
	g      *Gate
	h      *head
	to     Dest
	target string // path and query, as they go to the server
	tls    bool
	body   io.Reader // without its framing; nil: none
	// trailer of the request, which is there once the body was read; nil: none.
	trailer http.Header

	spare *spare // that it may take; nil: none
	c     *Conn
	loan  Loan
}

// front is the program's end of a request.
type front interface {
	// interim passes on an answer before the final one.
	interim(x *sending, resp *http.Response) error
	// reply passes the final one on, and says whether the program may ask for more.
	// sent is closed when the request's body has left.
	reply(x *sending, resp *http.Response, sent <-chan struct{}) (keep bool, err error)
	// upgraded passes on an answer that changes the protocol, and what follows it.
	upgraded(x *sending, resp *http.Response, br *bufio.Reader) error
	// answer tells why not.
	answer(err error)
	// quit ends a read of the request's body that goes on.
	quit()
	// proceed tells a program that waits for it to send its body.
	proceed() error
	// watch returns a context that ends with the program, until stop is called.
	watch(ctx context.Context) (_ context.Context, stop func())
}

// do decides about the request, sends it once, on a connection of its own, and
// passes on what comes back.
func (x *sending) do(ctx context.Context, f front) (keep bool) {
	r := Request{Proto: ProtoHTTP, Dest: x.to, Method: x.h.method}
	if x.tls {
		r.Proto = ProtoHTTPS
	}
	r.Path, _, _ = strings.Cut(x.target, "?")
	hold := x.g.hold(x.h, x.to, x.target, x.tls, x.body)
	defer hold.release()
	hold.more, hold.watch = f.proceed, f.watch
	r.act, r.hold, r.spare = hold.act, hold, x.spare
	c, err := x.g.Open(ctx, r)
	if err != nil {
		f.answer(err)
		return false
	}
	x.c, x.body = c, hold.sent()
	if hold.looks != nil {
		x.trailer = nil // it is in no digest, and no person saw it
	}
	if hold.looks != nil {
		x.trailer = nil // nobody was shown it
	}
	raw := c.Conn
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	two := false
	if x.tls {
		two, err = x.g.tls.secure(ctx, c, x.to, x.h.minor == 2)
	}
	if err == nil {
		err = x.borrow(ctx, r.Path, hold)
	}
	switch {
	case err != nil:
		f.answer(err)
	case two:
		keep, err = x.exchange2(ctx, f)
	default:
		keep, err = x.exchange(ctx, f)
	}
	err = x.cause(err)
	if x.loan != nil {
		x.loan.Back()
	}
	hold.release()
	c.finish(err) // an upgraded one is finished by now
	return keep && err == nil
}

// cause is why the request failed: where bytes were used up, all else came of that.
func (x *sending) cause(err error) error {
	if err == nil || ReasonOf(err) == ReasonLimit {
		return err
	}
	if spent := (metered{x.c}).spent(); spent != nil {
		return spent
	}
	return err
}

// borrow gives the request what it is lent.
func (x *sending) borrow(ctx context.Context, path string, hold *holding) error {
	if x.g.Lender == nil {
		return nil
	}
	_, query, _ := strings.Cut(x.target, "?")
	o := &Outgoing{Crossing: x.c.id, Dest: x.to, TLS: x.tls, Method: x.h.method, Path: path, Query: query, Header: http.Header{}, Length: x.h.length}
	if x.h.chunked {
		o.Length = -1
	}
	frames := func(f field) bool { return slices.Contains(framing, strings.ToLower(f.name)) }
	for _, f := range x.h.fields {
		if !frames(f) {
			o.Header.Add(f.name, f.value)
		}
	}
	o.Sum = func() ([]byte, error) {
		held, err := hold.all(ctx)
		if err != nil {
			return nil, err
		}
		x.body = hold.sent()
		o.Header.Del("Expect") // it was told to send it
		return hex.DecodeString(held.SHA256)
	}
	loan, err := x.g.Lender.Lend(ctx, o)
	if err != nil {
		return refuse(ReasonRule, "%s: %v", x.to, err)
	}
	var fields []field
	for _, f := range x.h.fields {
		if frames(f) {
			fields = append(fields, f) // nothing is changed about where it ends
		}
	}
	if x.loan = loan; loan == nil {
		return nil
	}
	// What was lent can be seen in an answer only if that is not packed.
	o.Header.Set("Accept-Encoding", "identity")
	o.Header.Del("Sec-Websocket-Extensions") // they pack messages
	for _, name := range slices.Sorted(maps.Keys(o.Header)) {
		for _, v := range o.Header[name] {
			f := field{name, v}
			if err := f.check(); err != nil || !isToken(name) || slices.Contains(framing, strings.ToLower(name)) || slices.Contains(hop, strings.ToLower(name)) {
				return refuse(ReasonForm, "%s: what is lent does not fit into a header field", x.to)
			}
			fields = append(fields, f)
		}
	}
	x.h.fields = fields
	return nil
}

// received takes out of an answer what was lent.
func (x *sending) received(resp *http.Response) error {
	if x.loan == nil {
		return nil
	}
	if packed := strings.Join(resp.Header.Values("Content-Encoding"), ","); packed != "" && !strings.EqualFold(packed, "identity") && x.h.method != "HEAD" {
		return refuse(ReasonProtocol, "%s packs its answer although it was asked not to, so what was lent could not be seen in it", x.to)
	}
	x.loan.Answer(resp.Header)
	if x.h.method != "HEAD" && resp.Body != nil && resp.Body != http.NoBody && resp.ContentLength != 0 {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{x.loan.Body(resp.Body), resp.Body}
		resp.ContentLength = -1
	}
	return nil
}

// trailerOf is the trailer of an answer, once its body was read.
func (x *sending) trailerOf(resp *http.Response) http.Header {
	out := http.Header{}
	for name, v := range resp.Trailer {
		if lower := strings.ToLower(name); len(v) > 0 && isToken(name) && !slices.Contains(hop, lower) && !slices.Contains(framing, lower) {
			out[name] = v
		}
	}
	if x.loan != nil {
		x.loan.Answer(out)
	}
	return out
}

const (
	maxReply   = 1 << 20 // the head of an answer
	maxInterim = 16      // answers before the final one
)

// exchange sends the request as HTTP/1.1.
func (x *sending) exchange(ctx context.Context, f front) (keep bool, err error) {
	h, d, up := x.h, x.to, metered{x.c}
	if err := x.write(up); err != nil {
		f.answer(refuse(ReasonDial, "%s does not take the request", d))
		return false, err
	}
	var body sync.WaitGroup
	var bodyErr error
	o := &overseer{x: x, f: f, ended: make(chan struct{})}
	defer func() {
		o.end()
		if err != nil && o.gone.Load() {
			err = refuse(ReasonBroken, "the client is gone")
		}
	}()
	if x.body == nil {
		o.begin(ctx)
	} else {
		body.Go(func() {
			from := &failing{Reader: x.body}
			if bodyErr = h.copyBody(up, from); bodyErr == nil && !h.upgrade {
				o.begin(ctx)
			} else if bodyErr != nil && (from.failed || from.ended && !h.chunked) {
				o.leave() // no server can do anything with the half of it
			} else if ReasonOf(bodyErr) == ReasonLimit {
				x.c.Conn.Close() // nobody waits for an answer to what was not sent
			}
		})
		defer func() {
			if err != nil || !keep { // nobody waits for the rest of it
				x.c.Conn.Close()
				f.quit()
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
			f.answer(x.cause(refuse(ReasonDial, "%s gives no answer that can be read", d)))
			return false, err
		}
		limit.N = maxReply
		switch {
		case resp.StatusCode == http.StatusSwitchingProtocols:
			if !h.upgrade || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
				f.answer(refuse(ReasonProtocol, "%s changes to a protocol that was not asked for", d))
				return false, refuse(ReasonProtocol, "%s changes to a protocol that was not asked for", d)
			}
			limit.N = 1 << 62
			if x.loan != nil {
				if len(resp.Header.Values("Sec-Websocket-Extensions")) > 0 {
					err := refuse(ReasonProtocol, "%s packs its messages although it was not asked to, so what was lent could not be seen in them", d)
					f.answer(err)
					return false, err
				}
				x.loan.Answer(resp.Header)
			}
			o.end() // what the client says from here on is for the server
			return false, f.upgraded(x, resp, br)
		case resp.StatusCode < 200:
			if x.loan != nil {
				x.loan.Answer(resp.Header)
			}
			if err := f.interim(x, resp); err != nil {
				return false, err
			}
			continue
		}
		limit.N = 1 << 62
		if err := x.received(resp); err != nil {
			f.answer(err)
			return false, err
		}
		done := make(chan struct{})
		if x.body != nil {
			go func() { body.Wait(); close(done) }()
		} else {
			close(done)
		}
		return f.reply(x, resp, done)
	}
	f.answer(refuse(ReasonProtocol, "%s gives no final answer", d))
	return false, refuse(ReasonProtocol, "%s gives no final answer", d)
}

// write sends the head on: with our own word on where it goes and how it ends.
func (x *sending) write(w io.Writer) error {
	var b strings.Builder
	h := x.h
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", h.method, x.target, x.authority())
	for _, f := range h.fields {
		if h.minor == 2 && strings.EqualFold(f.name, "content-length") {
			continue
		}
		b.WriteString(f.name + ": " + f.value + "\r\n")
	}
	switch {
	case h.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case h.minor == 2 && (h.length > 0 || h.method == "POST" || h.method == "PUT" || h.method == "PATCH"):
		fmt.Fprintf(&b, "Content-Length: %d\r\n", h.length)
	}
	if h.upgrade {
		b.WriteString("Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	} else {
		b.WriteString("Connection: close\r\n\r\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// authority is where it goes as a Host field says it, without the port that goes
// without saying.
func (x *sending) authority() string {
	usual := ":80"
	if x.tls {
		usual = ":443"
	}
	return strings.TrimSuffix(x.to.String(), usual)
}

// copyBody sends the body on, in chunks of our own where its length is not known.
func (h *head) copyBody(w io.Writer, body io.Reader) error {
	if !h.chunked {
		n, err := io.CopyN(w, body, h.length)
		if n == h.length {
			return nil
		}
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
	bw := bufio.NewWriterSize(w, 32<<10)
	cw := httputil.NewChunkedWriter(bw)
	if err := copyFlushed(cw, body, bw.Flush); err != nil {
		return err
	}
	if err := cw.Close(); err != nil {
		return err
	}
	bw.WriteString("\r\n")
	return bw.Flush()
}

// exchange2 sends the request as HTTP/2, alone on its connection. Trailers pass
// both ways, and answers begin while the request goes on.
func (x *sending) exchange2(ctx context.Context, f front) (keep bool, err error) {
	cc, err := x.g.tls.clientConn(ctx, x.c, x.to)
	if err != nil {
		f.answer(refuse(ReasonDial, "%s does not take the request", x.to))
		return false, err
	}
	defer cc.Close()
	req := x.request2(ctx)
	resp, err := cc.RoundTrip(req) // of one connection, so it is not sent again
	if err != nil {
		if ReasonOf(err) == ReasonBroken {
			err = fmt.Errorf("%s gives no answer that can be read: %w", x.to, err)
		}
		f.answer(x.cause(refuse(ReasonDial, "%s gives no answer that can be read", x.to)))
		return false, err
	}
	if err := x.received(resp); err != nil {
		f.answer(err)
		return false, err
	}
	sent := make(chan struct{})
	close(sent)
	return f.reply(x, resp, sent)
}

// sentFor is how long an answer waits for the end of its request.
const sentFor = 100 * time.Millisecond
