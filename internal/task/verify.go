package task

import "time"

// VerifyResult is what came of the attempts at one property. The zero value is none.
type VerifyResult string

// The results. Only held says that something is isolated.
const (
	VerifyHeld     VerifyResult = "held"      // every attempt was refused inside, and some of them work outside
	VerifyBroken   VerifyResult = "broken"    // an attempt worked inside, against what is promised
	VerifyOpen     VerifyResult = "open"      // an attempt worked inside, and the level that rules it out is not promised
	VerifyNotShown VerifyResult = "not_shown" // refused inside, and no control shows that it could work here
	VerifyNotTried VerifyResult = "not_tried" // nothing was attempted
)

// VerifyReport is what `caisson verify` measured of one boundary.
type VerifyReport struct {
	Schema   string    `json:"schema"` // "caisson.verify/1"
	Version  string    `json:"version"`
	Platform string    `json:"platform"` // system, architecture and kernel
	User     string    `json:"user"`     // "root" or "unprivileged": who ran it
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`
	// Target is what was attacked.
	Target VerifyTarget `json:"target"`
	// Verdict is held when nothing was broken and something held; broken when
	// anything was; else not_shown, or not_tried when no boundary was had.
	Verdict VerifyResult `json:"verdict"`
	Why     string       `json:"why,omitempty"` // no boundary was had, for a person
	// Levels are those of the attacked task, promised and proved when it was opened.
	Levels   []Level   `json:"levels,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	// Lacks are the features of the backend that this machine has not, as doctor says.
	Lacks []Feature `json:"lacks,omitempty"`
	// Refusal is what came of a demand that the backend cannot fulfil.
	Refusal   string           `json:"refusal,omitempty"`
	Probes    []VerifyProbe    `json:"probes"`
	Questions []VerifyQuestion `json:"questions"`
	// NotTried says what a run of this kind never tries.
	NotTried []string `json:"not_tried"`
	// Mounts is what is mounted inside, as the mount table says that was read there.
	Mounts []string `json:"mounts,omitempty"`
	Head   string   `json:"head,omitempty"` // of the task's evidence: the hash of its last line
}

// VerifyTarget says what was attacked.
type VerifyTarget struct {
	Kind    string `json:"kind"`              // "backend", "container" or "command"
	Name    string `json:"name"`              // of the backend or the container, or the command
	Version string `json:"version,omitempty"` // of what makes the boundary, as doctor says
}

// VerifyProbe is one property.
type VerifyProbe struct {
	ID       string       `json:"id"` // as in the table of conformance properties
	Axis     Axis         `json:"axis"`
	Text     string       `json:"text"`    // what is tried
	Control  string       `json:"control"` // what shows that it can work
	Result   VerifyResult `json:"result"`
	Why      string       `json:"why,omitempty"`
	Attempts int          `json:"attempts"`
	Refused  int          `json:"refused"`
	Shown    int          `json:"shown"`             // of the refused ones: those that work outside
	Unshown  int          `json:"unshown"`           // of the refused ones: those that count as nothing
	Broken   []string     `json:"broken,omitempty"`  // what worked, against what is promised
	Open     []string     `json:"open,omitempty"`    // what worked, and is not promised
	Seen     []string     `json:"seen,omitempty"`    // sentinels that were reached from inside, as the host saw
	Unclear  []string     `json:"unclear,omitempty"` // ended with an answer that is no refusal
	// NoControl and NotTried say why, each with how many attempts it is.
	NoControl []string `json:"no_control,omitempty"`
	NotTried  []string `json:"not_tried,omitempty"`
}

// VerifyQuestion is one question of the review checklist, answered with what was run.
type VerifyQuestion struct {
	Question string   `json:"question"`
	Answer   []string `json:"answer"`
}

// VerifyAll is what one `caisson verify` measured: a report for each boundary.
type VerifyAll struct {
	Schema  string         `json:"schema"` // "caisson.verification/1"
	Reports []VerifyReport `json:"reports"`
}
