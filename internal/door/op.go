package door

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Role says what a caller may do. The zero value may do nothing.
type Role int

// The roles, each with everything the ones before it have.
const (
	RoleNone       Role = iota // nothing
	RoleObserver               // may look at tasks and at the machine
	RoleAgent                  // may also call tools in the task it was given
	RoleSupervisor             // may also work in an open task and end it, on a person's behalf
	RolePerson                 // may also open tasks, grant authority and give up work
)

// String returns the role's word.
func (r Role) String() string {
	switch r {
	case RoleObserver:
		return "observer"
	case RoleAgent:
		return "agent"
	case RoleSupervisor:
		return "supervisor"
	case RolePerson:
		return "person"
	}
	return "none"
}

// Actor is who calls: through which door, in which role. It is made by the
// door from what it knows about the caller, never decoded from a message.
type Actor struct {
	Door string // "cli", "control", "mcp", "go"
	Role Role
}

// Call is everything an operation needs beside its typed input. A door fills
// the streams that the operation uses.
type Call struct {
	Actor  Actor
	Engine Engine
	IO     *ExecIO           // run, exec
	Emit   func(Event) error // log
	Writer io.Writer         // diff, export
	// Found takes diff's report before the first byte of the diff; may be nil.
	Found    func(*task.DiffReport) error
	Risky    func([]task.Risk) // branch, export: told before anything is done; may be nil
	Progress func(string)      // open, close, resume, apply, branch, export, tool; may be nil
	// Output, Asked and File are tool's; see ToolOptions. They may be nil.
	Output func(stream string, p []byte)
	Asked  func(task.Question)
	File   func(*os.File)
}

// Op is one operation of the table.
type Op struct {
	Name  string
	Doc   string // one line, lower case
	Least Role   // the least role that may call it
	In    func() any
	Out   func() any
	run   func(context.Context, *Call, any) (any, error)
}

// The inputs. They travel as JSON over the control socket.
type (
	// PlanIn asks for a decision only.
	PlanIn struct {
		Request task.Request `json:"request"`
		Env     []string     `json:"env,omitempty"` // replaces Request.Env, which is never marshalled
		Argv    []string     `json:"argv"`
	}
	// RunIn asks for one task around one command.
	RunIn struct {
		Request task.Request `json:"request"`
		Env     []string     `json:"env,omitempty"`
		Command task.Command `json:"command"`
	}
	// OpenIn asks for a task that stays.
	OpenIn struct {
		Request task.Request `json:"request"`
		Env     []string     `json:"env,omitempty"`
	}
	// ExecIn asks for a command in an open task.
	ExecIn struct {
		Task    string       `json:"task"`
		Env     []string     `json:"env,omitempty"` // replaces Command.Env, which is never marshalled
		Command task.Command `json:"command"`
	}
	// CheckIn asks for a check of a task's files.
	CheckIn struct {
		Task    string       `json:"task"`
		Name    string       `json:"name"`
		Named   bool         `json:"named"`
		Env     []string     `json:"env,omitempty"` // replaces Command.Env, which is never marshalled
		Command task.Command `json:"command"`
	}
	// ListIn asks for the tasks.
	ListIn struct {
		All bool `json:"all"` // also closed ones
	}
	// TaskIn names one task.
	TaskIn struct {
		Task string `json:"task"`
	}
	// LogIn asks for the evidence of a task.
	LogIn struct {
		Task   string `json:"task"`
		Follow bool   `json:"follow"`
	}
	// DiffIn asks for the change set of a task.
	DiffIn struct {
		Task    string      `json:"task"`
		Options DiffOptions `json:"options"`
	}
	// CloseIn asks for the end of a task.
	CloseIn struct {
		Task    string    `json:"task"`
		DryRun  bool      `json:"dry_run"`
		Discard bool      `json:"discard"` // needs RolePerson
		Keep    task.Keep `json:"keep"`
	}
	// ApplyIn asks for a result in the checkout.
	ApplyIn struct {
		Task       string `json:"task"`
		DryRun     bool   `json:"dry_run"`
		AllowRisky bool   `json:"allow_risky"`
		Agreed     string `json:"agreed"`
	}
	// BranchIn asks for a result as a branch.
	BranchIn struct {
		Task  string `json:"task"`
		Name  string `json:"name"`
		Force bool   `json:"force"`
	}
	// ExportIn asks for a result as a patch, a bundle or a folder.
	ExportIn struct {
		Task string `json:"task"`
		Form string `json:"form"`
		Dir  string `json:"dir"`
	}
	// PortsIn names a task, and what of it is to be offered or not.
	PortsIn struct {
		Task     string   `json:"task"`
		Publish  []string `json:"publish"`
		Withdraw []int    `json:"withdraw"`
	}
	// AllowIn names an open task, and destinations that it may reach or not.
	AllowIn struct {
		Task     string   `json:"task"`
		Places   []string `json:"places"`
		Withdraw []string `json:"withdraw"`
		Reason   string   `json:"reason"`
	}
	// KeepIn asks for a retention.
	KeepIn struct {
		Task   string        `json:"task"`
		For    time.Duration `json:"for_ns"`
		Reason string        `json:"reason"`
	}
	// ResumeIn asks for a boundary around the files of a kept task.
	ResumeIn struct {
		Task string   `json:"task"`
		Env  []string `json:"env,omitempty"`
	}
	// ReapIn asks for reconciliation.
	ReapIn struct {
		DryRun bool `json:"dry_run"`
	}
	// ToolIn asks for one tool call.
	ToolIn struct {
		Task string        `json:"task"`
		Call task.ToolCall `json:"call"`
	}
	// QuestionsIn asks for what waits for a person.
	QuestionsIn struct {
		Task string `json:"task"` // empty: of every task
	}
	// AnswerIn answers a question.
	AnswerIn struct {
		Answer task.Answer `json:"answer"`
	}
	// AcceptIn asks to accept a weaker boundary.
	AcceptIn struct {
		Request task.AcceptRequest `json:"request"`
	}
	// RevokeIn takes an acceptance back.
	RevokeIn struct {
		ID     string `json:"id"`
		Reason string `json:"reason"`
	}
	// None is the input or output of operations that have none.
	None struct{}
)

