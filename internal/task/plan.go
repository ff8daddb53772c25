package task

import "time"

// Strategy is how a task gets its source.
type Strategy string

// The source strategies.
const (
	StrategyClone    Strategy = "clone"    // a private clone with its own .git
	StrategyWorktree Strategy = "worktree" // a linked worktree; .git is masked, git runs on the host
	StrategyCheckout Strategy = "checkout" // the user's checkout itself
	StrategyCopy     Strategy = "copy"     // files without git
)

// Dirty says which uncommitted state of the user's checkout a task begins with.
type Dirty string

// The dirty modes. The zero value carries nothing over.
const (
	DirtyNone    Dirty = ""
	DirtyChanged Dirty = "changed" // staged, unstaged and untracked
	DirtyAll     Dirty = "all"     // and what is ignored
)

// History says how much of the repository a task can read.
type History string

// The histories.
const (
	HistoryFull History = "full" // every object, shared read-only: SRC 2
	HistoryBase History = "base" // only what the base revision reaches, self-contained: SRC 3
	HistoryNone History = "none" // one commit: SRC 3
)

// Keep says what happens to a task's files when `run` ends or a task is closed.
type Keep string

// The keep modes.
const (
	KeepAuto      Keep = "auto"       // unchanged and successful: released; else kept 24 h
	KeepAlways    Keep = "always"     // kept 24 h
	KeepOnFailure Keep = "on-failure" // kept 24 h when the command failed
	KeepNever     Keep = "never"      // released; work is rescued first all the same
)

// Limits bounds a boundary. Zero means: the default of the plan, never "no limit".
type Limits struct {
	MemoryBytes int64         `json:"memory_bytes"`
	CPUs        float64       `json:"cpus"`
	Pids        int64         `json:"pids"`
	DiskBytes   int64         `json:"disk_bytes"`
	Timeout     time.Duration `json:"timeout_ns"` // of the whole task; 0 = none asked
	// Of the way out. NetBytes counts both directions together, over all that the
	// task lives, and 0 is none asked.
	NetBytes int64 `json:"net_bytes,omitempty"`
	NetConns int64 `json:"net_connections,omitempty"` // at a time
	NetRate  int64 `json:"net_rate,omitempty"`        // new ones a second, refused ones among them
}

// Bind is a host folder or file granted to a task by a person, read-only.
type Bind struct {
	Source string `json:"source"` // absolute host path, links resolved
	Target string `json:"target"` // absolute path inside
}

// Grant is authority given to one task by a person.
type Grant struct {
	Kind   string `json:"kind"`   // "ro", "ptrace", "userns", "env"
	Value  string `json:"value"`  // never a secret: for env the name only
	Source string `json:"source"` // "flag", "default", …
}

// Finding is something that lowers or qualifies what a boundary isolates.
type Finding struct {
	ID       string `json:"id"` // closed set, e.g. "ro-seed", "no-cgroup"
	Axis     Axis   `json:"axis"`
	Cap      int    `json:"cap"` // the level this finding caps Axis to; MaxLevel when it only informs
	Text     string `json:"text"`
	Location string `json:"location,omitempty"`
	Fix      string `json:"fix,omitempty"`
}

// Identity is who the work belongs to.
type Identity struct {
	UID   int    `json:"uid"` // invoking user outside
	GID   int    `json:"gid"`
	Login string `json:"login"`
	Home  string `json:"home"` // absolute; never empty (a fallback is chosen when HOME is unset)
}

// GitIdentity is the author and committer that commits made inside get.
type GitIdentity struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// Request is what a person asked for, after flags and environment were read
// and before anything was looked at. All paths are as typed.
type Request struct {
	Name       string   `json:"name"`             // any text; may be empty
	Parent     string   `json:"parent,omitempty"` // id, or a beginning of it, or name, of an open task: this one gets at most its authority
	Repo       string   `json:"repo"`             // directory; empty = working directory
	Base       string   `json:"base"`             // revision; empty = HEAD
	At         string   `json:"at"`               // path inside; empty = same as the checkout
	Strategy   Strategy `json:"strategy"`
	Dirty      Dirty    `json:"dirty,omitempty"`
	History    History  `json:"history"`
	Backend    string   `json:"backend"`
	Rootfs     string   `json:"rootfs"`
	Image      string   `json:"image,omitempty"` // of an engine's, instead
	Pull       bool     `json:"pull,omitempty"`  // the engine may fetch Image where it is not there
	Need       Vector   `json:"need"`
	RO         []string `json:"ro"`                // DIR[:DIR]
	Env        []string `json:"-"`                 // K=V or K; values never recorded
	Grants     []string `json:"grants"`            // "ptrace", "userns"
	Net        string   `json:"net,omitempty"`     // "none", "registries", "allowlist", "open"; empty: allowlist with Allow, else none
	Allow      []string `json:"allow,omitempty"`   // HOST:PORT
	Lend       []string `json:"lend,omitempty"`    // handles of credentials
	Publish    []string `json:"publish,omitempty"` // PORT or HOST-PORT:PORT
	Phase      string   `json:"phase,omitempty"`   // "install": dependencies may be installed in a boundary of their own
	Limits     Limits   `json:"limits"`
	Keep       Keep     `json:"keep"`
	Trust      bool     `json:"trust"`
	Unattended bool     `json:"unattended"`
	// Agent is the name of the agent that does the work, whose definition may
	// demand a boundary. Empty: none is known.
	Agent   string `json:"agent,omitempty"`
	Discard bool   `json:"discard"`
	Asking  Asking `json:"asking,omitzero"`
	// Person: a person started it, whose flags and environment count as theirs.
	// Terminal: and is there to see and to answer. Doors set both from what they
	// know, never from a message of a program.
	Person   bool              `json:"person,omitempty"`
	Terminal bool              `json:"terminal,omitempty"`
	Origin   map[string]string `json:"origin,omitempty"` // which source set which field
}

// Level is one axis of a decision as shown to a person.
type Level struct {
	Axis     Axis   `json:"axis"`
	Required int    `json:"required"`
	Promised int    `json:"promised"`
	Proved   int    `json:"proved"`
	Why      string `json:"why"`  // why required
	How      string `json:"how"`  // why promised (what does it)
	Seen     string `json:"seen"` // what the probe or the host observed
	// Of an axis that counts when a result leaves: what of Required somebody asked for
	// beyond the rows, and in a few words who asks.
	Demanded int    `json:"demanded,omitempty"`
	Asked    string `json:"asked,omitempty"`
	// Reasons are what Why says, one by one: the row, and the fact that made it count.
	Reasons []Reason `json:"reasons,omitempty"`
}
