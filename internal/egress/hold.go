package egress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/caisson-dev/caisson/internal/task"
)

// Held is a request as a whole, which waits here for a person's answer. After it
// exactly this is sent, once.
type Held struct {
	Act     Act
	Method  string
	URL     string   // with the query
	Details []string // what is known of what it does, in words of the request's: not yet visible
	Length  int64    // of the body
	SHA256  string   // of the body, in hex
	Begin   []byte   // of the body
	// Digest is of method, destination, path, query, all header fields and body.
	Digest string
}

// Bounds of what is held.
const (
	maxMemory = 256 << 10 // of a body, before it goes into a file
	maxHeld   = 256 << 20 // of one body
	maxAll    = 1 << 30   // of all that are held at a time
	maxLook   = 1 << 20   // of a body that is looked at
	maxBegin  = 2000      // of a body that is shown
)

// holding is a request that may have to be held.
type holding struct {
	g      *Gate
	h      *head
	to     Dest
	target string
	tls    bool
	body   io.Reader // nil: none
	// more tells the client that it may send its body, where it waits for that.
	more func() error
	// watch ends a context with the client.
	watch func(context.Context) (context.Context, func())

	act   Act
	maybe bool
	looks *Held
	mem   []byte
	file  *os.File
	size  int64
}

// ask has a person decide. A request that can be read is held as a whole, and
// once it is known the policy is asked again: it may do nothing of what its head
// may mean. After an answer the policy is asked once more, for it may have
// changed while somebody thought.
func (g *Gate) ask(ctx context.Context, r *Request, d *Decision, p Point, a Answer) (Answer, error) {
	if x := r.hold; x != nil {
		stop := func() {}
		held, err := x.all(ctx)
		if err != nil {
			if ReasonOf(err) == ReasonBroken {
				err = refuse(ReasonBroken, "%s: the request broke off before a person could be asked about it", r.Dest)
			}
			return a, err
		}
		if held.Act != p.Act {
			p.Act, d.Act = held.Act, held.Act
			if a = g.Judge(p); a.Verdict == task.VerdictAllow {
				return a, nil
			}
		}
		p.Held, d.Digest = held, held.Digest
		if x.watch != nil {
			ctx, stop = x.watch(ctx)
		}
		defer stop()
	}
	if a.Verdict == task.VerdictAsk {
		if g.Ask == nil {
			return a, refuse(ReasonAsk, "%s: a person is to agree, and nobody can be asked here", r.Dest)
		}
		yes, err := g.Ask(ctx, p, a.Rule)
		if err != nil {
			return a, refuse(ReasonAsk, "%s: %v", r.Dest, err)
		}
		if !yes {
			return a, refuse(ReasonAsk, "%s: a person was asked and did not agree", r.Dest)
		}
		if ctx.Err() != nil {
			return a, refuse(ReasonBroken, "%s: nobody waits for the request any more", r.Dest)
		}
		d.Asked = true
		p.Held = nil
		a = g.Judge(p)
	}
	if a.Verdict != task.VerdictAllow && a.Verdict != task.VerdictAsk {
		return a, refuse(ReasonRule, "%s: %s", r.Dest, a.Rule)
	}
	return a, nil
}

// hold prepares a request for a question about it. The caller calls release.
func (g *Gate) hold(h *head, to Dest, target string, tls bool, body io.Reader) *holding {
	x := &holding{g: g, h: h, to: to, target: target, tls: tls, body: body}
	x.act, x.maybe = g.actOf(h, to, target)
	return x
}

// release gives back what holds the body.
func (x *holding) release() {
	if x.file != nil {
		x.file.Close()
		x.file = nil
	}
	x.g.held.Add(-x.size)
	x.mem, x.size = nil, 0
}

