package contract

import "fmt"

// Code says why a tool did not do what was asked. The set is closed: a model
// and a harness decide by it, so it is part of the contract.
type Code string

// The codes.
const (
	NotFound   Code = "not_found"   // no such file or folder
	Exists     Code = "exists"      // it is there, and was to be new
	IsDir      Code = "is_dir"      // a folder, where a file is needed
	NotDir     Code = "not_dir"     // no folder, where one is needed
	NotRegular Code = "not_regular" // a pipe, socket, device or a loop of links
	TooBig     Code = "too_big"     // larger than the tool takes
	Binary     Code = "binary"      // no text
	Encoding   Code = "encoding"    // text that cannot be written in the file's encoding
	Invalid    Code = "invalid"     // the content is not of the kind that the tool needs
	Changed    Code = "changed"     // not the content that the caller expected
	NoMatch    Code = "no_match"    // the text to replace, or the cell, is not there
	Ambiguous  Code = "ambiguous"   // it is there more than once
	Permission Code = "permission"  // the task may not
	Outside    Code = "outside"     // a path that no tool takes
	BadArgs    Code = "bad_args"    // the arguments make no sense
	Busy       Code = "busy"        // somebody holds the file; later it may work
	Limit      Code = "limit"       // time, memory, disk space or a number of calls ran out
	Canceled   Code = "canceled"    // the caller ended it
	Internal   Code = "internal"    // a fault of ours
)

// Codes are all of them, in the order of the document.
var Codes = []Code{
	NotFound, Exists, IsDir, NotDir, NotRegular, TooBig, Binary, Encoding, Invalid, Changed, NoMatch, Ambiguous, Permission, Outside, BadArgs, Busy, Limit, Canceled,
	Internal,
}

// Known reports whether c is one of the codes.
func (c Code) Known() bool {
	for _, k := range Codes {
		if c == k {
			return true
		}
	}
	return false
}

// Failure is why a tool did nothing. It is data for who called the tool, not a
// fault of caisson: unless its message says otherwise nothing was changed.
type Failure struct {
	Code Code   `json:"code"`
	Msg  string `json:"message"` // lower case, no full stop; what to do next after a semicolon
}

// Error implements error.
func (f *Failure) Error() string { return string(f.Code) + ": " + f.Msg }

// Fail makes a Failure.
func Fail(code Code, format string, args ...any) *Failure {
	return &Failure{Code: code, Msg: fmt.Sprintf(format, args...)}
}
