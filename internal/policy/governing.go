package policy

import "github.com/caisson-dev/caisson/internal/task"

// Governing is what the policy in force says about one task, from all of its
// sources. The zero value is no policy beyond what is shipped: nothing is
// lowered, nothing delegated, nobody's code is known.
type Governing struct {
	Digest  string      // of every document that counts
	Facts   []task.Fact // declared characteristics; they add risk
	Lowered []task.Fact // the operator's, that take it down
	Floors  []Floor
	// Operator are the operator's floors alone: nothing below is accepted.
	Operator task.Vector
	Accept   AcceptRules
	Standing []task.Acceptance
	// Suppressed are rules of detectors that the operator does not want, with why.
	Suppressed map[string]string
	// Familiar says why the repository's code counts as known, Unfamiliar why not
	// although a person started the task; both empty: nothing is on record.
	Familiar, Unfamiliar string
	Notes                []string // requests that were refused, and why
}
