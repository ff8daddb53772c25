// Package door holds the operations that every front door renders: the command
// line, the control socket of an open task and, later, MCP and others.
//
// Its limit: a door adds no power and goes around nothing; it decodes, calls
// the engine, renders.
package door

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Engine is what the operations act on: boundary.Manager in the process that
// owns the state, or the control-socket client towards an open task's
// supervisor. Every TASK argument is an id, a unique prefix of one, or a name.
type Engine interface {
	Policies
	Plan(ctx context.Context, r task.Request, argv []string) (*task.PlanReport, error)
	// Run opens a task, runs cmd, ends the task. The outcome is valid when err
	// is nil or when ran is true: then the command ran and err is what came
	// after (a stuck cleanup, say) and the command's own status still counts.
	Run(ctx context.Context, r task.Request, cmd task.Command, io *ExecIO) (out task.Outcome, ran bool, err error)
	Open(ctx context.Context, r task.Request, progress func(string)) (*task.View, error)
	Exec(ctx context.Context, ref string, cmd task.Command, io *ExecIO) (task.Outcome, error)
	// Check is Exec for a command that verifies the task's files: it runs alone, and
	// the host reads the files before and after. The check is nil when the command
	// was not started or nobody knows how it ended.
	Check(ctx context.Context, ref string, o CheckOptions, io *ExecIO) (*task.Check, task.Outcome, error)
	// Checks lists the checks that the policy of a task declares.
	Checks(ctx context.Context, ref string) (*task.CheckList, error)
	// Hold opens a task in this process, calls use with its id, and ends the
	// task as Run does once use returned: the boundary never outlives the process.
	Hold(ctx context.Context, r task.Request, progress func(string), use func(ctx context.Context, id task.ID) error) (*task.CloseReport, error)
	// Tools describes the tool contract.
	Tools(ctx context.Context) ([]task.ToolInfo, error)
	// Tool makes one tool call in an open task and returns when it ended. A call
	// that policy or a person refused is CodeDenied, one that nobody answered in
	// time too; a tool that ran and failed is no error of ours: its result says so.
	// The result is returned with an error too, where there is one.
	Tool(ctx context.Context, ref string, c task.ToolCall, o ToolOptions) (*task.ToolResult, error)
	// Questions lists the calls that wait for a person, of one task or, with an
	// empty ref, of all that this user can reach.
	Questions(ctx context.Context, ref string) ([]task.Question, error)
	// Answer answers one of them. An answer from the door that asked is CodeDenied.
	Answer(ctx context.Context, by Actor, a task.Answer) (*task.Question, error)
	// Accept puts acceptances of a weaker boundary on record; Acceptances lists
	// those on record and the policy's standing ones; Revoke takes one back.
	Accept(ctx context.Context, by Actor, q task.AcceptRequest) ([]task.Acceptance, error)
	Acceptances(ctx context.Context) ([]task.Acceptance, error)
	Revoke(ctx context.Context, by Actor, id, reason string) error
	List(ctx context.Context, all bool) ([]task.View, error)
	Show(ctx context.Context, ref string) (*task.View, error)
	Log(ctx context.Context, ref string, follow bool, emit func(Event) error) error
	// Diff writes the change set to w. What it says beside it is returned, and
	// told to o.Found before the first byte.
	Diff(ctx context.Context, ref string, w io.Writer, o DiffOptions) (*task.DiffReport, error)
	// Apply changes the user's checkout, Branch one ref of the repository. With
	// an error Apply's report says what it is about, where there is one.
	Apply(ctx context.Context, ref string, o ApplyOptions) (*task.ApplyReport, error)
	Branch(ctx context.Context, ref string, o BranchOptions) (*task.BranchReport, error)
	// Export writes to w, or into o.Dir. What was written before an error may
	// be cut.
	Export(ctx context.Context, ref string, w io.Writer, o ExportOptions) (*task.ExportReport, error)
	Keep(ctx context.Context, ref string, o KeepOptions) (*task.View, error)
	// Ports says where servers inside wait, and which of them the host offers after
	// what o asks for.
	Ports(ctx context.Context, ref string, o PortsOptions) (*task.PortsReport, error)
	// Allow adds destinations to an open task that has a way out, for as long as it
	// is open, or takes them back; without either it lists them.
	Allow(ctx context.Context, ref string, o AllowOptions) (*task.AllowReport, error)
	Resume(ctx context.Context, ref string, o ResumeOptions) (*task.View, error)
	Close(ctx context.Context, ref string, o CloseOptions) (*task.CloseReport, error)
	Reap(ctx context.Context, dryRun bool) (*task.ReapReport, error)
	Doctor(ctx context.Context) (*task.DoctorReport, error)
	// Budget says how much of what all tasks may take together is taken.
	Budget(ctx context.Context) (*task.BudgetReport, error)
}

// ErrElsewhere is what a supervisor, or nobody in its place, answers to a command
// for a task that it cannot say is its own. Nothing was begun.
var ErrElsewhere = errors.New("no supervisor says that it is meant")

