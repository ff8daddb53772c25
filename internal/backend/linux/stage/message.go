package stage

import (
	"errors"
	"fmt"
	"syscall"
)

// Error says which step of the set-up failed. Its text names the step exactly,
// for example "mount proc in the tool space: operation not permitted".
type Error struct {
	Step   string        // where: "root", "tool space", "worker", "set-up"
	Op     string        // what: "mount proc"
	Errno  syscall.Errno // 0 when it is not the kernel that refused
	Detail string        // more than the errno, or instead of it
}

// Replaced is the Detail where another file lies under a name than the host saw.
const Replaced = "it was replaced since the host looked"

// Error renders operation, place and cause.
func (e *Error) Error() string {
	s := e.Op + " in the " + e.Step
	if e.Errno != 0 {
		s += ": " + e.Errno.Error()
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// fail makes an Error out of what a system call returned; nil stays nil.
func fail(step, op string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		return &Error{Step: step, Op: op, Errno: no}
	}
	return &Error{Step: step, Op: op, Detail: err.Error()}
}

// Report is what W tells the host once: it stands, or what failed.
type Report struct {
	OK       bool   `json:"ok"`
	Step     string `json:"step,omitempty"`
	Op       string `json:"op,omitempty"`
	Errno    int    `json:"errno,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Error    string `json:"error,omitempty"`     // the whole sentence
	SpacePID int    `json:"space_pid,omitempty"` // pid of I as W sees it
}

// ReportOf turns an error of this package into a report that is not OK.
func ReportOf(err error) Report {
	if err == nil {
		return Report{OK: true}
	}
	r := Report{Error: err.Error(), Detail: err.Error()}
	var e *Error
	if errors.As(err, &e) {
		r.Step, r.Op, r.Errno, r.Detail = e.Step, e.Op, int(e.Errno), e.Detail
	}
	return r
}

// Err returns the failure that r reports, nil when it is OK.
func (r Report) Err() error {
	if r.OK {
		return nil
	}
	if r.Op == "" {
		if r.Error == "" {
			return errors.New("the worker reported a failure without saying which")
		}
		return errors.New(r.Error)
	}
	return &Error{Step: r.Step, Op: r.Op, Errno: syscall.Errno(r.Errno), Detail: r.Detail}
}

// maxMessage bounds one set-up message. Plans are some ten kilobytes.
const maxMessage = 8 << 20

// MaxFDs is how many descriptors may accompany one message: the kernel's own
// bound is 253.
const MaxFDs = 250

func checkLength(n uint32) error {
	if n == 0 || n > maxMessage {
		return fmt.Errorf("a message of %d bytes is not one of ours", n)
	}
	return nil
}
