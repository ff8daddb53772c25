package boundary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// wayDoor is the door of questions that connections ask.
const wayDoor = "egress"

// askWay has a person say whether a connection, or a request as a whole, may
// leave. Their answer is bound to its destination and, where they can be read, to
// all of the request. What it returns is said inside.
func (m *Manager) askWay(l *live) egress.Asker {
	return func(ctx context.Context, p egress.Point, rule string) (bool, error) {
		ctx, stop := l.while(ctx)
		defer stop()
		what := pointText(p)
		sum := sha256.Sum256([]byte(strings.Join([]string{l.plan, p.Host, p.Addr.String(), strconv.Itoa(int(p.Port)), p.Method, p.Path}, "\x00")))
		q := task.Question{Digest: hex.EncodeToString(sum[:]), Actor: "a program inside", Tool: "connect to " + what, Rule: approval.Visible(rule)}
		q.Call = what
		if p.Method != "" {
			q.Argv = []string{approval.Visible(p.Method), approval.Visible(urlOf(p))}
			q.Script = approval.Visible(p.Method) + " " + approval.Cut(urlOf(p), maxShownURL, seenWhole)
		}
		if p.Held != nil {
			showHeld(&q, p)
		}
		return m.askOutward(ctx, l, q)
	}
}

// askOutward has a person answer a question about the way out. A yes for the rest
// of the task is one for this alone, of which only the digest says all: the tool's
// text is cut where it is long, and programs inside choose what stands in it.
func (m *Manager) askOutward(ctx context.Context, l *live, q task.Question) (bool, error) {
	if l.unattended {
		return false, task.Errorf(task.CodeDenied, "egress", "a person is to agree to it (%s), and nobody attends this task: it stays undone; leave it to the person, or say in the result what is left to do", q.Rule)
	}
	if l.queue.Granted(q.Tool, q.Digest) != "" {
		return true, nil
	}
	wait := l.asking.Wait
	if wait <= 0 {
		wait = askTime
	}
	now := time.Now()
	leave, err := l.outward.enter(now)
	if err != nil {
		return false, err
	}
	defer leave()
	q.ID, q.Task, q.Name, q.Plan, q.Asked, q.Expires = string(l.id)+"."+task.NewToken()[:6], l.id, l.name, l.plan, now, now.Add(wait)
	if _, err := l.log.Append(ctx, evidence.ApprovalAsked, self, map[string]any{"question": q.ID, "call": q.Call, "tool": q.Tool, "digest": q.Digest, "rule": q.Rule, "plan": q.Plan, "expires": q.Expires.UTC()}); err != nil {
		return false, err
	}
	w := l.queue.AskExact(q, wayDoor, q.Digest)
	hctx, done := context.WithCancel(ctx)
	defer done()
	m.hook(hctx, l, q)
	a, err := w.Wait(ctx)
	if err != nil {
		dctx, done := sys.Detach(ctx, time.Minute)
		defer done()
		if _, lerr := l.log.Append(dctx, evidence.ApprovalVoid, self, map[string]any{"question": q.ID, "call": q.Call, "why": err.Error()}); lerr != nil {
			m.cfg.Log("task " + string(l.id) + ": " + lerr.Error())
		}
		return false, task.Errorf(task.CodeOf(err), "egress", "a person is to agree to it (%s), and nobody did within %s: nothing was sent; ask the person to watch `caisson approve` and try again", q.Rule, wait.Round(time.Second))
	}
	if !a.Allow {
		text := "a person denied it"
		if a.Reason != "" {
			text += ": " + approval.Visible(short(a.Reason, 500))
		}
		return false, task.Errorf(task.CodeDenied, "egress", "%s; nothing was sent, and the same again will be asked about again: do what the reason says, or leave it", text)
	}
	if _, err = l.log.Append(ctx, evidence.ApprovalUsed, self, map[string]any{"question": q.ID, "call": q.Call, "digest": q.Digest}); err != nil {
		return false, err
	}
	return true, nil
}

// maxShownBody is how much of a body a person is shown as text, and maxShownURL of
// an address; seenWhole shows all of that.
const (
	maxShownBody = 2000
	maxShownURL  = 4000
	seenWhole    = "`caisson approve --json`"
)

