package task

import (
	"encoding/json"
	"time"
)

// Verdict is what policy says of one call. Only VerdictAllow lets a call run;
// the zero value and every unknown word deny.
type Verdict string

// The verdicts.
const (
	VerdictDeny  Verdict = "deny"
	VerdictAsk   Verdict = "ask"
	VerdictAllow Verdict = "allow"
)

// ToolCall names one tool and its arguments, exactly as a door received them.
type ToolCall struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"arguments"` // one JSON object
}

// ToolInfo describes one tool of the contract to a harness.
type ToolInfo struct {
	Name     string          `json:"name"`
	Title    string          `json:"title"`
	Doc      string          `json:"description"`   // for the model: what it does, its rules and limits
	Input    json.RawMessage `json:"input_schema"`  // JSON Schema of the arguments
	Output   json.RawMessage `json:"output_schema"` // JSON Schema of Claimed.Result
	ReadOnly bool            `json:"read_only"`     // changes nothing of the task
	// Destructive: may overwrite or remove what was there.
	Destructive bool `json:"destructive"`
	// Idempotent: the same call twice leaves what one leaves.
	Idempotent bool `json:"idempotent"`
}

// Observed is what the host itself saw of a call: nothing in it was said by
// anything inside the boundary.
type Observed struct {
	Begun    time.Time     `json:"begun"`
	Duration time.Duration `json:"duration_ns"` // between the host's request and its learning of the end
	// Exit is how the program ended as the host's kernel told; nil where it did
	// not tell, or no program ran.
	Exit   *int `json:"exit,omitempty"`
	Signal int  `json:"signal,omitempty"`
	// Bytes that went through the host's ends of the pipes.
	StdoutBytes int64 `json:"stdout_bytes,omitempty"`
	StderrBytes int64 `json:"stderr_bytes,omitempty"`
	// Reason says that the host ended the call, and why: canceled, timeout, a limit.
	Reason string `json:"reason,omitempty"`
	// Files are what the host read itself of the files that the call names.
	Files []FileState `json:"files,omitempty"`
}

// FileState is one file as the host read it, without following a link out of
// the task.
type FileState struct {
	Path   string `json:"path"`   // absolute, inside
	State  string `json:"state"`  // "file", "absent", "folder", "link", "special", "unseen" (not on the host's side)
	Size   int64  `json:"size"`   // of a file
	SHA256 string `json:"sha256"` // of a file, hex; before the call
	After  string `json:"after,omitempty"`
}

// Claimed is what came out of the boundary. It may be shown and recorded; no
// decision is made from it.
type Claimed struct {
	// Exit is how the program ended as the worker told; nil where the host knows
	// better, or no program ran.
	Exit   *int            `json:"exit,omitempty"`
	Signal int             `json:"signal,omitempty"`
	Result json.RawMessage `json:"result,omitempty"` // of the tool's output schema
	// Failure says why a tool did nothing; then there is no Result.
	Failure *ToolFailure `json:"failure,omitempty"`
}

// ToolFailure is why a tool did not do what was asked. It is an answer, not an
// error: a caller may ask otherwise.
type ToolFailure struct {
	Code    string `json:"code"` // of the tool contract: "not_found", "changed", …
	Message string `json:"message"`
}

// ToolResult is one finished call.
type ToolResult struct {
	Schema   string   `json:"schema"` // "caisson.tool/1"
	Task     ID       `json:"task"`
	Call     string   `json:"call"` // id of the call in the evidence
	Tool     string   `json:"tool"`
	Digest   string   `json:"digest"` // sha256 of task, tool, canonical arguments
	Verdict  Verdict  `json:"verdict"`
	Rule     string   `json:"rule"`               // which rule gave the verdict
	Approval string   `json:"approval,omitempty"` // the question that a person answered
	Refused  []string `json:"refused,omitempty"`  // arguments that are not the model's to give; they were ignored
	Observed Observed `json:"observed"`
	Claimed  Claimed  `json:"claimed"`
}

// Question is one call that waits for a person. All of it was computed on the
// host; texts are made safe to show on a terminal.
type Question struct {
	ID      string      `json:"id"`
	Task    ID          `json:"task"`
	Name    string      `json:"name,omitempty"` // of the task
	Call    string      `json:"call"`
	Digest  string      `json:"digest"` // of the call: what an answer is bound to
	Plan    string      `json:"plan"`   // digest of the plan it would run under
	Actor   string      `json:"actor"`  // door and role that asked
	Tool    string      `json:"tool"`
	Rule    string      `json:"rule"` // why it is asked
	Argv    []string    `json:"argv,omitempty"`
	Script  string      `json:"script,omitempty"`
	Dir     string      `json:"dir,omitempty"`
	Files   []FileState `json:"files,omitempty"`
	Diff    string      `json:"diff,omitempty"` // of an edit
	Tree    string      `json:"tree,omitempty"` // of the task's files now
	Asked   time.Time   `json:"asked"`
	Expires time.Time   `json:"expires"`
}

// Answer is a person's answer to one question.
type Answer struct {
	ID     string `json:"id"`
	Digest string `json:"digest"` // empty: that of the question as it stands; else it must be equal
	Allow  bool   `json:"allow"`
	// Scope "" is this one call. "tool" is this tool with any arguments for the
	// rest of the task; "exact" is this very call again.
	Scope  string `json:"scope"`
	Reason string `json:"reason"`
}

// ToolRule is one rule of a person about tool calls. Rules can take away from
// the default, never add to it.
type ToolRule struct {
	Verdict Verdict `json:"verdict"` // an unknown word denies
	Tool    string  `json:"tool"`    // name, with * and ?
	// Pattern, with * and ?, is held against the path of a file or the text of a
	// command. Empty: any.
	Pattern string `json:"pattern,omitempty"`
}

// String renders the rule as it is typed.
func (r ToolRule) String() string {
	s := "--" + string(r.Verdict) + " " + r.Tool
	if r.Pattern != "" {
		s += ":" + r.Pattern
	}
	return s
}

// Asking is what a person wants to be asked about tool calls, and how. The zero
// value asks about none and denies none.
type Asking struct {
	Rules []ToolRule `json:"rules,omitempty"`
	// Frozen demands that a command which a person allowed runs alone, and on
	// exactly the files that were there when it was asked about.
	Frozen bool          `json:"frozen,omitempty"`
	Hook   string        `json:"hook,omitempty"`    // absolute path of a program of the person's that answers
	Wait   time.Duration `json:"wait_ns,omitempty"` // how long a question waits; 0: ten minutes
}

// Ended puts down how a program ended on the side that told it.
func (r *ToolResult) Ended(o Outcome) {
	seen, said := o.Sides(r.Observed.Begun)
	r.Observed.Exit, r.Observed.Signal = seen.Exit, seen.Signal
	r.Claimed.Exit, r.Claimed.Signal = said.Exit, said.Signal
}
