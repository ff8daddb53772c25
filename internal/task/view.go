package task

import "time"

// The types below are what operations return and what `--json` prints: one
// schema per command, documented in docs/json.md. Fields are only added.

// PlanReport is the decision alone (`plan`): nothing was created for it.
type PlanReport struct {
	Schema      string    `json:"schema"` // "caisson.plan/1"
	Matrix      string    `json:"matrix"` // "matrix/1"
	Rows        []string  `json:"rows"`   // which rows fired, e.g. ["base","R3"]
	Backend     string    `json:"backend"`
	Levels      []Level   `json:"levels"`
	Missing     []Missing `json:"missing"` // empty: the task may run
	Findings    []Finding `json:"findings"`
	Grants      []Grant   `json:"grants"`
	Limits      Limits    `json:"limits"`
	Source      SourceRef `json:"source"`
	Digest      string    `json:"digest"` // sha256 of the canonical plan
	NotIsolated []string  `json:"not_isolated"`
	// Report is the digest of what is short and why, with the command, Gap the same
	// without: acceptances are bound to one of them.
	Report     string       `json:"report"`
	Gap        string       `json:"gap"`
	Policy     string       `json:"policy,omitempty"`     // digest of the policy in force
	Facts      []Fact       `json:"facts"`                // what is known of the task, the riskiest statements of each kind
	Considered []Considered `json:"considered,omitempty"` // every backend, and why it was or was not taken
	Accepted   []Covered    `json:"accepted,omitempty"`   // gaps that somebody accepted
	Shared     []Instance   `json:"shared,omitempty"`     // what a command could reach today, by name
	Budget     []BudgetUse  `json:"budget,omitempty"`     // of all tasks together, without this one
	Notes      []string     `json:"notes,omitempty"`      // requests that were refused, rules that were suppressed
}

// BudgetUse is one part of what all tasks of a user may take together.
type BudgetUse struct {
	What string  `json:"what"` // "tasks", "memory_bytes", "cpus", "disk_bytes"
	Used float64 `json:"used"`
	Most float64 `json:"most"`
	From string  `json:"from"` // FILE:LINE of the policy
}

// BudgetReport is how much of it is used; without a budget it is empty.
type BudgetReport struct {
	Uses    []BudgetUse `json:"uses,omitempty"`
	Waiting int         `json:"waiting,omitempty"` // tasks that wait for their turn
}

// Considered is one backend that was looked at for a plan.
type Considered struct {
	Backend string   `json:"backend"`
	Chosen  bool     `json:"chosen"`
	Why     string   `json:"why"`
	Short   []string `json:"short,omitempty"` // AXIS need, has
}

// Instance is one thing that exists today and that a weak boundary would share.
type Instance struct {
	Axis Axis   `json:"axis"`
	Kind string `json:"kind"` // "worktree", "task", "socket", "credential", "database", "checkout"
	Name string `json:"name"` // a path or a name, never a secret value
	// Reachable says that it is, with the boundary as planned.
	Reachable bool `json:"reachable"`
}

// Covered is a gap that an acceptance covers.
type Covered struct {
	Axis       Axis       `json:"axis"`
	Required   int        `json:"required"`
	Effective  int        `json:"effective"`
	Acceptance Acceptance `json:"acceptance"`
}

// Reason is one reason why a level is required.
type Reason struct {
	Row     string `json:"row,omitempty"`
	Trigger string `json:"trigger,omitempty"` // of the row, for a person
	Fact    Fact   `json:"fact"`              // that made it count; of a floor, who set it and where
	Text    string `json:"text,omitempty"`    // why an axis does not apply
}

// Missing is one axis of a missing-boundary report.
type Missing struct {
	Axis        Axis     `json:"axis"`
	Required    int      `json:"required"`
	Effective   int      `json:"effective"`
	WhyRequired string   `json:"why_required"`
	Reasons     []Reason `json:"reasons"`
	WhyLower    string   `json:"why_lower"`
	Shared      []string `json:"remaining_shared_state"`
	Blast       []string `json:"blast_radius"`
	Options     []string `json:"options"` // exact commands or changes, the way out
	Acceptable  []string `json:"acceptable_by"`
}