// ExecIO joins a command inside to its caller. The caller makes pipes, keeps
// its own ends and copies bytes; descriptors of the caller's own (its terminal,
// its files) never go inside.
type ExecIO struct {
	// Files are the tool's ends of three pipes. The engine closes them once
	// they are handed over. Unused when the command has a pty.
	Files [3]*os.File
	// OnPTY receives the master side of the pty the host opened in the
	// boundary's devpts; the receiver closes it.
	OnPTY func(master *os.File)
	// Signals are forwarded to the command as they arrive.
	Signals <-chan os.Signal
	// Cancels receives one value per cancellation step: the first asks the
	// command to end (SIGTERM, then SIGKILL after the grace), the second
	// shortens the grace to a second, the third kills at once.
	Cancels <-chan struct{}
	// Progress tells what is going on before the command starts; may be nil.
	Progress func(string)
	// Started is called once when the command has been started; may be nil.
	Started func(id task.ID)
	// Ended is called once by Run with what became of the task; may be nil.
	Ended func(*task.CloseReport)
	// Summary is called once after the command ended and returns what went
	// through the pipes. It may block until they are drained. May be nil.
	Summary func() IOSummary
}

// FoundStream is the name under which ToolOptions.Output gets what a search found.
const FoundStream = "found"

// ToolOptions joins a tool call to its caller. Its functions may be nil and are
// called from any goroutine, not after Tool returned.
type ToolOptions struct {
	By Actor // made by the door, never decoded from a message
	// Progress tells in one line what a call that waits or runs is at, at least
	// every 20 seconds.
	Progress func(string)
	// Output receives what a program writes, as it does: "stdout" or "stderr"; and
	// what a search finds, as it does: FoundStream, each time one JSON object of the
	// tool's result type. All of it is claimed.
	// It keeps nothing of p.
	Output func(stream string, p []byte)
	// File is given the file that read_file showed only a part of, open for reading;
	// it is a regular one, and what is in it may change at any time. Who gets it
	// closes it. nil, and where the task is held by another process: nobody gets it.
	File func(*os.File)
	// Asked is told that the call waits for a person. The door may show the
	// question to one; the answer goes to Engine.Answer.
	Asked func(task.Question)
}

// CheckOptions says what verifies a task's files.
type CheckOptions struct {
	Name    string // of the check; may be empty. A later check of a name takes the place of an earlier one
	Command task.Command
	// Named: what runs is what the policy declares under Name, where it begins is
	// the top of the source, and Command says neither. Where no policy of the task
	// declares any check, Command is run as one that a person gave, if it is there.
	Named bool
}

// IOSummary is what the host's end of the pipes saw.
type IOSummary struct {
	StdinBytes, StdoutBytes, StderrBytes int64
	StdoutSHA256, StderrSHA256           string
	StdoutTail, StderrTail               []byte // last 4 KiB each; redacted before they are recorded
}

// DiffOptions selects the form of a diff.
type DiffOptions struct {
	Stat, NameStatus, NUL, Color bool
	// Paths are names of files and folders, never patterns: relative to the top
	// of the source, or absolute inside it. Empty: all.
	Paths []string
	// Width of a stat, in columns; 0 is 80.
	Width int
	// Found is told the report before the first byte of the diff; an error of
	// it ends the diff. May be nil.
	Found func(*task.DiffReport) error `json:"-"`
}

// CloseOptions says how a task is ended.
type CloseOptions struct {
	DryRun, Discard bool
	Keep            task.Keep // empty: the task's own mode
	Progress        func(string)
}

// ApplyOptions says how a result is brought into the checkout. The zero value
// applies nothing that a tool on the host would execute or trust.
type ApplyOptions struct {
	DryRun     bool
	AllowRisky bool
	Agreed     string // the digest of the report that a person agreed to
	Progress   func(string)
}

// BranchOptions says which branch a result becomes.
type BranchOptions struct {
	Name     string // without refs/heads/; empty is caisson/<id>
	Force    bool   // move one that is there
	Progress func(string)
	// Risky is told about risky files before anything is done; may be nil.
	Risky func([]task.Risk)
}

// ExportOptions says in which form a result leaves.
type ExportOptions struct {
	Form     string // "patch", "bundle" or "dir"
	Dir      string // of a dir: absolute
	Progress func(string)
	// Risky is told about risky files before the first byte; may be nil.
	Risky func([]task.Risk)
}

// PortsOptions says what is to be offered, and what not any more.
type PortsOptions struct {
	Publish  []string // PORT or HOST-PORT:PORT
	Withdraw []int    // ports inside
}

// AllowOptions says which destinations are added to an open task, and which are
// not any more; as --allow takes them.
type AllowOptions struct {
	Places   []string
	Withdraw []string
	Reason   string
}

// KeepOptions says how long, and why, a task's files stay.
type KeepOptions struct {
	For    time.Duration // from now
	Reason string
}

// ResumeOptions says how a kept task is opened again.
type ResumeOptions struct {
	Env      []string // K=V or K, as at open; values are never recorded
	Progress func(string)
}

// Event is one line of the evidence as a door shows it.
type Event struct {
	Seq   uint64         `json:"seq"`
	Time  time.Time      `json:"ts"`
	Type  string         `json:"type"`
	Task  task.ID        `json:"task"`
	Actor map[string]any `json:"actor"`
	Body  map[string]any `json:"body"`
	// Redacted is how many secrets were taken out before it was recorded.
	Redacted int    `json:"redacted"`
	Prev     string `json:"prev"` // digest of the line before
	// Line is the event as it stands in the log, without the line feed: what the
	// hash chain covers. Empty where it is not at hand.
	Line []byte `json:"-"`
}
