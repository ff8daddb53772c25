package task

import (
	"errors"
	"fmt"
	"strings"
)

// Code says what kind of failure an Error is. The set is closed: it is printed
// in JSON, decides the exit status and is documented in `caisson help exit-codes`.
type Code string

// The codes.
const (
	CodeUsage           Code = "usage"            // the call's words are off
	CodeNotFound        Code = "not_found"        // no such task, revision, file
	CodeConflict        Code = "conflict"         // a name, a state or a change collides
	CodeState           Code = "wrong_state"      // the task is not in a state that allows this
	CodeBoundaryMissing Code = "boundary_missing" // required above promised; nothing was created
	CodeProbeMismatch   Code = "probe_mismatch"   // promised above proved; nothing was executed
	CodeUnsupported     Code = "unsupported"      // known, but not in this version or not here
	CodeUnavailable     Code = "unavailable"      // a backend or host facility is missing
	CodePolicy          Code = "policy_invalid"   // a policy or required level cannot be read
	CodeDenied          Code = "denied"           // a rule or layer refused
	CodeUnsafePath      Code = "unsafe_path"      // a path would overlap what must stay apart
	CodeSource          Code = "source"           // the repository cannot be used as asked
	CodeBadResult       Code = "bad_result"       // what came out of a boundary failed verification
	CodeNotExecutable   Code = "not_executable"   // as a shell's 126
	CodeNoCommand       Code = "no_command"       // as a shell's 127
	CodeChannel         Code = "channel"          // the worker's channel is gone or sent a bad frame
	CodeOutcomeUnknown  Code = "outcome_unknown"  // a call may or may not have happened; never replayed
	CodeLimit           Code = "limit"            // a limit of the plan ended it
	CodeCanceled        Code = "canceled"         // a person or a signal ended it
	CodeStuck           Code = "stuck"            // a cleanup did not finish; it stays ours
	CodeKept            Code = "kept"             // done, but files stay on disk
	CodeEvidence        Code = "evidence"         // evidence could not be written or does not verify
	CodeStateStore      Code = "state_store"      // the state directory or the inventory cannot be used
	CodeInternal        Code = "internal"         // a fault of caisson itself
)

// exitStatus maps codes to the exit status of commands that do not pass a
// status through. 1 is the default.
var exitStatus = map[Code]int{
	CodeUsage: 2, CodeBoundaryMissing: 3, CodeProbeMismatch: 3, CodeDenied: 4,
	CodeUnavailable: 5, CodePolicy: 6, CodeStuck: 7, CodeKept: 7, CodeCanceled: 130,
}

// ExitStatus returns the status a command such as `open` or `close` ends with
// for this code: see `caisson help exit-codes`.
func (c Code) ExitStatus() int {
	if s, ok := exitStatus[c]; ok {
		return s
	}
	return 1
}

// Error is the one error type that crosses room borders.
type Error struct {
	Code Code   // what kind
	Op   string // where: "source.clone", "linux.launch", …
	Msg  string // for a person: lower case, no full stop
	Hint string // the next step, or empty
	Err  error  // the cause, for the log
	// Detail is printed as is after the message and carried in JSON, for
	// example the missing-boundary report. It must marshal to JSON.
	Detail any
	// shortage is Shortage of a cause that is in Msg only, because nobody else
	// may match it.
	shortage string
}

// Error renders message and cause on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Msg)
	if e.Err != nil {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error without a hint. A trailing %w becomes the cause.
func Errorf(code Code, op, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := (&Error{Code: code, Op: op, Msg: err.Error()}).withCause(errors.Unwrap(err))
	for _, a := range args {
		if cause, ok := a.(error); ok && e.Err == nil && e.shortage == "" {
			e.shortage = Shortage(cause)
		}
	}
	return e
}

// withCause keeps the cause for errors.Is without printing it twice.
func (e *Error) withCause(cause error) *Error {
	if cause != nil {
		e.Msg = strings.TrimSuffix(strings.TrimSuffix(e.Msg, cause.Error()), ": ")
		e.Err = cause
	}
	return e
}

// WithHint returns e with the next step set.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// CodeOf returns the code of the first Error in err's chain, CodeInternal for
// another error and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// HintOf returns the hint of the first Error in err's chain that has one. When
// the machine is out of something the step against that comes first: without it
// the other one fails again.
func HintOf(err error) string {
	first, own := Shortage(err), ownHint(err)
	switch {
	case first == "" || strings.Contains(own, first):
		return own
	case own == "":
		return first
	}
	return first + "; " + own
}

func ownHint(err error) string {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}
