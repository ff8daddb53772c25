package task

import "time"

// Check is one command that was run to verify a task's result, as the host
// measured it: nothing in it was said by the command, except where Observed is
// false. The zero value verifies nothing.
type Check struct {
	Name   string   `json:"name,omitempty"` // of it; empty where it was given none
	Argv   []string `json:"argv"`
	Dir    string   `json:"dir"`         // where it started, inside
	Digest string   `json:"argv_sha256"` // of Argv and Dir, byte for byte
	Pinned string   `json:"pinned"`      // who said what is run: "typed" by a person, or the policy file and line

	Tree     string        `json:"tree"`              // of the task's files when it started, without the ignored ones
	After    string        `json:"tree_after"`        // when it had ended; empty: it could not be read
	Changed  []string      `json:"changed,omitempty"` // files of the tree that differ between the two, at most 100
	Ignored  int           `json:"ignored"`           // ignored entries that were there: they are not in the tree, and it may have used them
	Begun    time.Time     `json:"begun"`
	Duration time.Duration `json:"duration_ns"`
	Exit     int           `json:"exit"`
	Observed bool          `json:"observed"`         // the host's kernel told the exit status; false: the worker did
	Reason   string        `json:"reason,omitempty"` // why it was ended, where it was
	Level    int           `json:"level"`            // of VER that it gives a result with exactly this tree
	Why      string        `json:"why"`              // that level
}

// CheckList are the checks that the policy of a task declares.
type CheckList struct {
	Schema string          `json:"schema"` // "caisson.checks/1"
	Task   ID              `json:"task"`
	Policy string          `json:"policy"` // digest of the policy in force
	Checks []DeclaredCheck `json:"checks"`
}

// DeclaredCheck is one of them.
type DeclaredCheck struct {
	Name   string   `json:"name"`
	Run    []string `json:"run"`
	Pinned string   `json:"pinned"` // who declared it, with file and line; that of a repository is the file of the base commit
	// Last is its last run on record; it says something of exactly the tree it names.
	Last *Check `json:"last,omitempty"`
}

// Verification says how far a result is verified that is about to leave.
type Verification struct {
	Tree     string `json:"tree"`     // of the result
	Level    int    `json:"level"`    // of VER, for exactly this tree
	Required int    `json:"required"` // by rows and by whoever demanded it
	// Demanded is what somebody demanded: with --need, in the environment, in a
	// policy. A result with less does not leave without an acceptance.
	Demanded int     `json:"demanded"`
	Why      string  `json:"why"`    // Required
	Checks   []Check `json:"checks"` // of exactly this tree, the last run of each; failed ones too
	Stale    int     `json:"stale"`  // checks of other trees, which say nothing of this one
	// Accepted covers what is missing of Demanded.
	Accepted *Acceptance `json:"accepted,omitempty"`
}

// Short says that less is verified than is required.
func (v *Verification) Short() bool { return v.Level < v.Required }

// Refused says that the result must not leave.
func (v *Verification) Refused() bool { return v.Level < v.Demanded && v.Accepted == nil }
