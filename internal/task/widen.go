package task

import "time"

// Widened is a destination that was added to an open task: by a person, or by a
// model's request that a person agreed to. It ends with the task.
type Widened struct {
	To       string    `json:"to"` // as --allow takes it
	By       string    `json:"by"` // who allowed it
	Question string    `json:"question,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	At       time.Time `json:"at"`
}

// AllowReport is what `caisson allow` prints.
type AllowReport struct {
	Schema  string    `json:"schema"` // "caisson.allow/1"
	Task    ID        `json:"task"`
	Widened []Widened `json:"widened"`
	Notes   []string  `json:"notes,omitempty"` // what the caller should know of what was added
}
