// Package evidence is the append-only, hash-chained record of what happened to
// a task: one JSON object a line, written on the host alone.
//
// Its limit: it records and checks what it is told; it decides nothing, and a
// chain by itself does not show a lost tail: the head must be kept elsewhere.
package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// FileName is the log's name in the evidence folder of a task.
const FileName = "events.jsonl"

// MaxLine is the largest line in bytes, line feed included.
const MaxLine = 1 << 20

// Genesis is what the first line names as the hash of its predecessor.
var Genesis = strings.Repeat("0", 64)

var _ = sys.RegisterFaults("evidence.append.before", "evidence.append.written", "evidence.append.synced")

// Type says what an event is. The set is closed.
type Type string

// The event types. "intent" comes before an effect, "outcome" after it.
const (
	TaskCreated       Type = "task.created"
	PlanDecided       Type = "plan.decided"
	FindingRaised     Type = "finding.raised"
	GrantGiven        Type = "grant.given"
	Accepted          Type = "acceptance.recorded"
	Revoked           Type = "acceptance.revoked"
	ApprovalAsked     Type = "approval.asked"
	ApprovalAnswered  Type = "approval.answered"
	ApprovalUsed      Type = "approval.used" // the call that was allowed is about to be made
	ApprovalVoid      Type = "approval.void" // it counts no more: too late, or something it was about has changed
	SourcePrepared    Type = "source.prepared"
	RootPrepared      Type = "root.prepared" // an image was found, or an archive unpacked, to be the root
	BoundaryIntent    Type = "boundary.intent"
	BoundaryCreated   Type = "boundary.created"
	BoundaryBlocked   Type = "boundary.blocked"
	BoundaryFailed    Type = "boundary.failed"
	BoundaryEnded     Type = "boundary.ended"
	ProbeReported     Type = "probe.reported"
	SupervisorStarted Type = "supervisor.started"
	SupervisorEnded   Type = "supervisor.ended"
	SupervisorLost    Type = "supervisor.lost"
	ChannelPoisoned   Type = "channel.poisoned"
	CallRefused       Type = "call.refused" // by the policy; nothing was done
	CallIntent        Type = "call.intent"
	CallOutcome       Type = "call.outcome"
	CallCanceled      Type = "call.canceled"
	CheckIntent       Type = "check.intent"  // a command is about to verify the files as they are: a call follows
	CheckOutcome      Type = "check.outcome" // what the host saw of the command and of the files
	ToolRefused       Type = "tool.refused"  // by a rule, a person, or for what is asked; nothing was done
	ToolIntent        Type = "tool.intent"
	ToolOutcome       Type = "tool.outcome"
	ShellEnded        Type = "shell.ended"        // of a background shell
	InstallIntent     Type = "install.intent"     // dependencies are about to be installed, in a boundary of their own
	InstallOutcome    Type = "install.outcome"    // what came of it
	EgressDecided     Type = "egress.decided"     // something inside asked for something outside
	EgressEnded       Type = "egress.ended"       // what became of what was let out
	EgressWidened     Type = "egress.widened"     // a person added a destination to an open task
	EgressNarrowed    Type = "egress.narrowed"    // and took it back
	CredentialLent    Type = "credential.lent"    // a secret is about to be read on the host, to be lent to requests
	CredentialUsed    Type = "credential.used"    // a request is about to be given it
	CredentialSigned  Type = "credential.signed"  // a key of SSH is about to sign a login or a document
	CredentialRefused Type = "credential.refused" // a request that was to be given it does not leave
	CredentialAstray  Type = "credential.astray"  // its placeholder stands where it means nothing
	CredentialBack    Type = "credential.back"    // it is held no more
	PortPublished     Type = "port.published"     // the host offers a server inside on its loopback
	PortRefused       Type = "port.refused"       // who was not let in there
	PortWithdrawn     Type = "port.withdrawn"
	ArtifactKept      Type = "artifact.kept"
	LimitHit          Type = "limit.hit"
	WorkFound         Type = "work.found"
	RescueIntent      Type = "rescue.intent"
	RescueDone        Type = "rescue.done"
	RescueFailed      Type = "rescue.failed"
	CleanupIntent     Type = "cleanup.intent"
	CleanupOutcome    Type = "cleanup.outcome"
	StateChanged      Type = "task.state"
	TaskKept          Type = "task.kept"
	TaskStuck         Type = "task.stuck"
	TaskSealed        Type = "task.sealed"
	TaskClosed        Type = "task.closed"
	ChildEnded        Type = "child.ended"   // in the record of its parent: what became of it
	RetentionSet      Type = "retention.set" // `keep`: a person said until when files stay
	ResumeIntent      Type = "resume.intent"
	ResumeFailed      Type = "resume.failed" // the task is kept as before
	ApplyIntent       Type = "apply.intent"
	ApplyOutcome      Type = "apply.outcome"
	ApplyRecovered    Type = "apply.recovered" // an apply that was cut short was taken back
	FetchIntent       Type = "fetch.intent"    // a throwaway boundary is to write the task's commits out
	BranchIntent      Type = "branch.intent"
	BranchOutcome     Type = "branch.outcome"
	ExportIntent      Type = "export.intent"
	ExportOutcome     Type = "export.outcome"
	CheckoutChanged   Type = "checkout.changed" // what of a checkout's git directory host git acts on
	VerifyBegan       Type = "verify.began"     // in a report of `caisson verify`: what is attacked, with what
	VerifyProbe       Type = "verify.probe"     // what came of the attempts at one property
	VerifyEnded       Type = "verify.ended"     // and of all of them
	LogRepaired       Type = "log.repaired"     // written by Open after a crash
)

