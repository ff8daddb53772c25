package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/caisson-dev/caisson/internal/worker/crossing"
)

// Plan is what a worker in a foreign root is told, once, before anything
// untrusted exists there.
type Plan struct {
	// UID and GID are the tools', as the inside counts. The worker takes another
	// user id: root's, or Worker where the tools have that.
	UID    int `json:"uid"`
	GID    int `json:"gid"`
	Worker int `json:"worker"`
	// Owned are paths that must belong to UID: the task's own folders.
	Owned []string `json:"owned,omitempty"`
	// Mark is a file that must hold MarkText, which shows that what the runtime
	// mounted is this host's.
	Mark     string `json:"mark,omitempty"`
	MarkText string `json:"mark_text,omitempty"`

	Workdir string   `json:"workdir"`
	Env     []string `json:"env"` // of tools, complete
	Rlimits []Rlimit `json:"rlimits,omitempty"`
	Filter  []byte   `json:"filter"` // of tools, as package callfilter assembles it
	Userns  bool     `json:"userns,omitempty"`
	// Own has the worker load Filter on itself too, before it answers.
	Own bool `json:"own,omitempty"`

	// Way and Inward are sockets that the worker makes for the host and hands over at
	// Door, a Unix socket that is this host's; Door empty: none are made.
	Way    *crossing.Way `json:"way,omitempty"`
	Inward int           `json:"inward,omitempty"`
	Door   string        `json:"door,omitempty"`
	// Carry is set where sockets cannot be handed over, for the kernel inside is
	// another than the host's: they stay, and what comes there is carried to Door, behind
	// this secret.
	Carry []byte `json:"carry,omitempty"`
	// Kept are the sockets that stayed, once the worker made them.
	Kept []int `json:"-"`
}

// Rlimit is one resource limit of tools.
type Rlimit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Why says which expectation of a plan was not met; empty: none of these.
type Why string

// Reasons that a host can do something about.
const (
	WhyOwner Why = "owner" // the task's folders belong to somebody else inside
	WhyMark  Why = "mark"  // what is mounted is not this host's
	WhyCaps  Why = "caps"  // the runtime gave the worker too little to keep apart
)

// Report is the worker's one answer to a plan.
type Report struct {
	OK    bool   `json:"ok"`
	Why   Why    `json:"why,omitempty"`
	Error string `json:"error,omitempty"`
	Owner int    `json:"owner"` // with WhyOwner: whose they are

	// By these its process is known from outside, where it can be seen there: the
	// machine's boot, and when the process began, in ticks since then.
	Boot  string `json:"boot,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// What the worker reads of itself, as the kernel says it.
	UID        int    `json:"uid"`
	CapEff     string `json:"cap_eff,omitempty"`
	NoNewPrivs bool   `json:"no_new_privs"`
	Seccomp    int    `json:"seccomp"` // 2: a filter is on
	// Door says why no sockets were handed over that the plan has; empty: they were.
	Door string `json:"door,omitempty"`
}

// maxMessage bounds plan and report.
const maxMessage = 4 << 20

// Send writes one message.
func Send(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// Receive reads one message strictly, and no byte more.
func Receive(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > maxMessage {
		return fmt.Errorf("a message of %d bytes is not one of ours", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("a message that is not one of ours: %v", err)
	}
	return nil
}
