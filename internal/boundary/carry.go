package boundary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

var _ = sys.RegisterFaults("carry.parked", "carry.exec", "carry.taken")

// carried is a task that is open and at rest, on its way into the program that
// its supervisor becomes. Everything that live holds at such a moment is here or
// can be made from it: a command, a question or an operation on results that has
// begun is not, and none is there.
type carried struct {
	ID          task.ID
	Name, Token string
	Dir, Files  string // Files: of the workspace
	Checkout    string
	Driver      string
	Lock        int
	Log         evidence.Carried
	Spec        backend.Spec
	Keep        task.Keep
	Asking      task.Asking
	Rules       policy.Calls
	Unattended  bool
	Plan        string
	Stamp       string // of the decision, and until when it holds
	Until       time.Time
	Rests       map[task.Axis]task.Acceptance
	Secrets     []string
	Resumed     *task.Retention // of a task that was kept before
	Timed       bool
	Left        time.Duration // of its time, when that is limited
	Boundary    []byte
	Channel     worker.State
	Leaving     carriedRules
	Offers      []task.Port
	Open        bool
	Lent        []broker.Lent
	CA          carriedCA
}

// Hand is such a task, which this process has put aside.
type Hand struct {
	// State is what Take needs. It holds the secret of the channel and values of
	// variables: it goes into memory that nobody else reads.
	State []byte

	inst   backend.Movable
	log    *evidence.Log
	wk     *worker.Client
	parked worker.State
	fds    []int
	// reopen has the way out answered again in this process.
	reopen func() error
}

// parkTime bounds the wait for what the opening left under way, a heartbeat or
// the end of the probe.
const parkTime = time.Second

// Hand puts a task aside that OpenHere or ResumeHere made ready and whose control
// socket does not answer yet. An error, with the task as before, says that this
// task, or this backend, cannot be handed over, or not now.
func (m *Manager) Hand(id task.ID) (*Hand, error) {
	l := m.lookup(id)
	if l == nil || l.ctx.Err() != nil {
		return nil, errors.New("the task is not open")
	}
	inst, wk := l.standing()
	move, ok := inst.(backend.Movable)
	if !ok || l.direct != nil {
		return nil, errors.ErrUnsupported
	}
	c := carried{
		ID: l.id, Name: l.name, Token: l.token, Dir: l.dir, Files: l.ws.Files, Checkout: l.checkout, Driver: l.driver, Spec: l.spec, Keep: l.keep,
		Asking: l.asking, Rules: *l.ruled(), Unattended: l.unattended, Plan: l.plan, Stamp: l.decision.stamp, Until: l.decision.until, Rests: l.decision.rests, Secrets: l.secrets, Resumed: l.resumed, Timed: !l.until.IsZero(), Left: time.Until(l.until), Leaving: carryRules(l.leaving.Load()), Offers: l.published(), Open: l.open, Lent: l.lent,
	}
	var err error
	if c.Lock, err = sys.FD(l.lock.File()); err != nil {
		return nil, err
	}
	if l.ca != nil {
		if c.CA.Cert, c.CA.Key, err = l.ca.Carry(); err != nil {
			return nil, err
		}
	}
	h := &Hand{inst: move, wk: wk, log: l.log, reopen: func() error { return nil }}
	if l.passage() != nil || len(c.Offers) > 0 {
		// No command has run, so nothing is under way there.
		l.closeWay()
		m.closePorts(l, false)
		h.reopen = func() error {
			err := m.openWay(l, inst)
			l.letOut()
			m.republish(l.ctx, l, c.Offers)
			return err
		}
	}
	if c.Boundary, h.fds, err = move.Carry(); err != nil {
		return nil, errors.Join(err, h.reopen())
	}
	if h.parked, err = park(wk); err != nil {
		return nil, errors.Join(err, h.reopen())
	}
	if c.Log, err = l.log.Carry(); err != nil {
		return nil, errors.Join(err, wk.Unpark(h.parked), h.reopen())
	}
	c.Channel = h.parked
	h.fds = append(h.fds, c.Lock, c.Log.File, c.Log.Lock, c.Channel.Stream)
	if h.State, err = sys.Pack(c); err == nil {
		err = sys.Fault("carry.parked")
	}
	if err != nil {
		return nil, errors.Join(err, h.Stay())
	}
	return h, nil
}

