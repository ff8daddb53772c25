package broker

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// mask stands where a secret stood, once for each byte: what comes back keeps its
// length.
const mask = '*'

// minCore is the least length of a needle that is part of a longer text in
// base64: a shorter one is found by chance.
const minCore = 8

// needles are the forms in which a server may give a secret back: as it is, in
// base64 wherever it stands in what was encoded, encoded for a URL, for JSON, for
// HTML, in hex. The longest come first.
func needles(secrets ...[]byte) [][]byte {
	var out [][]byte
	seen := map[string]bool{}
	add := func(b []byte) {
		if len(b) > 0 && !seen[string(b)] {
			seen[string(b)] = true
			out = append(out, b)
		}
	}
	for _, s := range secrets {
		if len(s) == 0 {
			continue
		}
		add(bytes.Clone(s))
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			for shift := range 3 {
				if c := core(enc, s, shift); len(c) >= minCore {
					add(c)
				}
			}
		}
		text := string(s)
		for _, e := range []string{url.QueryEscape(text), url.PathEscape(text), allEscaped(s), strings.ReplaceAll(text, "/", `\/`), html.EscapeString(text), hex.EncodeToString(s)} {
			add([]byte(e))
			add([]byte(lowerCodes(e)))
		}
		add([]byte(strings.ToUpper(hex.EncodeToString(s))))
		for _, escape := range []bool{true, false} {
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(escape)
			if enc.Encode(text) == nil {
				quoted := bytes.Trim(b.Bytes(), "\n")
				add(bytes.Clone(quoted[1 : len(quoted)-1]))
				add(bytes.ReplaceAll(quoted[1:len(quoted)-1], []byte("/"), []byte(`\/`)))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b []byte) int { return len(b) - len(a) })
	return out
}

// core is what of the encoding of any text with s in it, shift bytes after a
// group of three, s alone decides.
func core(enc *base64.Encoding, s []byte, shift int) []byte {
	in := append(make([]byte, shift), s...)
	out := []byte(enc.EncodeToString(in))
	clear(in)
	from := (shift*8 + 5) / 6 // the first character with no bit of what stands before
	to := len(in) * 8 / 6     // and the last with none of what follows
	if from >= to {
		return nil
	}
	return out[from:to]
}

func allEscaped(s []byte) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range s {
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}

// lowerCodes writes the digits of %XX small.
func lowerCodes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

// Loan is what one request was given: it keeps that out of what comes back.
type Loan struct {
	mu    sync.RWMutex
	first [256]bool
	all   [][]byte // nil: taken back
}

func newLoan(secrets ...[]byte) *Loan {
	l := &Loan{all: needles(secrets...)}
	for _, n := range l.all {
		l.first[n[0]] = true
	}
	return l
}

// Back ends the loan. What Body returned gives an error from here on.
func (l *Loan) Back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.all {
		clear(n)
	}
	l.all = nil
}

var errBack = errors.New("the loan was taken back")

// clean masks what was lent in b, in place. It returns how many bytes are done:
// the rest may be the beginning of a needle, unless last says that no more comes.
func (l *Loan) clean(b []byte, last bool) (int, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.all == nil {
		return 0, errBack
	}
next:
	for i := 0; i < len(b); {
		if !l.first[b[i]] {
			i++
			continue
		}
		rest, partly := b[i:], false
		for _, n := range l.all {
			switch {
			case bytes.HasPrefix(rest, n):
				for j := range n {
					rest[j] = mask
				}
				i += len(n)
				continue next
			case !last && len(rest) < len(n) && bytes.HasPrefix(n, rest):
				partly = true
			}
		}
		if partly {
			return i, nil
		}
		i++
	}
	return len(b), nil
}

// Answer takes what was lent out of the header of an answer, or its trailer.
func (l *Loan) Answer(h http.Header) {
	for name, values := range h {
		if b := []byte(name); l.masked(b) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			if b := []byte(v); l.masked(b) {
				values[i] = string(b)
			}
		}
	}
}

// masked cleans a whole text and says whether there was something. Of one that
// cannot be cleaned any more nothing is left.
func (l *Loan) masked(b []byte) bool {
	was := bytes.Clone(b)
	if _, err := l.clean(b, true); err != nil {
		for i := range b {
			b[i] = mask
		}
		return true
	}
	return !bytes.Equal(was, b)
}

// Body takes what was lent out of a stream, however that is cut. It holds back
// what may be the beginning of it, and nothing else.
func (l *Loan) Body(r io.Reader) io.Reader { return &cleaner{l: l, r: r} }

type cleaner struct {
	l    *Loan
	r    io.Reader
	buf  []byte // held back
	done int    // of buf: clean, and not read yet
	err  error
}

// Read implements io.Reader.
func (c *cleaner) Read(p []byte) (int, error) {
	for c.done == 0 {
		if c.err != nil {
			return 0, c.err
		}
		have := len(c.buf)
		size := max(len(p), 512)
		c.buf = slices.Grow(c.buf, size)
		n, err := c.r.Read(c.buf[have : have+size])
		c.buf = c.buf[:have+n]
		if err != nil {
			c.err = err
		}
		var cerr error
		// Of what broke off the beginning of a needle is kept back for ever: where it
		// breaks off may be of somebody's choosing.
		if c.done, cerr = c.l.clean(c.buf, c.err == io.EOF); cerr != nil {
			clear(c.buf)
			c.buf, c.done, c.err = nil, 0, cerr
			return 0, cerr
		}
	}
	n := copy(p, c.buf[:c.done])
	c.buf = c.buf[:copy(c.buf, c.buf[n:])]
	c.done -= n
	return n, nil
}
