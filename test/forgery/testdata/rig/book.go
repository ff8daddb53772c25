//go:build linux && canary

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
)

// book is the accounting: what each process says it sent and took. The lines of
// those inside come over a pipe that no tool is given.
type book struct {
	mu    sync.Mutex
	rest  []byte
	lines map[string]map[string]int // "role what" → digest → times

	// what the host took last, for an attacker that knows everything but keys
	seq    uint64
	old    [][]byte
	sent   [][]byte // by the host, whole
	frames int      // of boundaries that are gone
	late   time.Duration
}

// hops are who must have sent what somebody takes.
var hops = [][2]string{
	{"relay accepted sent", "host dialed took"},
	{"host dialed sent", "relay accepted took"},
	{"relay dialed sent", "tools accepted took"},
	{"tools accepted sent", "relay dialed took"},
	{"call guardian sent", "tools guardian took"},
}

func newBook(late time.Duration) *book {
	b := &book{late: late, lines: map[string]map[string]int{}}
	sys.MirrorTo = b.add
	sys.MirrorRaw = b.raw
	return b
}

func (b *book) add(p []byte) {
	own := bytes.HasPrefix(p, []byte("canary host "))
	if !own && b.late > 0 {
		time.Sleep(b.late) // as on a machine that has no time for this program
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if own {
		b.line(string(p))
		return
	}
	b.rest = append(b.rest, p...)
	for {
		i := bytes.IndexByte(b.rest, '\n')
		if i < 0 {
			return
		}
		b.line(string(b.rest[:i]))
		b.rest = b.rest[i+1:]
	}
}

func (b *book) line(l string) {
	// A process that crashes leaves text of its own before it, without an end.
	f := strings.Fields(l[max(0, strings.LastIndex(l, "canary ")):])
	if len(f) != 5 || f[0] != "canary" {
		fmt.Fprintln(os.Stderr, "inside: "+l) // a crash of one of them
		return
	}
	k := strings.Join(f[1:4], " ")
	if b.lines[k] == nil {
		b.lines[k] = map[string]int{}
	}
	b.lines[k][f[4]]++
}

// raw sees the host's own frames.
func (b *book) raw(what string, parts ...[]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	whole := bytes.Join(parts, nil)
	switch what {
	case "dialed took":
		b.seq = binary.BigEndian.Uint64(whole[8:])
		if b.old = append(b.old, whole); len(b.old) > 8 {
			b.old = b.old[1:]
		}
	case "dialed sent":
		if binary.BigEndian.Uint64(whole[8:]) == 1 {
			b.seq = 0 // a new channel
		}
		if b.sent = append(b.sent, whole); len(b.sent) > 4096 {
			b.sent = b.sent[1:]
		}
	}
}

func (b *book) nextSeq() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seq + 1
}

// leaked reports whether text holds bytes of a frame that the host sent.
func (b *book) leaked(hexed string) bool {
	data, err := hex.DecodeString(hexed)
	if err != nil || len(data) == 0 {
		return false
	}
	if bytes.Contains(data, []byte("csn1")) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.sent {
		if bytes.Contains(data, f[32:64]) { // its tag
			return true
		}
	}
	return false
}

// total is how many frames W sent.
func (b *book) total() int {
	b.forget()
	return b.frames
}

// lastRequest is the operation and the digest of what the host asked for last.
func (b *book) lastRequest() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.sent) - 1; i >= 0; i-- {
		if f := b.sent[i]; f[4] == 1 && bytes.Contains(f, []byte(`"op":"exec"`)) {
			return fmt.Sprintf("%d %x", binary.BigEndian.Uint64(f[16:]), sha256.Sum256(f[64:]))
		}
	}
	return ""
}

// excess counts what was taken and never sent, and what was sent and not taken.
func (b *book) excess() (forged, missing int, where []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range hops {
		sent, took := b.lines[h[0]], b.lines[h[1]]
		f, m := 0, 0
		for d, n := range took {
			f += max(0, n-sent[d])
		}
		// A guardian that a tool kills may have noted what it then cannot send: its
		// call is of unknown outcome, which whoever made the call checks.
		for d, n := range sent {
			if h[0] != "call guardian sent" {
				m += max(0, n-took[d])
			}
		}
		if f > 0 || m > 0 {
			where = append(where, fmt.Sprintf("%s %d more, %s %d more", h[0], m, h[1], f))
		}
		forged, missing = forged+f, missing+m
	}
	return forged, missing, where
}

// end counts once for a boundary that is gone, when all that its processes had to
// say was read. Lines that came later would stand in the next boundary's books,
// where nobody sent what they say was taken.
func (b *book) end() (forged int, where []string, err error) {
	for end := time.Now().Add(limit); sys.Streams.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			err = errors.New("the lines of a boundary that is gone do not end: its books cannot be closed")
			break
		}
	}
	forged, _, where = b.excess()
	return forged, where, err
}

// settle waits until the books of a boundary that lives agree, or no longer than
// limit. What was sent may lie in a pipe still.
func (b *book) settle(limit time.Duration) (forged, missing int, where []string) {
	patience := limit
	if sys.Without("mac") && sys.Without("sender") { // with a forgery they never will
		patience = 2 * time.Second
	}
	end, last := time.Now().Add(limit), ""
	for still := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		forged, missing, where = b.excess()
		if forged == 0 && missing == 0 || time.Now().After(end) {
			return forged, missing, where
		}
		if now := fmt.Sprint(forged, missing, where); now != last || forged == 0 {
			still, last = time.Now(), now
		} else if time.Since(still) > patience {
			return forged, missing, where
		}
	}
}

// forget drops all lines: a boundary is gone, and with it what its processes had
// still to say.
func (b *book) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.lines["relay accepted sent"] {
		b.frames += n
	}
	b.lines, b.rest = map[string]map[string]int{}, nil
}
