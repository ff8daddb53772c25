package frame

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// Protocol is what the worker answers to the hello. Another value is refused.
const Protocol = "caisson/1"

// Operations of a request.
const (
	OpExec    = "exec"    // start a program; replied when it runs or cannot
	OpSignal  = "signal"  // signal a running call
	OpPing    = "ping"    // answered by the tool space, so it proves both hops
	OpKillAll = "killall" // end every process of the tool space
	OpSpace   = "space"   // worker to tool space only: the plan
)

// Events of a call.
const (
	EventExit     = "exit"      // the program ended; Status is its wait status
	EventClear    = "clear"     // a cancelled call has no descendant left
	EventNotClear = "not_clear" // it could not be brought to that in time
	EventLost     = "lost"      // what watched over the call is gone
	EventEnded    = "ended"     // the cancel came after the call had ended by itself
)

// EventFound is the one event of a tool: Result is what it found since the last,
// an object of its result's type, in the frame. It comes before the reply, to who
// asked for it, MaxFound times at most; the reply has all of it again.
const (
	EventFound = "found"
	MaxFound   = 256
)

// Failures before a start, as codes of a reply.
const (
	FailDir      = "dir"       // the folder does not exist or cannot be entered
	FailNotFound = "not_found" // no such program
	FailNotExec  = "not_exec"  // found, but cannot be executed
	FailTTY      = "tty"       // the terminal cannot be taken
	FailLimit    = "limit"     // no process, memory or descriptor left for it
	FailBad      = "bad"       // the request makes no sense
	FailInternal = "internal"  // a fault of the worker
	FailNoCall   = "no_call"   // the named call is not running
)

// Rlimit is one resource limit.
type Rlimit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// RequestBody is the body of a Request. Arguments are bytes: a file name need
// not be UTF-8.
type RequestBody struct {
	Op      string          `json:"op"`
	Argv    [][]byte        `json:"argv,omitempty"`
	Dir     []byte          `json:"dir,omitempty"`
	Env     [][]byte        `json:"env,omitempty"`
	TTY     bool            `json:"tty,omitempty"`
	Builtin string          `json:"builtin,omitempty"`
	Last    bool            `json:"last,omitempty"` // probably no other call follows: nothing need be ready for one
	Rlimits []Rlimit        `json:"rlimits,omitempty"`
	Call    uint64          `json:"call,omitempty"`
	Signal  int             `json:"signal,omitempty"`
	LimitMS int64           `json:"limit_ms,omitempty"`
	Plan    json.RawMessage `json:"plan,omitempty"`
}

// CancelBody is the body of a Cancel frame; its operation id is the call's.
type CancelBody struct {
	Req     string `json:"req"` // digest of the call's request, echoed
	GraceMS int64  `json:"grace_ms"`
	LimitMS int64  `json:"limit_ms"` // after the grace, until "not clear" is reported
}

// ToolInline is how long arguments and results may be that travel in the frame.
// Longer ones are the content of a descriptor beside it, ToolMax at most.
const (
	ToolInline = 8 << 10
	ToolMax    = 40 << 20
)

// ToolBody is the body of a Tool frame. With Size set, the first descriptor
// holds that many bytes of arguments. With In, the next one is the content that
// the tool is to take.
type ToolBody struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args,omitempty"`
	Size int64           `json:"size,omitempty"`
	In   bool            `json:"in,omitempty"`
	// Found asks for what is found while the tool goes on; see EventFound.
	Found bool `json:"found,omitempty"`
}

// ReplyBody is the body of a Reply or Event.
type ReplyBody struct {
	Req      string `json:"req"` // hex SHA-256 of the request's body
	OK       bool   `json:"ok,omitempty"`
	Protocol string `json:"protocol,omitempty"` // of the hello only
	Event    string `json:"event,omitempty"`
	Code     string `json:"code,omitempty"`
	Msg      string `json:"msg,omitempty"`
	Status   uint32 `json:"status,omitempty"`
	PID      int    `json:"pid,omitempty"` // as the tool space counts
	Left     int    `json:"left,omitempty"`
	// Of the reply to a Tool, and Result of its events. With Size, the first descriptor holds that many
	// bytes of the result. With Out, the next one is a file that the tool opened.
	Result json.RawMessage `json:"result,omitempty"`
	Size   int64           `json:"size,omitempty"`
	Out    bool            `json:"out,omitempty"`
}

// ErrStrict says that a body is not exactly what its type allows.
var ErrStrict = errors.New("frame: body is not strict JSON of its type")

// Encode renders a body.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("frame: unencodable body: " + err.Error()) // the types above always encode
	}
	return b
}

// Decode reads exactly one JSON value into v. Unknown names, a name twice in
// one object (also in another case, which encoding/json would merge), deep
// nesting and anything after the value are refused.
func Decode(body []byte, v any) error {
	if err := checkNames(body); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return ErrStrict
	}
	return nil
}

const maxDepth = 32

// checkNames looks at the structure once: syntax, depth, double names, one
// value. It decodes names alone: a frame may hold long texts.
func checkNames(body []byte) error {
	if !json.Valid(body) {
		return ErrStrict
	}
	var stack []map[string]bool // names of the objects that are open; nil for a list
	key := false                // a text that comes now is a name
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{', '[':
			if len(stack) == maxDepth {
				return ErrStrict
			}
			var names map[string]bool
			if key = body[i] == '{'; key {
				names = make(map[string]bool)
			}
			stack = append(stack, names)
		case '}', ']':
			stack, key = stack[:len(stack)-1], false
		case ',':
			key = stack[len(stack)-1] != nil
		case '"':
			from := i
			for i++; body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
			if !key {
				continue
			}
			key = false
			name := string(body[from+1 : i])
			if strings.ContainsAny(name, "\\") {
				_ = json.Unmarshal(body[from:i+1], &name) // it is valid
			}
			name = strings.ToLower(name)
			names := stack[len(stack)-1]
			if names[name] {
				return ErrStrict
			}
			names[name] = true
		}
	}
	return nil
}