// showHeld puts a request as a whole into a question. What is shown comes from
// inside, so every control in it is made visible; the query is for the person and
// not for the record.
func showHeld(q *task.Question, p egress.Point) {
	h := p.Held
	name := h.Method
	if h.Act != "" {
		name = string(h.Act)
	}
	plain, _, _ := strings.Cut(h.URL, "?")
	plain = approval.Cut(plain, 500, "")
	q.Digest = h.Digest
	q.Call = approval.Visible(h.Method) + " " + plain
	q.Tool = name + " at " + plain + ", request " + h.Digest[:12]
	q.Argv = []string{approval.Visible(h.Method), approval.Visible(h.URL)}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", approval.Visible(h.Method), approval.Cut(h.URL, maxShownURL, seenWhole))
	for _, d := range h.Details {
		b.WriteString(approval.Cut(d, 500, "") + "\n")
	}
	switch {
	case h.Length == 0:
		b.WriteString("without a body")
	case h.Act == egress.ActPush, !utf8.Valid(h.Begin) && !utf8.Valid(h.Begin[:max(0, len(h.Begin)-utf8.UTFMax)]):
		fmt.Fprintf(&b, "body of %d bytes, sha256 %s", h.Length, h.SHA256)
	default:
		text := string(h.Begin[:min(len(h.Begin), maxShownBody)])
		fmt.Fprintf(&b, "body of %d bytes, sha256 %s:\n%s", h.Length, h.SHA256, approval.Lines(strings.ToValidUTF8(text, "\ufffd")))
		if h.Length > int64(len(text)) {
			fmt.Fprintf(&b, "\n[%d more bytes are not shown]", h.Length-int64(len(text)))
		}
	}
	q.Script = b.String()
}

// pointText is a point in words: METHOD URL or HOST:PORT.
func pointText(p egress.Point) string {
	if p.Method == "" {
		return urlOf(p)
	}
	return approval.Cut(p.Method+" "+urlOf(p), 500, "")
}

// urlOf is where a point is, without a query: a URL, or HOST:PORT where only the
// connection is known.
func urlOf(p egress.Point) string {
	host := p.Host
	if host == "" {
		host = p.Addr.String()
	}
	at := net.JoinHostPort(host, strconv.Itoa(int(p.Port)))
	switch {
	case p.Method == "":
		return at
	case p.Proto == egress.ProtoHTTPS:
		return "https://" + at + p.Path
	}
	return "http://" + at + p.Path
}

// Bounds of the questions that something inside can cause, so that a person is
// not worn down.
const (
	maxOutwardWaiting = 32
	maxOutwardAsked   = 200
	outwardSpan       = 10 * time.Minute
)

// outwardQuestions counts them.
type outwardQuestions struct {
	mu      sync.Mutex
	waiting int
	asked   []time.Time // in the last outwardSpan
	denied  map[string]time.Time
}

// refused says that a person said no to the same not long ago.
func (o *outwardQuestions) refused(wants []string, now time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t, ok := o.denied[strings.Join(wants, "\x00")]; ok && now.Sub(t) < outwardSpan {
		return task.Errorf(task.CodeDenied, "egress", "a person was asked about this a short while ago and did not agree, so they are not asked again yet").WithHint("go on without it")
	}
	return nil
}

// deny notes that a person said no.
func (o *outwardQuestions) deny(wants []string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.denied == nil || len(o.denied) > maxOutwardAsked {
		o.denied = map[string]time.Time{}
	}
	o.denied[strings.Join(wants, "\x00")] = now
}

// enter counts a question in. leave is called once it is over.
func (o *outwardQuestions) enter(now time.Time) (leave func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.asked) > 0 && now.Sub(o.asked[0]) > outwardSpan {
		o.asked = o.asked[1:]
	}
	if o.waiting >= maxOutwardWaiting || len(o.asked) >= maxOutwardAsked {
		return nil, task.Errorf(task.CodeLimit, "egress", "a person is to agree to it, and was asked too much already: %d questions of this task wait and %d were asked in %s", o.waiting, len(o.asked), outwardSpan)
	}
	o.waiting++
	o.asked = append(o.asked, now)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.waiting--
	}, nil
}

// spool makes a file without a name in the task's folder.
func (l *live) spool() (*os.File, error) { return sys.Unnamed(l.dir) }