// The outputs that are not types of package task.
type (
	// RunOut is how `run` or `exec` ended. Ran says that the command was
	// started; only then Outcome means something.
	RunOut struct {
		Outcome task.Outcome `json:"outcome"`
		Ran     bool         `json:"ran"`
	}
	// CheckOut is how a check ended.
	CheckOut struct {
		RunOut
		Check *task.Check `json:"check"`
	}
	// ListOut is what `ls` prints.
	ListOut struct {
		Schema string             `json:"schema"` // "caisson.list/1"
		Tasks  []task.View        `json:"tasks"`
		Budget *task.BudgetReport `json:"budget,omitempty"` // of all tasks together, where there is one
	}
	// AcceptOut is what was put on record, or what is.
	AcceptOut struct {
		Schema      string            `json:"schema"` // "caisson.acceptances/1"
		Acceptances []task.Acceptance `json:"acceptances"`
	}
	// ToolsOut is the tool contract.
	ToolsOut struct {
		Schema string          `json:"schema"` // "caisson.tools/1"
		Tools  []task.ToolInfo `json:"tools"`
	}
	// QuestionsOut is what waits for a person.
	QuestionsOut struct {
		Schema    string          `json:"schema"` // "caisson.questions/1"
		Questions []task.Question `json:"questions"`
	}
)