// Types lists every event type.
var Types = []Type{
	TaskCreated, PlanDecided, FindingRaised, GrantGiven, Accepted, Revoked, ApprovalAsked, ApprovalAnswered, ApprovalUsed, ApprovalVoid, SourcePrepared, RootPrepared,
	BoundaryIntent, BoundaryCreated, BoundaryBlocked, BoundaryFailed, BoundaryEnded, ProbeReported, SupervisorStarted,
	SupervisorEnded, SupervisorLost, ChannelPoisoned, CallRefused, CallIntent, CallOutcome, CallCanceled, CheckIntent, CheckOutcome, ToolRefused, ToolIntent, ToolOutcome, ShellEnded, InstallIntent, InstallOutcome, EgressDecided, EgressEnded, EgressWidened, EgressNarrowed, CredentialLent, CredentialUsed, CredentialSigned, CredentialRefused, CredentialAstray, CredentialBack, PortPublished, PortRefused, PortWithdrawn, ArtifactKept, LimitHit, WorkFound,
	RescueIntent, RescueDone, RescueFailed, CleanupIntent, CleanupOutcome, StateChanged, TaskKept, TaskStuck, TaskSealed,
	TaskClosed, ChildEnded, RetentionSet, ResumeIntent, ResumeFailed, ApplyIntent, ApplyOutcome, ApplyRecovered, FetchIntent, BranchIntent, BranchOutcome,
	ExportIntent, ExportOutcome, CheckoutChanged, VerifyBegan, VerifyProbe, VerifyEnded, LogRepaired,
}

// Known reports whether t is in the set.
func (t Type) Known() bool { return slices.Contains(Types, t) }

// Actor is who caused an event.
type Actor struct {
	Kind string `json:"kind"` // "user", "caisson", "worker" (a claim), …
	ID   string `json:"id"`
}

// Event is one line of the log.
type Event struct {
	Seq      uint64          `json:"seq"` // 1, 2, 3 … without a gap
	Time     time.Time       `json:"ts"`  // UTC by the host's clock; order is Seq's, the clock may jump
	Type     Type            `json:"type"`
	Task     task.ID         `json:"task"`
	Actor    Actor           `json:"actor"`
	Body     json.RawMessage `json:"body"`
	Redacted int             `json:"redacted"` // secrets removed from this line before it was hashed
	Prev     string          `json:"prev"`     // hex LeafHash of the previous line, Genesis in the first

	Line []byte `json:"-"` // as read, without line feed: what LeafHash covers
}

// Fields returns the body as a map; nil when it is not an object.
func (e *Event) Fields() map[string]any {
	var m map[string]any
	if json.Unmarshal(e.Body, &m) != nil {
		return nil
	}
	return m
}

// Head is how far a log reaches.
type Head struct {
	Seq  uint64 `json:"seq"`  // of the last line; 0: empty
	Hash string `json:"hash"` // hex LeafHash of the last line; Genesis when empty
}

// LeafHash hashes the raw bytes of a line without its line feed, as a leaf of
// an RFC 6962 tree.
func LeafHash(line []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte{0})
	h.Write(line)
	return [sha256.Size]byte(h.Sum(nil))
}

func hexLeaf(line []byte) string {
	h := LeafHash(line)
	return hex.EncodeToString(h[:])
}

// What Verify and Read tell apart.
var (
	ErrAltered   = errors.New("altered")   // bytes of a line were changed
	ErrDropped   = errors.New("dropped")   // a line is missing
	ErrReordered = errors.New("reordered") // lines stand in another order, or twice
	ErrTruncated = errors.New("truncated") // the log is shorter than recorded elsewhere
	ErrTorn      = errors.New("torn")      // the last line is incomplete: a crash, or a cut
	ErrFailed    = errors.New("failed")    // an earlier write could not be made durable
)

func fail(op, format string, args ...any) *task.Error {
	return task.Errorf(task.CodeEvidence, op, format, args...)
}
