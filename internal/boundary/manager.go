// Package boundary is the one road a task takes: decide, provision, probe,
// call, rescue, release.
//
// Its limit: it sequences the rooms and does nothing itself: no system calls,
// no parsing, no printing, no technology's name.
package boundary

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

// Config is everything a Manager needs from outside. All fields are required
// unless they say otherwise.
type Config struct {
	StateDir   string // absolute; holds state.db and tasks/
	RuntimeDir string // absolute; holds control sockets
	DB         *inventory.DB
	Drivers    []backend.Driver
	Identity   task.Identity
	Version    string
	Environ    []string // of the process a person started, K=V
	// Worker returns the path of the worker program, in place and checked.
	Worker func() (string, error)
	// Toolchains finds what PATH offers and what of it must be hidden.
	Toolchains func(ctx context.Context, path, home string) ([]backend.Mount, []task.Tool, []task.Finding, error)
	// Screen looks through granted folders for sockets and credentials.
	Screen func(ctx context.Context, mounts []backend.Mount) ([]backend.Mount, []task.Finding, error)
	// CheckPaths refuses mounts that would overlap what must stay apart.
	CheckPaths func(backend.Spec) error
	// Defaults fills in limits that nobody asked for.
	Defaults func(task.Limits) task.Limits
	// Usage returns the bytes that source and output store of a task folder take.
	Usage func(ctx context.Context, dir string) (int64, error)
	// Checks are doctor's trials of what is not a backend; may be nil.
	Checks func(ctx context.Context) []task.Feature
	// Machine says what this machine has that backends need, under the name of each
	// and under "" what they share; doctor shows it. May be nil.
	Machine  func(ctx context.Context) map[string][]task.Feature
	Platform string // "linux/amd64 6.18"
	// Policy says what the policy in force says about a task. May be nil: then
	// only what is shipped counts, and the user decides what is theirs.
	Policy func(ctx context.Context, s Subject) (policy.Governing, error)
	// Stamp changes when a file does that Policy reads for the repository at repo.
	// It is asked before every command. May be nil.
	Stamp func(repo string) string
	// Detect looks at a command and at the files of a repository at its base. May
	// be nil: then nothing is found.
	Detect func(ctx context.Context, repo *source.Repo, argv []string) (Seen, error)
	// Remote reaches the supervisor of a task that lives in another process.
	Remote func(id task.ID) Remote
	// Near returns who may answer for ref, by a hint that costs no inventory; nil
	// when there is none. Its Exec returns door.ErrElsewhere, with nothing begun
	// and the files left open, when it is not the one that is meant. Set in a process
	// that did not look for what is due at its start; nil in others.
	Near func(ref string) Remote
	// Serve listens on a live task's control socket until stop is called, and
	// leaves the hint for Near that belongs to the name.
	Serve func(id task.ID, name string) (stop func(), err error)
	// Unname takes that hint away, if it is this task's. May be nil.
	Unname func(id task.ID, name string)
	// Spawn starts a supervisor process that does what it is told and stays.
	Spawn func(ctx context.Context, o Order, progress func(string)) (task.ID, error)
	// Remove starts a process that calls RemoveRest with the lock that it is
	// handed and the same order, and returns once that process owns the task; on
	// an error there is none. May be nil.
	Remove func(ctx context.Context, id task.ID, lock *os.File, o RemoveOrder) error
	// Hook has the program at path, a person's own, answer a question; false: it
	// gave no answer. It ends with ctx. May be nil.
	Hook func(ctx context.Context, path string, q task.Question) (task.Answer, bool, error)
	// Print runs a program of the person's, which a policy names as the source of a
	// credential, and returns what it prints; see broker.Reader. nil: none is run.
	Print func(ctx context.Context, argv []string) ([]byte, error)
	// Decide asks a decision hook of the policy. reach are folders that the task, or
	// whoever wrote the repository, can change: a program in one of them is not
	// asked. Every error denies. nil: whatever a hook is to be asked about is denied.
	Decide func(ctx context.Context, h policy.Set[policy.Hook], q policy.HookQuestion, reach []string) (policy.HookAnswer, error)
	// Policies are the operations on policy files; nil: none of them is called.
	Policies door.Policies
	// Log receives what no caller can be told, one line at a time; may be nil.
	Log func(text string)
}

// Order is what a supervisor process is started for.
type Order struct {
	Request task.Request // the task to open
	Resume  task.ID      // or the one to resume; then only Request.Env counts
}

// Remote is what another process's supervisor can be asked for.
type Remote interface {
	Exec(ctx context.Context, cmd task.Command, io *door.ExecIO) (task.Outcome, error)
	Check(ctx context.Context, o door.CheckOptions, io *door.ExecIO) (*task.Check, task.Outcome, error)
	Close(ctx context.Context, o door.CloseOptions) (*task.CloseReport, error)
	Tool(ctx context.Context, c task.ToolCall, o door.ToolOptions) (*task.ToolResult, error)
	OpenOutput(ctx context.Context, name string) (io.ReadCloser, error)
	Ports(ctx context.Context, o door.PortsOptions) (*task.PortsReport, error)
	Allow(ctx context.Context, o door.AllowOptions) (*task.AllowReport, error)
	Questions(ctx context.Context) ([]task.Question, error)
	Answer(ctx context.Context, a task.Answer) (*task.Question, error)
	Keep(ctx context.Context, o door.KeepOptions) (*task.View, error)
	Apply(ctx context.Context, o door.ApplyOptions) (*task.ApplyReport, error)
	Branch(ctx context.Context, o door.BranchOptions) (*task.BranchReport, error)
	Export(ctx context.Context, w io.Writer, o door.ExportOptions) (*task.ExportReport, error)
}

