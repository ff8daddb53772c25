package egress

import (
	"context"
	"io"
	"net/http"
)

// Lender gives requests what the task must not hold. Its methods are called by
// many connections at once.
type Lender interface {
	// Reads says whether requests to d must be read on the host to be given
	// something: TLS to d is then ended at the gate.
	Reads(d Dest) bool
	// Lend is asked about each request that was allowed, before a byte of it is
	// sent. It may change r.Header and nothing else. An error refuses the request;
	// a nil Loan says that nothing was lent.
	Lend(ctx context.Context, r *Outgoing) (Loan, error)
}

// Outgoing is a request that was allowed and is about to be sent.
type Outgoing struct {
	Crossing uint64 // the Decision on record
	Dest     Dest
	TLS      bool // whether the stream to Dest is verified TLS; where it is not, nothing may be lent
	Method   string
	Path     string      // without the query
	Query    string      // without the ?
	Header   http.Header // canonical names; without what ends at the gate
	Length   int64       // of the body in bytes; -1: not known
	// Sum reads the body to its end, keeps it and returns its SHA-256; what is kept
	// is sent. A body that is too long for that is an error.
	Sum func() ([]byte, error)
}

// Loan is what one request was given.
type Loan interface {
	// Answer takes what was lent out of the header of an answer, or its trailer.
	Answer(h http.Header)
	// Body takes it out of the answer's body, whatever it is cut into. It holds
	// back no more than what may be the beginning of it: a stream goes on. Where
	// there is a Loan the gate asks for the body as it is, not compressed, and
	// refuses one that is.
	Body(r io.Reader) io.Reader
	// Back takes the loan back. It is called once, when the request has ended.
	Back()
}
