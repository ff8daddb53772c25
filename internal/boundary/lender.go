package boundary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("lend.noted", "lend.read", "lend.used", "lend.back")

// kindLoan is a secret that a supervisor holds in memory, or is about to.
const kindLoan = "loan"

// loanName is the name of a loan among resources.
func loanName(id task.ID, handle string) string { return string(id) + "/" + handle }

// lender is the desk of a task as its gate knows it.
type lender struct {
	m    *Manager
	l    *live
	desk *broker.Desk
	// rules has the policy looked at again; its error lends nothing.
	rules func() error

	mu   sync.Mutex
	told map[string]int // refusals on record, by handle
	held int            // secrets in memory
	stop context.CancelFunc
	done sync.WaitGroup
}

// newLender opens the desk of a task; nil: it is lent nothing. The caller closes
// it.
func (m *Manager) newLender(l *live, rules func() error) (*lender, error) {
	if len(l.lent) == 0 {
		return nil, nil
	}
	if err := sys.WithoutCore(); err != nil {
		return nil, task.Errorf(task.CodeInternal, "lend", "what this process holds could come into a core file: %w", err)
	}
	gone, err := l.goneOut()
	if err != nil {
		return nil, err
	}
	d := &lender{m: m, l: l, rules: rules, told: map[string]int{}}
	d.desk = broker.New(broker.Config{
		Lent: l.lent, Recorder: d, Ask: d.ask, Used: gone.used,
		Reader: broker.Reader{Getenv: func(k string) string { return valueOf(m.cfg.Environ, k) }, Run: m.cfg.Print},
	})
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.done.Go(func() { d.watch(ctx) })
	return d, nil
}

// watchTime is how often the policy is looked at while a secret is held.
const watchTime = 2 * time.Second

// watch has what the policy does not lend any more taken back, also when nobody
// uses it.
func (d *lender) watch(ctx context.Context) {
	tick := time.NewTicker(watchTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		held := d.held
		d.mu.Unlock()
		if held > 0 {
			_ = d.rules() // which tells the desk
		}
	}
}

// close takes everything back.
func (d *lender) close(why string) {
	if d == nil {
		return
	}
	d.stop()
	d.done.Wait()
	d.desk.Close(why)
}

// still has only those lent that a decision of now lends, as it says.
func (d *lender) still(lent []broker.Lent, why string) {
	if d == nil {
		return
	}
	var hs []broker.Handle
	for _, l := range lent {
		hs = append(hs, l.Handle)
	}
	d.desk.Still(hs, why)
}

// Reads implements egress.Lender.
func (d *lender) Reads(to egress.Dest) bool { return d.desk.Reads(to.Host.String(), to.Port) }

// Lend implements egress.Lender.
func (d *lender) Lend(ctx context.Context, r *egress.Outgoing) (egress.Loan, error) {
	if err := d.rules(); err != nil {
		return nil, err
	}
	ctx, stop := d.l.while(ctx)
	defer stop()
	loan, err := d.desk.Lend(ctx, &broker.Request{Crossing: r.Crossing, Host: r.Dest.Host.String(), Port: r.Dest.Port, TLS: r.TLS,
		Method: r.Method, Path: r.Path, Query: r.Query, Header: r.Header, Length: r.Length, Sum: r.Sum})
	if err != nil || loan == nil {
		return nil, err // of a nil *broker.Loan no interface that is not nil
	}
	return loan, nil
}

// Reading implements broker.Recorder.
func (d *lender) Reading(h *broker.Handle, until time.Time) error {
	ctx, done := sys.Detach(d.l.ctx, time.Minute)
	defer done()
	body := d.body(h)
	body["from"], body["until"] = h.From.Kind(), until.UTC()
	if h.Uses > 0 {
		body["most"] = h.Uses
	}
	if _, err := d.l.log.Append(ctx, evidence.CredentialLent, self, body); err != nil {
		return err
	}
	observed := "until " + until.UTC().Format(time.RFC3339)
	if h.Uses > 0 {
		observed += ", " + strconv.Itoa(h.Uses) + " uses"
	}
	err := d.m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		return tx.Intend(d.l.id, []inventory.Resource{{Resource: task.Resource{Kind: kindLoan, Name: loanName(d.l.id, h.Name), Token: d.l.token}, Provider: "broker", Observed: observed}})
	})
	if err != nil {
		return err
	}
	return sys.Fault("lend.noted")
}

// Read implements broker.Recorder.
func (d *lender) Read(h *broker.Handle, err error) {
	state := task.Present
	if err != nil {
		state = task.Gone
	}
	d.mark(h, state)
	if err == nil {
		d.mu.Lock()
		d.held++
		d.mu.Unlock()
		_ = sys.Fault("lend.read")
	}
}

func (d *lender) mark(h *broker.Handle, s task.ResourceState) {
	ctx, done := sys.Detach(d.l.ctx, time.Minute)
	defer done()
	if err := d.m.mark(ctx, d.l.id, []inventory.ResourceChange{{Kind: kindLoan, Name: loanName(d.l.id, h.Name), State: s}}); err != nil {
		d.m.cfg.Log("task " + string(d.l.id) + ": what became of the credential " + h.Name + " is not on record: " + err.Error())
	}
}