// all reads the request to its end. From then on its body comes from here.
func (x *holding) all(ctx context.Context) (*Held, error) {
	if x.looks != nil {
		return x.looks, nil
	}
	if x.h.upgrade {
		x.looks = &Held{Act: x.act, Method: x.h.method, URL: x.url()}
		x.looks.SHA256, x.looks.Digest = x.digests(sha256.New().Sum(nil))
		return x.looks, nil
	}
	sum := sha256.New()
	if x.body != nil {
		if x.more != nil && field1(x.h, "expect", "100-continue") {
			if err := x.more(); err != nil {
				return nil, err
			}
		}
		if x.h.length > maxHeld {
			return nil, tooLong(x.to)
		}
		buf := make([]byte, 64<<10)
		for {
			n, err := x.body.Read(buf)
			if n > 0 {
				sum.Write(buf[:n])
				if perr := x.put(buf[:n]); perr != nil {
					return nil, perr
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	begin, err := x.begin(maxLook)
	if err != nil {
		return nil, err
	}
	does, details := told(x.act, x.h, begin, x.size <= maxLook)
	act := x.act
	if x.maybe && !does {
		act = ""
	}
	x.looks = &Held{Act: act, Method: x.h.method, URL: x.url(), Details: details, Length: x.size, Begin: bytes.Clone(begin[:min(len(begin), maxBegin)])}
	x.looks.SHA256, x.looks.Digest = x.digests(sum.Sum(nil))
	// It goes on with its length, and nobody is asked for it once more.
	if x.h.fields = without(x.h.fields, "expect"); x.h.chunked {
		x.h.fields = append(x.h.fields, field{"Content-Length", strconv.FormatInt(x.size, 10)})
	}
	x.h.chunked, x.h.length = false, x.size
	return x.looks, nil
}

func without(fs []field, name string) []field {
	var out []field
	for _, f := range fs {
		if !strings.EqualFold(f.name, name) {
			out = append(out, f)
		}
	}
	return out
}

func tooLong(d Dest) error {
	return refuse(ReasonAsk, "%s: a person is to agree to this request as a whole, and it has more than %d MiB, the most that waits here", d, maxHeld>>20)
}

// put keeps some of the body: a little in memory, more in a file without a name.
func (x *holding) put(b []byte) error {
	if x.size+int64(len(b)) > maxHeld {
		return tooLong(x.to)
	}
	if x.g.held.Add(int64(len(b))) > maxAll {
		x.g.held.Add(-int64(len(b)))
		return refuse(ReasonLimit, "%s: the requests that wait for a person's answer have %d MiB together, which is all they may", x.to, maxAll>>20)
	}
	x.size += int64(len(b))
	if x.file == nil && x.size <= maxMemory {
		x.mem = append(x.mem, b...)
		return nil
	}
	if x.file == nil {
		if x.g.Spool == nil {
			return refuse(ReasonAsk, "%s: a person is to agree to this request as a whole, and there is no place for one of more than %d KiB", x.to, maxMemory>>10)
		}
		f, err := x.g.Spool()
		if err != nil {
			return refuse(ReasonAsk, "%s: there is no place in which the request could wait: %v", x.to, err).toTask("there is no place in which the request could wait for an answer")
		}
		x.file = f
		if _, err := f.Write(x.mem); err != nil {
			return spoolError(x.to, err)
		}
		x.mem = nil
	}
	if _, err := x.file.Write(b); err != nil {
		return spoolError(x.to, err)
	}
	return nil
}

func spoolError(d Dest, err error) error {
	return refuse(ReasonAsk, "%s: the request cannot be kept while it waits: %v", d, err).toTask("the request cannot be kept while it waits for an answer")
}

// begin returns the first n bytes of the body, or all of a shorter one.
func (x *holding) begin(n int) ([]byte, error) {
	if x.file == nil {
		return x.mem[:min(len(x.mem), n)], nil
	}
	b := make([]byte, min(int64(n), x.size))
	if _, err := x.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, spoolError(x.to, err)
	}
	return b, nil
}

// sent is the body to send: what was held, or what the client has yet to send.
func (x *holding) sent() io.Reader {
	switch {
	case x.looks == nil || x.body == nil || x.h.upgrade:
		return x.body
	case x.file != nil:
		return io.NewSectionReader(x.file, 0, x.size)
	}
	return bytes.NewReader(x.mem)
}

func (x *holding) url() string {
	scheme := "http://"
	if x.tls {
		scheme = "https://"
	}
	return scheme + x.to.String() + x.target
}

// digests are those of the body and of all.
func (x *holding) digests(body []byte) (string, string) {
	var b strings.Builder
	for _, s := range []string{"caisson request 1", x.h.method, x.url(), hex.EncodeToString(body)} {
		b.WriteString(strconv.Itoa(len(s)) + ":" + s)
	}
	for _, f := range x.h.fields {
		if !strings.EqualFold(f.name, "expect") {
			fmt.Fprintf(&b, "%d:%s%d:%s", len(f.name), f.name, len(f.value), f.value)
		}
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(body), hex.EncodeToString(sum[:])
}

// heldBytes counts what is held by one gate.
type heldBytes = atomic.Int64
