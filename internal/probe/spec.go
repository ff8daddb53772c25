package probe

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/caisson-dev/caisson/internal/task"
)

// SpecSchema and ReportSchema name the two messages of a probe run.
const (
	SpecSchema   = "caisson.probe-spec/1"
	ReportSchema = "caisson.probe-report/1"
)

// Spec tells the inside half what to try. The host fills it from what it
// planted and what it knows exists; it holds no secret.
type Spec struct {
	Schema string `json:"schema"`
	Nonce  string `json:"nonce"` // echoed by the report; makes an old report worthless

	Absent []string `json:"absent"` // absolute host paths that must not be readable
	// Ident holds "device:inode" of paths in Absent. Below Source a path counts as
	// the host's only if it is that very file: a repository may track the name.
	Ident    map[string]string `json:"ident,omitempty"`
	Control  []string          `json:"control"`   // sockets of daemons with host authority (runtimes, buses, other caissons)
	Agents   []string          `json:"agents"`    // sockets of agents and of the desktop session
	Abstract []string          `json:"abstract"`  // names of abstract sockets, without the leading NUL
	Dial     []string          `json:"dial"`      // "IP:port" that must not be reachable
	Writable []string          `json:"writable"`  // paths inside that must be writable: source, output store, home, /tmp
	ReadOnly []string          `json:"read_only"` // paths inside that must not be writable
	Source   string            `json:"source"`    // the source's path inside
	Home     string            `json:"home"`      // path inside
	Env      []string          `json:"env"`       // names that the environment may hold

	HostPID   int               `json:"host_pid"`   // the supervisor, in the host's numbering
	HostStart uint64            `json:"host_start"` // its start time in ticks since boot
	HostNS    map[string]uint64 `json:"host_ns"`    // inode numbers of the host's namespaces
	UID       int               `json:"uid"`        // expected inside
	GID       int               `json:"gid"`

	Ptrace bool `json:"ptrace"` // tools may trace each other
	Userns bool `json:"userns"` // tools may make user namespaces
	// HostKernel is the boot id and the version text of the host's kernel where what
	// runs inside has another one, which shows neither.
	HostKernel [2]string `json:"host_kernel,omitempty"`
	OwnRoot    bool      `json:"own_root"` // the root is a prepared folder, not the host's system folders

	// Gate is what the host lets out of the boundary; while it is measured nothing.
	Gate Gate `json:"gate,omitempty"`
}

// Gate is how a boundary's way out is ruled.
type Gate string

// The ways; the zero value is none at all.
const (
	GateNone Gate = ""
	GateList Gate = "list" // what is not allowed is denied
	GateOpen Gate = "open" // what is not denied is allowed
)

// level is the most that NET can be with it.
func (g Gate) level() int {
	switch g {
	case GateNone:
		return task.MaxLevel(task.NET)
	case GateList:
		return 2
	}
	return 1
}

// Outcome is what happened to one attempt.
type Outcome string

// The outcomes. Denied is the only one that proves isolation.
const (
	Denied    Outcome = "denied"    // refused, or the dangerous state is absent
	Allowed   Outcome = "allowed"   // it worked, or would have
	Same      Outcome = "same"      // a namespace is the host's
	Different Outcome = "different" // a namespace is not the host's: counts as denied
	Failed    Outcome = "error"     // could not be attempted, proves nothing
)

// proves reports whether o counts as isolation.
func (o Outcome) proves() bool { return o == Denied || o == Different }

// Result is one attempt as reported from inside.
type Result struct {
	ID      string    `json:"id"` // check id, "#" and the number of the target in the Spec
	Axis    task.Axis `json:"axis"`
	What    string    `json:"what"`
	Outcome Outcome   `json:"outcome"`
	Errno   string    `json:"errno,omitempty"`
	Detail  string    `json:"detail,omitempty"`
}

// Report is what Inside returns. Everything in it is a claim.
type Report struct {
	Schema string   `json:"schema"`
	Nonce  string   `json:"nonce"`
	Micros int64    `json:"micros"` // duration of the attempts
	Checks []Result `json:"checks"`
	Facts  Facts    `json:"facts"`
}

// Facts are observations that decide nothing by themselves.
type Facts struct {
	UID        int         `json:"uid"`
	GID        int         `json:"gid"`
	PID        int         `json:"pid"`
	PPID       int         `json:"ppid"`
	Processes  int         `json:"processes"`    // visible in /proc
	Env        []string    `json:"env"`          // names only
	UIDMap     []string    `json:"uid_map"`      // lines
	GIDMap     []string    `json:"gid_map"`      // lines
	Interfaces []string    `json:"interfaces"`   // names
	Devices    []string    `json:"devices"`      // entries of /dev
	Mounts     []Mount     `json:"mounts"`       // as seen inside
	Rlimits    []RlimitVal `json:"rlimits"`      // of the probing process
	Status     []string    `json:"status"`       // NoNewPrivs, Seccomp, Cap… lines
	Socketable []string    `json:"socket_kinds"` // family/type pairs that could be made
}

// Mount is one line of a mount table.
type Mount struct {
	Point   string `json:"point"` // as seen by the process
	Type    string `json:"type"`
	Options string `json:"options"` // of the mount, not of its file system
	Root    string `json:"root"`    // folder of the file system that is shown
	Dev     string `json:"dev"`     // major:minor
}

// RlimitVal is one resource limit.
type RlimitVal struct {
	Name string `json:"name"`
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Bounds of what a report may hold; beyond them it is refused as a whole.
const (
	maxReport = 1 << 20
	maxChecks = 8192
	// MaxTargets bounds each list of a Spec, so that a probe stays quick.
	MaxTargets = 256
)

// Encode renders s for Inside, with lists bounded by MaxTargets.
func (s *Spec) Encode() ([]byte, error) {
	s.Schema = SpecSchema
	for _, l := range []struct {
		name string
		n    int
	}{{"absent", len(s.Absent)}, {"control", len(s.Control)}, {"agents", len(s.Agents)}, {"abstract", len(s.Abstract)},
		{"dial", len(s.Dial)}, {"writable", len(s.Writable)}, {"read_only", len(s.ReadOnly)}} {
		if l.n > MaxTargets {
			return nil, task.Errorf(task.CodeInternal, "probe.spec", "the list %s has %d entries, more than %d", l.name, l.n, MaxTargets)
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, task.Errorf(task.CodeInternal, "probe.spec", "encode: %v", err)
	}
	return b, nil
}

// decodeStrict reads exactly one JSON value with known fields only.
func decodeStrict(data []byte, schema string, into any, got *string) error {
	if len(data) > maxReport {
		return fmt.Errorf("longer than %d bytes", maxReport)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("decode: %v", err)
	}
	if dec.More() {
		return fmt.Errorf("trailing data")
	}
	if *got != schema {
		return fmt.Errorf("schema %.40q instead of %q", *got, schema)
	}
	return nil
}