// Table lists every operation, in the order help shows them.
var Table = append([]Op{
	op("run", "run one command in a task of its own", RolePerson, func(ctx context.Context, c *Call, in *RunIn) (*RunOut, error) {
		in.Request.Env = in.Env
		out, ran, err := c.Engine.Run(ctx, in.Request, in.Command, c.IO)
		return &RunOut{out, ran}, err
	}),
	op("open", "open a task that stays", RolePerson, func(ctx context.Context, c *Call, in *OpenIn) (*task.View, error) {
		in.Request.Env = in.Env
		return c.Engine.Open(ctx, in.Request, c.progress())
	}),
	op("exec", "run a command in an open task", RoleSupervisor, func(ctx context.Context, c *Call, in *ExecIn) (*RunOut, error) {
		in.Command.Env = in.Env
		out, err := c.Engine.Exec(ctx, in.Task, in.Command, c.IO)
		return &RunOut{out, err == nil}, err
	}),
	op("check", "verify a task's files with a command", RolePerson, func(ctx context.Context, c *Call, in *CheckIn) (*CheckOut, error) {
		in.Command.Env = in.Env
		check, out, err := c.Engine.Check(ctx, in.Task, CheckOptions{Name: in.Name, Command: in.Command, Named: in.Named}, c.IO)
		return &CheckOut{RunOut{out, check != nil}, check}, err
	}),
	op("checks", "list the checks that a task's policy declares", RoleObserver, func(ctx context.Context, c *Call, in *TaskIn) (*task.CheckList, error) {
		return c.Engine.Checks(ctx, in.Task)
	}),
	op("tools", "describe the tools", RoleObserver, func(ctx context.Context, c *Call, _ *None) (*ToolsOut, error) {
		ts, err := c.Engine.Tools(ctx)
		return &ToolsOut{Schema: "caisson.tools/1", Tools: ts}, err
	}),
	op("tool", "make one tool call in an open task", RoleAgent, func(ctx context.Context, c *Call, in *ToolIn) (*task.ToolResult, error) {
		return c.Engine.Tool(ctx, in.Task, in.Call, ToolOptions{By: c.Actor, Progress: c.progress(), Output: c.Output, Asked: c.Asked, File: c.File})
	}),
	op("questions", "list the calls that wait for a person", RoleSupervisor, func(ctx context.Context, c *Call, in *QuestionsIn) (*QuestionsOut, error) {
		qs, err := c.Engine.Questions(ctx, in.Task)
		if qs == nil {
			qs = []task.Question{}
		}
		return &QuestionsOut{Schema: "caisson.questions/1", Questions: qs}, err
	}),
	op("answer", "answer a call that waits for a person", RolePerson, func(ctx context.Context, c *Call, in *AnswerIn) (*task.Question, error) {
		return c.Engine.Answer(ctx, c.Actor, in.Answer)
	}),
	op("accept", "accept a weaker boundary, on record", RolePerson, func(ctx context.Context, c *Call, in *AcceptIn) (*AcceptOut, error) {
		as, err := c.Engine.Accept(ctx, c.Actor, in.Request)
		return acceptOut(as), err
	}),
	op("acceptances", "list the acceptances on record", RoleObserver, func(ctx context.Context, c *Call, _ *None) (*AcceptOut, error) {
		as, err := c.Engine.Acceptances(ctx)
		return acceptOut(as), err
	}),
	op("revoke", "take an acceptance back", RolePerson, func(ctx context.Context, c *Call, in *RevokeIn) (*None, error) {
		return &None{}, c.Engine.Revoke(ctx, c.Actor, in.ID, in.Reason)
	}),
	op("list", "list tasks", RoleObserver, func(ctx context.Context, c *Call, in *ListIn) (*ListOut, error) {
		vs, err := c.Engine.List(ctx, in.All)
		if vs == nil {
			vs = []task.View{}
		}
		out := &ListOut{Schema: "caisson.list/1", Tasks: vs}
		if b, berr := c.Engine.Budget(ctx); berr == nil && b != nil && len(b.Uses) > 0 {
			out.Budget = b // a policy that cannot be read hides no task
		}
		return out, err
	}),
	op("show", "show one task", RoleObserver, func(ctx context.Context, c *Call, in *TaskIn) (*task.View, error) {
		return c.Engine.Show(ctx, in.Task)
	}),
	op("log", "read a task's evidence", RoleObserver, func(ctx context.Context, c *Call, in *LogIn) (*None, error) {
		return &None{}, c.Engine.Log(ctx, in.Task, in.Follow, c.Emit)
	}),
	op("diff", "read a task's change set", RoleObserver, func(ctx context.Context, c *Call, in *DiffIn) (*task.DiffReport, error) {
		in.Options.Found = c.Found
		return c.Engine.Diff(ctx, in.Task, c.Writer, in.Options)
	}),
	op("close", "rescue work and end a task", RoleSupervisor, func(ctx context.Context, c *Call, in *CloseIn) (*task.CloseReport, error) {
		if in.Discard && c.Actor.Role < RolePerson {
			return nil, task.Errorf(task.CodeDenied, "door.close", "only a person may give up a task's work")
		}
		return c.Engine.Close(ctx, in.Task, CloseOptions{DryRun: in.DryRun, Discard: in.Discard, Keep: in.Keep, Progress: c.progress()})
	}),
	op("apply", "bring a task's result into the checkout", RolePerson, func(ctx context.Context, c *Call, in *ApplyIn) (*task.ApplyReport, error) {
		return c.Engine.Apply(ctx, in.Task, ApplyOptions{DryRun: in.DryRun, AllowRisky: in.AllowRisky, Agreed: in.Agreed, Progress: c.progress()})
	}),
	op("branch", "make a task's result a branch", RolePerson, func(ctx context.Context, c *Call, in *BranchIn) (*task.BranchReport, error) {
		return c.Engine.Branch(ctx, in.Task, BranchOptions{Name: in.Name, Force: in.Force, Progress: c.progress(), Risky: c.Risky})
	}),
	op("export", "write a task's result out", RolePerson, func(ctx context.Context, c *Call, in *ExportIn) (*task.ExportReport, error) {
		return c.Engine.Export(ctx, in.Task, c.Writer, ExportOptions{Form: in.Form, Dir: in.Dir, Progress: c.progress(), Risky: c.Risky})
	}),
	op("keep", "say until when a task's files stay", RolePerson, func(ctx context.Context, c *Call, in *KeepIn) (*task.View, error) {
		return c.Engine.Keep(ctx, in.Task, KeepOptions{For: in.For, Reason: in.Reason})
	}),
	op("ports", "list and publish the ports of servers in a task", RolePerson, func(ctx context.Context, c *Call, in *PortsIn) (*task.PortsReport, error) {
		return c.Engine.Ports(ctx, in.Task, PortsOptions{Publish: in.Publish, Withdraw: in.Withdraw})
	}),
	op("allow", "let an open task reach more, until it ends", RolePerson, func(ctx context.Context, c *Call, in *AllowIn) (*task.AllowReport, error) {
		return c.Engine.Allow(ctx, in.Task, AllowOptions{Places: in.Places, Withdraw: in.Withdraw, Reason: in.Reason})
	}),
	op("resume", "open a kept task again", RolePerson, func(ctx context.Context, c *Call, in *ResumeIn) (*task.View, error) {
		return c.Engine.Resume(ctx, in.Task, ResumeOptions{Env: in.Env, Progress: c.progress()})
	}),
	op("reap", "finish cleanups and expire retention", RolePerson, func(ctx context.Context, c *Call, in *ReapIn) (*task.ReapReport, error) {
		return c.Engine.Reap(ctx, in.DryRun)
	}),
	op("doctor", "say what this machine can enforce", RoleObserver, func(ctx context.Context, c *Call, _ *None) (*task.DoctorReport, error) {
		return c.Engine.Doctor(ctx)
	}),
	op("plan", "decide only", RoleObserver, func(ctx context.Context, c *Call, in *PlanIn) (*task.PlanReport, error) {
		in.Request.Env = in.Env
		return c.Engine.Plan(ctx, in.Request, in.Argv)
	}),
}, policyOps...)