func park(wk *worker.Client) (worker.State, error) {
	for end := time.Now().Add(parkTime); ; {
		s, err := wk.Park()
		if err == nil || wk.Err() != nil || time.Now().After(end) {
			return s, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Become makes this process the program at path, with what the task needs and
// fds open. It returns only when it could not; the task is then as before.
func (h *Hand) Become(path string, argv, env []string, fds []int) error {
	err := sys.Fault("carry.exec")
	if err == nil {
		err = h.inst.Become(path, argv, env, append(fds, h.fds...))
	}
	return errors.Join(err, h.Stay())
}

// Stay takes the task up again in this program.
func (h *Hand) Stay() error {
	h.log.Stay()
	return errors.Join(h.wk.Unpark(h.parked), h.reopen())
}

// Take goes on with a task that Hand put aside, in the program that its process
// became, and returns its id once the worker has answered. On an error the
// boundary is destroyed, and the process must end: the task is then that of a
// supervisor that died. The caller ends it with End.
func (m *Manager) Take(ctx context.Context, state []byte) (task.ID, error) {
	fail := func(err error) (task.ID, error) {
		return "", task.Errorf(task.CodeInternal, "take", "the supervisor could not go on after it had opened the task: %w", err).
			WithHint("`caisson reap` brings out what was done in it")
	}
	var c carried
	if err := sys.Unpack(state, &c); err != nil {
		return fail(err)
	}
	l := &live{
		id: c.ID, name: c.Name, token: c.Token, dir: c.Dir, checkout: c.Checkout, driver: c.Driver, spec: c.Spec, keep: c.Keep,
		asking: c.Asking, unattended: c.Unattended, plan: c.Plan, secrets: c.Secrets, resumed: c.Resumed, ready: true,
		ws: source.Workspace{Task: c.ID, Dir: c.Dir, Token: c.Token, Files: c.Files},
	}
	l.rules.Store(&c.Rules)
	l.open, l.lent = c.Open, c.Lent
	leaving, err := c.Leaving.rules()
	if err != nil {
		return fail(err)
	}
	l.leaving.Store(leaving)
	if len(c.CA.Cert) > 0 {
		if l.ca, err = egress.TakeCA(c.CA.Cert, c.CA.Key); err != nil {
			return fail(err)
		}
	}
	l.decision.known, l.decision.stamp, l.decision.until, l.decision.rests = true, c.Stamp, c.Until, c.Rests
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if c.Timed {
		l.until = time.Now().Add(c.Left)
	}
	d, err := m.driver(c.Driver)
	if err != nil {
		return fail(err)
	}
	taker, ok := d.(backend.Taker)
	if !ok {
		return fail(errors.ErrUnsupported)
	}
	if l.lock, err = sys.AdoptLock(os.NewFile(uintptr(c.Lock), "lock"), filepath.Join(c.Dir, "lock")); err != nil {
		return fail(err)
	}
	if l.log, err = evidence.Take(filepath.Join(c.Dir, "evidence"), c.ID, c.Log); err != nil {
		return fail(err)
	}
	inst, err := taker.Take(c.Boundary)
	if err != nil {
		return fail(err)
	}
	lost := func(err error) (task.ID, error) {
		dctx, done := sys.Detach(ctx, cleanupTime)
		defer done()
		defer l.closeWay()
		return fail(errors.Join(err, inst.Destroy(dctx)))
	}
	obs, err := inst.Observe(ctx)
	if err != nil {
		return lost(err)
	}
	l.stands(&standing{inst: inst})
	wk, err := worker.Resume(ctx, c.Channel, worker.Options{WorkerPID: obs.WorkerPID, OnPoison: func(cause error) { m.poisoned(l, cause) }})
	if err != nil {
		return lost(err)
	}
	l.stands(&standing{inst: inst, wk: wk})
	if err := m.openWay(l, inst); err != nil {
		_ = wk.Close()
		return lost(err)
	}
	l.letOut()
	if err := sys.Fault("carry.taken"); err != nil {
		_ = wk.Close()
		return lost(err)
	}
	m.limits(l)
	m.mu.Lock()
	m.live[l.id] = l
	m.mu.Unlock()
	stop, err := m.cfg.Serve(l.id, l.name)
	if err != nil {
		_ = wk.Close()
		return lost(err)
	}
	l.serves(stop)
	m.republish(ctx, l, c.Offers)
	return l.id, nil
}