// Manager implements door.Engine. Safe for concurrent use.
type Manager struct {
	door.Policies // another room's work: the operations on policy files

	cfg   Config
	front nameFront

	mu   sync.Mutex
	live map[task.ID]*live // tasks whose boundary this process holds
	// silent are tasks of other processes that did not say what waits in them.
	silent map[task.ID]bool
}

// New returns a manager. It does nothing yet.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = func(string) {}
	}
	return &Manager{Policies: cfg.Policies, cfg: cfg, live: map[task.ID]*live{}}
}

// live is one task whose boundary this process holds.
type live struct {
	id    task.ID
	name  string // may be empty
	token string
	dir   string
	// driver names the backend that made the boundary.
	driver string
	// checkout is the top of the user's checkout on the host.
	checkout string
	lock     *sys.FileLock
	// direct releases the lock of the user's checkout, which the strategy of that
	// name holds; nil: none is held.
	direct  func()
	log     *evidence.Log
	ws      source.Workspace
	spec    backend.Spec
	keep    task.Keep
	resumed *task.Retention // of a task that was kept before: what fails leaves it so

	once bool // one command, and then the end
	// command is the one that a task was made for; only says that no other may ever
	// run in it, for its boundary is that of a trusted check.
	command []string
	only    bool

	decision standingDecision

	tools toolState
	turns turns
	queue approval.Queue
	hooks sync.WaitGroup // programs that answer questions
	// outward are the questions that something inside caused.
	outward outwardQuestions
	// What a person said about tool calls, and the digest of the plan that they
	// are made under.
	asking task.Asking
	rules  atomic.Pointer[policy.Calls] // and what the policy in force says about them; see ruled
	// leaving are the rules about connections; nil: none leaves. open: it is all
	// that no rule denies.
	leaving    atomic.Pointer[policy.Rules]
	open       bool
	lent       []broker.Lent // credentials, with the placeholders that are inside
	ca         *egress.CA    // whom programs inside trust for TLS that is read; nil: nobody
	unattended bool
	plan       string

	notes   []string // what the person should know about this task
	secrets []string // K=V that a person passed in; kept out of the evidence
	unserve func()   // stops the control socket; guarded by mu; nil when there is none

	ctx    context.Context // ends when the task is being ended; the cause says why
	cancel context.CancelCauseFunc
	calls  sync.WaitGroup // running calls
	watch  sync.WaitGroup // limits' watchers

	mu      sync.Mutex
	inst    backend.Instance // nil until it stands; written once
	wk      *worker.Client   // as inst
	way     *passage         // nil: there is none
	refused atomic.Int64     // connections that were not let out since it was opened
	gone    *goneOut         // nil: nobody asked so far
	offers  []*offer         // ports that the host offers
	closing bool
	ready   bool      // it is ready on record
	limit   string    // the last limit that was hit
	limitAt time.Time // when
	until   time.Time // the end of its time, when that is limited; set before it is watched
	ooms    int64     // kills for want of memory that are accounted for

	// results is held by one operation on the task's results at a time.
	results sync.Mutex
	// tampered says that the record is not the one that was sealed.
	tampered bool

	// observed are changes of resources that go on record with the next step of
	// the end; of whoever runs finish.
	observed []inventory.ResourceChange

	ending   sync.Once
	report   *task.CloseReport
	endErr   error
	released sync.Once
}

// stands records the boundary that was made. Its channel may have been given up
// already, by another goroutine.
func (l *live) stands(st *standing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inst, l.wk = st.inst, st.wk
}

// standing returns what stands records, nil before.
func (l *live) standing() (backend.Instance, *worker.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inst, l.wk
}

// serves records how the control socket is stopped.
func (l *live) serves(stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unserve = stop
}

// hush stops answering on the control socket.
func (l *live) hush() {
	l.mu.Lock()
	unserve := l.unserve
	l.unserve = nil
	l.mu.Unlock()
	if unserve != nil {
		unserve()
	}
}

// kill ends every process inside without a word to anybody.
func (m *Manager) kill(ctx context.Context, l *live) error {
	inst, wk := l.standing()
	if wk != nil {
		_ = wk.Close()
	}
	defer l.closeWay()
	defer m.closePorts(l, true)
	if inst == nil {
		return nil
	}
	return inst.Destroy(ctx)
}

func (m *Manager) taskDir(id task.ID) string {
	return filepath.Join(m.cfg.StateDir, "tasks", string(id))
}

func (m *Manager) lookup(id task.ID) *live {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id]
}

// enter counts a call in, or refuses when the task is being ended.
func (l *live) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return task.Errorf(task.CodeState, "call", "task %s is being closed", l.id)
	}
	l.calls.Add(1)
	return nil
}

// shut lets no further call in.
func (l *live) shut() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
}

// actor is who an event is attributed to: the person at the command line.
func (m *Manager) actor() evidence.Actor {
	return evidence.Actor{Kind: "user", ID: m.cfg.Identity.Login}
}

// self is who acts when nobody asked.
var self = evidence.Actor{Kind: "caisson", ID: "caisson"}

// supervisor names this process as owner of a task.
func (m *Manager) supervisor(dir string) (inventory.Supervisor, error) {
	id, err := sys.Self()
	if err != nil {
		return inventory.Supervisor{}, task.Errorf(task.CodeInternal, "boundary.self", "cannot identify the own process: %w", err)
	}
	return inventory.Supervisor{Process: inventory.ProcessOf(id), LockPath: filepath.Join(dir, "lock"), Started: time.Now()}, nil
}

// cleanupTime bounds one cleanup. Removal of a very large tree is the longest
// step; what is not done by then is stuck and retried.
const cleanupTime = 10 * time.Minute

func tell(progress func(string), text string) {
	if progress != nil {
		progress(text)
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