// Find returns the operation called name, or nil.
func Find(name string) *Op {
	for i := range Table {
		if Table[i].Name == name {
			return &Table[i]
		}
	}
	return nil
}

// Do checks the caller's role and runs the operation. in is what In returned,
// filled.
func (o *Op) Do(ctx context.Context, c *Call, in any) (any, error) {
	if c.Actor.Role < o.Least || o.Least == RoleNone {
		return nil, task.Errorf(task.CodeDenied, "door."+o.Name, "the %s role may not %s", c.Actor.Role, o.Name).
			WithHint("it needs the %s role", o.Least)
	}
	return o.run(ctx, c, in)
}

// Do runs the operation called name and returns its typed output.
func Do[O any](ctx context.Context, c *Call, name string, in any) (O, error) {
	var zero O
	o := Find(name)
	if o == nil {
		return zero, task.Errorf(task.CodeInternal, "door", "no operation %q", name)
	}
	out, err := o.Do(ctx, c, in)
	if typed, ok := out.(O); ok {
		return typed, err
	}
	if err == nil {
		err = task.Errorf(task.CodeInternal, "door."+name, "unexpected output type %T", out)
	}
	return zero, err
}

func op[I, O any](name, doc string, least Role, run func(context.Context, *Call, *I) (*O, error)) Op {
	return Op{
		Name: name, Doc: doc, Least: least,
		In:  func() any { return new(I) },
		Out: func() any { return new(O) },
		run: func(ctx context.Context, c *Call, in any) (any, error) {
			typed, ok := in.(*I)
			if !ok {
				return nil, task.Errorf(task.CodeInternal, "door."+name, "unexpected input type %T", in)
			}
			return run(ctx, c, typed)
		},
	}
}

func (c *Call) progress() func(string) {
	if c.Progress == nil {
		return func(string) {}
	}
	return c.Progress
}

func acceptOut(as []task.Acceptance) *AcceptOut {
	if as == nil {
		as = []task.Acceptance{}
	}
	return &AcceptOut{Schema: "caisson.acceptances/1", Acceptances: as}
}
