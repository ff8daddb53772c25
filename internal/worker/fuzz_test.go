package worker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// silent is a channel on which nothing is ever heard.
type silent struct{}

func (silent) Recv([]byte) (int, []int, error) { select {} }
func (silent) Send([]byte, []int) error        { return nil }
func (silent) Close() error                    { return nil }

// said is one frame of the worker: only what a key holder could send, so that
// this begins where the tag ends.
type said struct {
	kind frame.Kind
	op   uint64
	body []byte
}

// waiting is a client with one of each kind of thing outstanding: a ping (2), a
// call that nobody answered yet (3), one that runs (4), one that is being
// canceled (5); a tool (6), and a search that tells what it finds (7).
func waiting(t testing.TB) (*Client, map[uint64]*Call) {
	conn, err := frame.Dial(silent{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{conn: conn, lastOp: 5, ops: map[uint64]*pending{}, watchers: map[*Call]bool{}, done: make(chan struct{}), lastOK: time.Now()}
	calls := map[uint64]*Call{}
	for op := uint64(2); op <= 5; op++ {
		p := &pending{digest: "d", reply: make(chan answer, 1)}
		if op > 2 {
			p.call = &Call{c: c, begun: time.Now(), op: op, digest: "d", startup: make(chan struct{}), settledCh: make(chan struct{}), outcomeCh: make(chan struct{}), lostCh: make(chan struct{})}
			p.fds = 1
			calls[op] = p.call
		}
		c.ops[op] = p
		if op > 3 {
			f := frame.Frame{Kind: frame.Reply, Op: op, Body: []byte(`{"req":"d","ok":true,"pid":7}`)}
			if err := c.dispatch(&f); err != nil {
				t.Fatal(err)
			}
		}
	}
	calls[5].cancels = 2
	c.lastOp = 7
	c.ops[6] = &pending{digest: "d", reply: make(chan answer, 1), tool: true, fds: 2}
	c.ops[7] = &pending{digest: "d", reply: make(chan answer, 1), tool: true, fds: 2, found: make(chan json.RawMessage, frame.MaxFound)}
	return c, calls
}

// FuzzAnswers: a worker that has the key and says what it likes. Each frame is
// either what its place in the conversation allows or ends the channel; nothing
// is told of an operation that was not asked for, and no call ends twice.
func FuzzAnswers(f *testing.F) {
	seed := func(l ...said) {
		var b []byte
		for _, s := range l {
			b = append(b, byte(s.kind), byte(s.op), byte(len(s.body)>>8), byte(len(s.body)))
			b = append(b, s.body...)
		}
		f.Add(b)
	}
	exit := []byte(`{"req":"d","event":"exit","status":256}`)
	seed(said{frame.Reply, 2, []byte(`{"req":"d","ok":true,"protocol":"caisson/1"}`)}, said{frame.Event, 4, exit})
	seed(said{frame.Event, 3, exit})
	seed(said{frame.Reply, 3, []byte(`{"req":"d","ok":true}`)}, said{frame.Event, 3, exit}, said{frame.Event, 3, exit})
	seed(said{frame.Reply, 3, []byte(`{"req":"d","code":"not_found"}`)}, said{frame.Event, 3, exit})
	seed(said{frame.Event, 5, exit}, said{frame.Event, 5, []byte(`{"req":"d","event":"clear"}`)}, said{frame.Event, 5, []byte(`{"req":"d","event":"ended"}`)}, said{frame.Event, 5, []byte(`{"req":"d","event":"ended"}`)})
	seed(said{frame.Event, 4, []byte(`{"req":"d","event":"clear"}`)})
	seed(said{frame.Event, 3, []byte(`{"req":"d","event":"lost"}`)}, said{frame.Reply, 3, []byte(`{"req":"d","ok":true}`)})
	seed(said{frame.Reply, 2, []byte(`{"req":"D","ok":true}`)})
	found := []byte(`{"req":"d","event":"found","result":{"path":"/x","files":[]}}`)
	seed(said{frame.Event, 7, found}, said{frame.Event, 7, found}, said{frame.Reply, 7, []byte(`{"req":"d","ok":true,"result":{}}`)}, said{frame.Event, 7, found})
	seed(said{frame.Event, 6, found})
	seed(said{frame.Event, 4, found})
	seed(said{frame.Reply, 6, []byte(`{"req":"d","ok":true,"event":"found","result":{}}`)})
	seed(said{frame.Request, 9, []byte(`{"op":"ping"}`)})
	f.Fuzz(func(t *testing.T, script []byte) {
		c, calls := waiting(t)
		for len(script) >= 4 {
			n := min(int(script[2])<<8|int(script[3]), len(script)-4)
			fr := frame.Frame{Kind: frame.Kind(script[0]), Op: uint64(script[1]), Body: script[4 : 4+n]}
			script = script[4+n:]
			known, lateLeft := c.ops[fr.Op] != nil, c.late.left[fr.Op].n
			listens := known && c.ops[fr.Op].found != nil
			before := map[uint64]bool{}
			for op, k := range calls {
				before[op] = k.outcome != nil || k.state != settledNot
			}
			if err := c.dispatch(&fr); err != nil {
				return // the channel ends here
			}
			var b frame.ReplyBody
			if !known && lateLeft == 0 {
				t.Fatalf("believed about operation %d, which nobody waits for: %q", fr.Op, fr.Body)
			}
			if json.Unmarshal(fr.Body, &b) != nil || b.Req != "d" || (fr.Kind != frame.Reply && fr.Kind != frame.Event) {
				t.Fatalf("believed: kind %d, %q", fr.Kind, fr.Body)
			}
			if found := fr.Kind == frame.Event && b.Event == frame.EventFound; found != (fr.Kind == frame.Event && fr.Op == 7) || found && (!listens || len(b.Result) > frame.ToolInline || b.Result[0] != '{') {
				t.Fatalf("believed that %d found %q", fr.Op, fr.Body)
			}
			for op, k := range calls {
				if op != fr.Op && before[op] != (k.outcome != nil || k.state != settledNot) {
					t.Fatalf("a frame about %d ended %d", fr.Op, op)
				}
				if k.outcome != nil && !k.exited {
					t.Fatalf("%d has an outcome without an exit", op)
				}
				if k.outcome != nil && k.outcome.Observed {
					t.Fatalf("%d: a claim is shown as observed", op)
				}
			}
		}
	})
}
