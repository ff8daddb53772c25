package egress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// purse lends one secret.
type purse struct {
	mu   sync.Mutex
	out  []Outgoing
	back int
	sum  string
	err  error
}

func (p *purse) Reads(d Dest) bool { return d.Host.Name() == "example.com" }

func (p *purse) Lend(_ context.Context, r *Outgoing) (Loan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Path == "/summed" {
		sum, err := r.Sum()
		if err != nil {
			return nil, err
		}
		p.sum = hex.EncodeToString(sum)
	}
	p.out = append(p.out, *r)
	if p.err != nil || !r.TLS {
		return nil, p.err
	}
	r.Header.Set("Authorization", "Bearer SECRET")
	return p, nil
}

func (p *purse) Answer(h http.Header) {
	for _, v := range h {
		for i := range v {
			v[i] = strings.ReplaceAll(v[i], "SECRET", "***")
		}
	}
}

func (p *purse) Body(r io.Reader) io.Reader {
	b, _ := io.ReadAll(r)
	return strings.NewReader(strings.ReplaceAll(string(b), "SECRET", "***"))
}

func (p *purse) Back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.back++
}

func TestLoansGoIntoRequestsAndOutOfAnswers(t *testing.T) {
	port, roots := secureWeb(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/packed" {
			w.Header().Set("Content-Encoding", "gzip")
		}
		w.Header().Set("Trailer", "X-Late")
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s%s", r.Header.Get("Authorization"), r.Header.Get("Accept-Encoding"), b)
		w.Header().Set("X-Late", r.Header.Get("Authorization"))
	}))
	for _, two := range []bool{false, true} {
		p := &purse{}
		w := reading(t, Config{Roots: roots, Lender: p, Judge: only("example.com"), Reads: func(Dest) bool { return false }}, port)
		c := w.client(t, two)
		resp, err := c.Post(w.url("/x?q=1"), "", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "Bearer *** identityhello" || resp.Header.Get("X-Echo") != "Bearer ***" || resp.Trailer.Get("X-Late") != "Bearer ***" && two {
			t.Errorf("%v: %q %v %v", two, b, resp.Header, resp.Trailer)
		}
		w.notes.finished(t)
		if p.back != 1 || len(p.out) != 1 || p.out[0].Path != "/x" || p.out[0].Query != "q=1" || !p.out[0].TLS || p.out[0].Crossing != 1 {
			t.Errorf("%v: %+v", two, p)
		}
		// The digest of a body, before it is sent: of one with a length and one without.
		for _, body := range []io.Reader{strings.NewReader("hello"), io.MultiReader(strings.NewReader("hello"))} {
			p.sum = ""
			if resp, err = c.Post(w.url("/summed"), "", body); err != nil {
				t.Fatal(err)
			}
			b, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
			if sum := sha256.Sum256([]byte("hello")); p.sum != hex.EncodeToString(sum[:]) || string(b) != "Bearer *** identityhello" {
				t.Errorf("%v: %s %q", two, p.sum, b)
			}
			w.notes.finished(t)
			p.back--
		}
		resp, err = c.Get(w.url("/packed"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		w.notes.finished(t)
		if resp.StatusCode != 400 || bytes.Contains(b, []byte("SECRET")) || p.back != 2 {
			t.Errorf("%v: %d %q", two, resp.StatusCode, b)
		}
		p.mu.Lock()
		p.err = errors.New("not to this one")
		p.mu.Unlock()
		resp, err = c.Get(w.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 403 || p.back != 2 {
			t.Errorf("%v: %d %+v", two, resp.StatusCode, p)
		}
		w.notes.finished(t)
	}
}

// TestLoansAndPackedMessages: messages of a WebSocket that are packed would hide
// what was lent, so they are not asked for, nor taken. Without a loan they pass.
func TestLoansAndPackedMessages(t *testing.T) {
	for _, c := range []struct {
		name         string
		lends, stub  bool // stub: the server packs whatever was asked
		passes, asks bool
	}{
		{"nothing is lent", false, false, true, true},
		{"lent", true, false, true, false},
		{"lent, by a server that packs all the same", true, true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := make(chan bool, 1)
			port, roots := secureWeb(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				packs := r.Header.Get("Sec-WebSocket-Extensions") != ""
				asked <- packs
				conn, rw, err := w.(http.Hijacker).Hijack()
				if err != nil {
					return
				}
				defer conn.Close()
				io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
				if packs || c.stub {
					io.WriteString(rw, "Sec-WebSocket-Extensions: permessage-deflate\r\n")
				}
				io.WriteString(rw, "\r\npacked")
				rw.Flush()
			}))
			cfg := Config{Roots: roots, Judge: only("example.com")}
			if c.lends {
				cfg.Lender = &purse{}
			}
			w := reading(t, cfg, port)
			tr := w.client(t, false)
			req, err := http.NewRequest("GET", w.url("/ws"), nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "websocket")
			req.Header.Set("Sec-WebSocket-Extensions", "permessage-deflate")
			resp, err := tr.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if got := <-asked; got != c.asks {
				t.Errorf("the server was asked to pack: %v", got)
			}
			if passed := resp.StatusCode == 101 && string(b) == "packed"; passed != c.passes {
				t.Errorf("%d %q", resp.StatusCode, b)
			}
			w.notes.finished(t)
		})
	}
}
