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