// SourceRef says what a task works on.
type SourceRef struct {
	Repo      string   `json:"repo"`       // top of the user's checkout, absolute
	CommonDir string   `json:"common_dir"` // the repository's shared git directory
	BaseRev   string   `json:"base_rev"`   // as asked, e.g. "HEAD"
	Base      string   `json:"base"`       // full object name; empty: no commit yet
	Branch    string   `json:"branch"`     // checked out inside; empty: detached
	Strategy  Strategy `json:"strategy"`
	History   History  `json:"history"`
	Target    string   `json:"target"`           // absolute path inside
	Shared    bool     `json:"shared"`           // objects shared read-only (false: self-contained)
	Dirty     Dirty    `json:"dirty,omitempty"`  // what of the checkout's uncommitted state was carried in
	Start     string   `json:"start,omitempty"`  // commit that holds what the task began with, where it is not the base
	Bare      bool     `json:"bare,omitempty"`   // the repository has no checkout: results leave by branch and export, not by apply
	Folder    string   `json:"folder,omitempty"` // the task's files on the host, where a person may look at them live
	Notes     []string `json:"notes,omitempty"`
}

// View is one task as `ls` and `show` print it.
type View struct {
	Schema      string      `json:"schema"` // "caisson.task/1"
	ID          ID          `json:"id"`
	Name        string      `json:"name"`
	Parent      ID          `json:"parent,omitempty"` // the task that this one is a child of
	State       State       `json:"state"`
	Owner       string      `json:"owner"`
	Created     time.Time   `json:"created"`
	Backend     string      `json:"backend"`
	Source      SourceRef   `json:"source"`
	Command     []string    `json:"command,omitempty"` // of `run`
	Exit        *int        `json:"exit,omitempty"`    // of `run`, once known
	Supervisor  *ProcessRef `json:"supervisor,omitempty"`
	Levels      []Level     `json:"levels,omitempty"`
	Channel     Assurance   `json:"channel,omitempty"`  // what was proved of the worker's channel when the boundary was opened
	Accepted    []Covered   `json:"accepted,omitempty"` // gaps that somebody accepted
	Facts       []Fact      `json:"facts,omitempty"`    // what was known of it when it was decided
	Findings    []Finding   `json:"findings,omitempty"`
	Grants      []Grant     `json:"grants,omitempty"`
	Limits      Limits      `json:"limits"`
	Tools       []Tool      `json:"tools,omitempty"`
	Resources   []Resource  `json:"resources,omitempty"`
	Retention   *Retention  `json:"retention,omitempty"` // of what is kept
	Asked       *Retention  `json:"asked,omitempty"`     // by `keep` while the task is open: honoured when it ends
	Results     []ResultRef `json:"results,omitempty"`
	Artifacts   []Artifact  `json:"artifacts,omitempty"` // files that the task published
	Checks      []Check     `json:"checks,omitempty"`    // commands that verified its files, the last hundred
	Ports       []Port      `json:"ports,omitempty"`     // that the host offers on its loopback, while it is open
	Widened     []Widened   `json:"widened,omitempty"`   // destinations that were added while it is open
	Asking      *Asking     `json:"asking,omitempty"`    // rules of a person about tool calls
	Trust       bool        `json:"trust"`
	Unattended  bool        `json:"unattended"`
	Agent       string      `json:"agent,omitempty"` // whose definition counted
	NotIsolated []string    `json:"not_isolated,omitempty"`
	Problem     string      `json:"problem,omitempty"` // why blocked or stuck
	TaskDir     string      `json:"task_dir,omitempty"`
	// Removing: of a closing task nothing is left to do but to remove its files,
	// which the process named as supervisor does.
	Removing bool `json:"removing,omitempty"`
	// What a later process needs to end the task as this one would, or to resume it.
	Need Vector `json:"need"` // levels that a person demanded with --need
	Ran  bool   `json:"ran"`  // commands may have run: there may be work to rescue
	Keep Keep   `json:"keep"` // what is kept when it ends
	// KeepFor is how long the policy lets the files of the ended task stay at most;
	// 0: it says nothing.
	KeepFor time.Duration `json:"keep_for_ns,omitempty"`
	// RiskyFiles are the policy's own patterns of files that a reviewer must see.
	RiskyFiles []string `json:"risky_files,omitempty"`
	Rootfs     string   `json:"rootfs,omitempty"` // own root folder, or archive of one
	Image      string   `json:"image,omitempty"`  // root of an engine's image, as it was named
	// RootDigest names for good what Image, or the archive Rootfs, was: an image's id at
	// its engine, sha256:HEX of an archive.
	RootDigest string   `json:"root_digest,omitempty"`
	Objects    []string `json:"objects,omitempty"` // object stores shared read-only
	Identity   Identity `json:"identity"`          // who it belongs to
}