// Used implements broker.Recorder.
func (d *lender) Used(h *broker.Handle, crossing uint64, uses int) error {
	ctx, done := sys.Detach(d.l.ctx, time.Minute)
	defer done()
	body := d.body(h)
	body["crossing"], body["uses"] = crossing, uses
	if _, err := d.l.log.Append(ctx, evidence.CredentialUsed, self, body); err != nil {
		return err
	}
	return sys.Fault("lend.used")
}

// maxRefusals is how many refusals of one credential are put down one by one.
const maxRefusals = 200

// Refused implements broker.Recorder.
func (d *lender) Refused(h *broker.Handle, crossing uint64, why error) {
	d.mu.Lock()
	d.told[h.Name]++
	n := d.told[h.Name]
	d.mu.Unlock()
	if n > maxRefusals {
		return
	}
	body := d.body(h)
	body["crossing"], body["error"] = crossing, short(why.Error(), 1000)
	if n == maxRefusals {
		body["last"] = true
	}
	d.put(evidence.CredentialRefused, insider, body)
}

// Astray implements broker.Recorder.
func (d *lender) Astray(h *broker.Handle, crossing uint64, where string) {
	body := d.body(h)
	body["crossing"], body["where"] = crossing, short(where, 500)
	d.put(evidence.CredentialAstray, insider, body)
}

// Back implements broker.Recorder.
func (d *lender) Back(h *broker.Handle, uses int, why string) {
	d.mu.Lock()
	d.held--
	d.mu.Unlock()
	body := d.body(h)
	body["uses"], body["why"] = uses, why
	d.put(evidence.CredentialBack, self, body)
	if sys.Fault("lend.back") == nil {
		d.mark(h, task.Gone)
	}
}

func (d *lender) body(h *broker.Handle) map[string]any {
	class := "dev"
	if h.Prod {
		class = "prod"
	}
	return map[string]any{"handle": h.Name, "class": class}
}

func (d *lender) put(t evidence.Type, a evidence.Actor, body map[string]any) {
	if _, err := d.l.log.AppendBulk(context.Background(), t, a, body); err != nil {
		d.m.cfg.Log("task " + string(d.l.id) + ": " + string(t) + " is not on record: " + err.Error())
	}
}

// ask has a person agree to one use of a credential. Their yes is bound to the
// credential and to the request: its method, its URL and, where it is at hand, the
// digest of its body.
func (d *lender) ask(ctx context.Context, q broker.Question) error {
	// The query is for the person and not for the record.
	plain, _, _ := strings.Cut(q.URL, "?")
	what := approval.Visible(q.Method) + " " + approval.Cut(plain, 500, "")
	all := approval.Visible(q.Method) + " " + approval.Cut(q.URL, maxShownURL, seenWhole)
	body := ""
	switch {
	case q.Sum != nil:
		body = " (body of " + strconv.FormatInt(q.Length, 10) + " bytes, sha256 " + hex.EncodeToString(q.Sum) + ")"
	case q.Length != 0:
		body = " (with a body that was not read)"
	}
	what, all = what+body, all+body
	each := ""
	if q.Each { // a yes for the rest of the task is none for another use
		each = fmt.Sprint(q.Crossing)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{d.l.plan, q.Handle, q.Method, q.URL, string(q.Sum), each}, "\x00")))
	rule := "the credential " + q.Handle + " is lent after a question"
	if q.Prod {
		rule = "the credential " + q.Handle + " is of class prod: each use is a question"
	}
	tool := "use the credential " + q.Handle + " for " + what
	if q.Each {
		tool += ", request " + each
	}
	ok, err := d.m.askOutward(ctx, d.l, task.Question{Digest: hex.EncodeToString(sum[:]), Call: what, Actor: "a program inside", Tool: tool, Rule: rule,
		Argv: []string{approval.Visible(q.Method), approval.Visible(q.URL)}, Script: all})
	if err == nil && !ok {
		err = task.Errorf(task.CodeDenied, "broker.lend", "a person said no to this use of the credential %s", q.Handle)
	}
	return err
}

// loansGone puts on record that what a supervisor held which is gone is held no
// more: it was in its memory alone.
func (m *Manager) loansGone(ctx context.Context, l *live) error {
	rs, err := m.cfg.DB.Resources(ctx, l.id)
	if err != nil {
		return err
	}
	var cs []inventory.ResourceChange
	for _, r := range rs {
		if r.Kind != kindLoan || r.State == task.Gone {
			continue
		}
		cs = append(cs, inventory.ResourceChange{Kind: r.Kind, Name: r.Name, State: task.Gone})
		_, handle, _ := strings.Cut(r.Name, "/")
		if l.log != nil {
			if _, err := l.log.AppendBulk(ctx, evidence.CredentialBack, self, map[string]any{"handle": handle, "why": "the process that held it is gone"}); err != nil {
				return err
			}
		}
	}
	if len(cs) == 0 {
		return nil
	}
	return m.mark(ctx, l.id, cs)
}
