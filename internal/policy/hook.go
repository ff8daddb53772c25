package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// HookSchema names the question that a decision hook reads.
const HookSchema = "caisson.decision/1"

// HookTime is how long a decision hook may take where the policy does not say.
const HookTime = 2 * time.Second

// MaxHookAnswer bounds what a decision hook may answer, in bytes.
const MaxHookAnswer = 64 << 10

// HookQuestion is what a decision hook is asked about.
type HookQuestion struct {
	Schema     string       `json:"schema"`
	Kind       string       `json:"kind"` // "open", "resume", "run", "exec", "tool"
	Task       task.ID      `json:"task"`
	Name       string       `json:"name,omitempty"` // of the task
	Owner      string       `json:"owner"`          // who works with it
	Repo       string       `json:"repo"`
	Plan       string       `json:"plan"`       // digest of the plan that it is, or would be, done under
	Unattended bool         `json:"unattended"` // nobody is there to answer questions
	Call       *HookCall    `json:"call,omitempty"`
	Grants     []task.Grant `json:"grants,omitempty"` // of open, run and resume
	Verdict    task.Verdict `json:"verdict"`          // of the rules: "allow" or "ask"
	Rule       string       `json:"rule"`             // that gave it
}

// HookCall is one command or one tool call, without the content of files and the
// values of variables.
type HookCall struct {
	ID     string   `json:"id,omitempty"`
	Digest string   `json:"digest,omitempty"`
	Tool   string   `json:"tool,omitempty"`
	Argv   []string `json:"argv,omitempty"`
	Script string   `json:"script,omitempty"` // what a shell is given
	Dir    string   `json:"dir,omitempty"`
	Paths  []string `json:"paths,omitempty"`
	Env    []string `json:"env,omitempty"` // names
	// Linked says that a path leads through a link: it has other names than these.
	Linked bool `json:"linked,omitempty"`
}

// HookAnswer is what a decision hook says: deny, ask, or none, which leaves the
// verdict as it is.
type HookAnswer struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}

// ParseHookAnswer reads one answer. What is not exactly one is an error, and an
// error denies.
func ParseHookAnswer(b []byte) (HookAnswer, error) {
	var a HookAnswer
	if len(b) > MaxHookAnswer {
		return a, fmt.Errorf("the answer is longer than %d bytes", MaxHookAnswer)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return HookAnswer{}, fmt.Errorf("the answer cannot be read: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return HookAnswer{}, errors.New("something stands behind the answer")
	}
	switch a.Verdict {
	case "deny", "ask", "none":
		return a, nil
	}
	return HookAnswer{}, fmt.Errorf("the verdict is %q, and must be deny, ask or none", clip(a.Verdict))
}

// Tightened is a verdict after a hook's answer, which never loosens it.
func (a HookAnswer) Tightened(v task.Verdict) task.Verdict {
	switch {
	case v != task.VerdictAllow && v != task.VerdictAsk, a.Verdict != "none" && a.Verdict != "ask":
		return task.VerdictDeny
	case a.Verdict == "ask":
		return task.VerdictAsk
	}
	return v
}