// ProcessRef identifies a process beyond its pid, which the kernel reuses.
type ProcessRef struct {
	BootID string `json:"boot_id"`
	PID    int    `json:"pid"`
	Start  uint64 `json:"start_ticks"` // field 22 of /proc/PID/stat, in clock ticks since boot
	PIDNS  uint64 `json:"pidns_inode"`
}

// Tool is a toolchain folder made visible inside, read-only.
type Tool struct {
	Path string   `json:"path"`
	Why  string   `json:"why"`            // the PATH entry or program that led to it
	Hide []string `json:"hide,omitempty"` // parts of it that were masked and why
}

// Resource is one thing caisson made and owns.
type Resource struct {
	Kind     string        `json:"kind"` // "task-dir", "cgroup", "process", "pin", "socket", …
	Name     string        `json:"name"` // deterministic; unique per kind
	External string        `json:"external,omitempty"`
	Token    string        `json:"-"`
	State    ResourceState `json:"state"`
	Error    string        `json:"error,omitempty"`
	Attempts int           `json:"attempts,omitempty"`
	NextTry  *time.Time    `json:"next_try,omitempty"`
}

// Retention says who keeps a task's files, until when and why.
type Retention struct {
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`
	Why   string    `json:"why"`
}

// ResultRef is a ref in the user's repository, or a file, that holds rescued work.
type ResultRef struct {
	Kind   string `json:"kind"` // "branch", "worktree", "tag", "head", "stash", "reflog", "other", "bundle", "ignored", "output"
	Name   string `json:"name"` // full ref name or absolute path
	Object string `json:"object,omitempty"`
	Count  int    `json:"count,omitempty"` // commits or files in it
	Why    string `json:"why,omitempty"`   // a bundle: why the repository did not take it
}

// Artifact is a file that a task published. The host copied it, so it is what
// it was then, whatever the task does later.
type Artifact struct {
	Name      string    `json:"name"` // unique within the task
	Title     string    `json:"title,omitempty"`
	Path      string    `json:"path"`   // of the copy, on the host
	Inside    string    `json:"inside"` // of the original
	Size      int64     `json:"size"`
	SHA256    string    `json:"sha256"`
	MIME      string    `json:"mime"` // guessed from the first bytes and the name
	Published time.Time `json:"published"`
}

// Change is one entry of the change set of a task against its base. Paths are
// raw bytes as git knows them.
type Change struct {
	Status  byte   `json:"-"` // A M D T R
	Path    []byte `json:"-"`
	OldPath []byte `json:"-"` // of a rename
	OldMode uint32 `json:"-"`
	NewMode uint32 `json:"-"`
}

// Work is the inventory of everything in a task that could be lost.
type Work struct {
	Tracked   []string `json:"tracked"`   // changed tracked files (quoted where not UTF-8)
	Untracked []string `json:"untracked"` // not ignored
	Ignored   []string `json:"ignored"`   // top-most ignored entries
	Commits   []string `json:"commits"`   // "ref sha subject-free count"
	Special   []string `json:"special"`   // FIFOs, sockets, devices, nested repositories
	Truncated bool     `json:"truncated"`
}

// Empty reports whether nothing would be lost.
func (w *Work) Empty() bool {
	return len(w.Tracked)+len(w.Untracked)+len(w.Ignored)+len(w.Commits)+len(w.Special) == 0
}

// CloseReport is what `close` did or, with --dry-run, would do.
type CloseReport struct {
	Schema    string      `json:"schema"` // "caisson.close/1"
	ID        ID          `json:"id"`
	DryRun    bool        `json:"dry_run"`
	State     State       `json:"state"`
	Work      Work        `json:"work"`
	Rescued   []ResultRef `json:"rescued"`
	Discarded bool        `json:"discarded"`
	Retention *Retention  `json:"retention,omitempty"`
	Stuck     []Resource  `json:"stuck,omitempty"`
	Bare      bool        `json:"bare,omitempty"`     // the repository has no checkout: results leave by branch and export, not by apply
	Removing  bool        `json:"removing,omitempty"` // closing, but for its files: they are being removed by a process of caisson's
	Refused   int64       `json:"refused,omitempty"`  // connections out that were refused since it was opened: see `log --egress`
	Notes     []string    `json:"notes,omitempty"`    // what stays, or changed, and why a person should know
}

// ReapReport is what `reap` did or would do.
type ReapReport struct {
	Schema    string       `json:"schema"` // "caisson.reap/1"
	DryRun    bool         `json:"dry_run"`
	Actions   []ReapAction `json:"actions"`
	Orphans   []Resource   `json:"orphans"` // ours by name, not provable: reported, never removed
	StillHeld int          `json:"still_stuck"`
}

// ReapAction is one step of a reap.
type ReapAction struct {
	Task   ID     `json:"task"`
	Action string `json:"action"`
	Result string `json:"result"`
}

// DoctorReport says what this machine can enforce.
type DoctorReport struct {
	Schema   string          `json:"schema"` // "caisson.doctor/1"
	Version  string          `json:"version"`
	Platform string          `json:"platform"`
	Backends []BackendReport `json:"backends"`
	Checks   []Feature       `json:"checks"`           // state directory, git, …
	Budget   *BudgetReport   `json:"budget,omitempty"` // of all tasks together, where there is one
}

// BackendReport is one backend in a DoctorReport.
type BackendReport struct {
	Name     string    `json:"name"`
	Version  string    `json:"version,omitempty"` // of what makes the boundary
	Usable   bool      `json:"usable"`
	Why      string    `json:"why"`
	Levels   []Level   `json:"levels"`
	Features []Feature `json:"features"`
	// Needs are what the machine has, or has not, that this backend rests on: looked
	// at, not tried.
	Needs    []Feature `json:"needs,omitempty"`
	Findings []Finding `json:"findings"`
}

// Feature is one trial: it was done, not looked up.
type Feature struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Command is one program to run inside.
type Command struct {
	Argv []string `json:"argv"`
	Dir  string   `json:"dir"` // absolute path inside; empty = where From is, else the source
	From string   `json:"-"`   // the caller\'s working directory on the host; empty = unknown
	Env  []string `json:"-"`   // K=V added to the boundary's environment
	TTY  bool     `json:"tty"`
	Rows uint16   `json:"rows,omitempty"`
	Cols uint16   `json:"cols,omitempty"`
	// Person: a person is at a terminal and typed it. Doors set it from what they know.
	Person bool `json:"-"`
}

// Outcome is how a command ended. Observed says whether the host's kernel told
// us (true) or the worker claimed it.
type Outcome struct {
	Exit     int           `json:"exit"`   // 0-255, as a shell reports it: 128+n for a signal
	Signal   int           `json:"signal"` // 0 if it exited by itself
	Observed bool          `json:"observed"`
	Duration time.Duration `json:"duration_ns"`
	Reason   string        `json:"reason,omitempty"` // "canceled", "timeout", "disk limit", …
	// The same by who told it: exit and signal are in one of the two.
	ByHost   *Observed `json:"by_host,omitempty"`
	ByWorker *Claimed  `json:"by_worker,omitempty"`
}

// Sides tells apart what the host saw of a command that began at begun and what
// the worker told of it.
func (o Outcome) Sides(begun time.Time) (Observed, Claimed) {
	seen, said := Observed{Begun: begun.UTC(), Duration: o.Duration, Reason: o.Reason}, Claimed{}
	exit := o.Exit
	if o.Observed {
		seen.Exit, seen.Signal = &exit, o.Signal
	} else {
		said.Exit, said.Signal = &exit, o.Signal
	}
	return seen, said
}
