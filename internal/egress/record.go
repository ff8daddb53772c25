package egress

import (
	"net/netip"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Recorder writes down what leaves a boundary, and what was not let out. It is
// called by many at once.
type Recorder interface {
	// Decided comes before anything leaves, the question for an address included.
	// An error refuses what was asked for.
	Decided(Decision) error
	// Ended comes once for each Decided that allowed a connection or a request.
	Ended(Outcome)
}

// Decision is what was asked for and what was said.
type Decision struct {
	ID      uint64 // 1, 2, 3 … see Config.IDs
	Time    time.Time
	Proto   Proto
	Dest    Dest   // in its one form; zero where Said could not be read
	Said    string // quoted and cut short: what could not be read
	Method  string
	Path    string // without the query, where secrets stand
	Act     Act    // of a request that is read
	Digest  string // of a request that a person was asked about as a whole
	Verdict task.Verdict
	Rule    string // in words
	Asked   bool   // a person agreed
	Reason  Reason // why not, of a refusal
}

// Outcome is what became of an allowed one.
type Outcome struct {
	ID       uint64
	Addr     netip.AddrPort // that was dialled; invalid where none was
	Up, Down int64          // bytes out of the boundary, and into it
	Duration time.Duration
	Reason   Reason // empty: both ends came to their end
	Text     string // for a person, where there is a reason
}
