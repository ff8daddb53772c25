package door

import (
	"context"
	"encoding/json"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Policies is the part of an engine that reads what the operator, the user and a
// repository want. It changes nothing but the record of trusted repositories.
type Policies interface {
	// Policy returns the rules that hold for a task on a repository.
	Policy(ctx context.Context, in PolicyIn) (*PolicyOut, error)
	// Explain answers one question by them.
	Explain(ctx context.Context, in ExplainIn) (*ExplainOut, error)
	// ComparePolicy says what became reachable from one policy file or folder to
	// another.
	ComparePolicy(ctx context.Context, in CompareIn) (*CompareOut, error)
	// TestPolicy answers the questions that stand in policy files.
	TestPolicy(ctx context.Context, in PolicyTestIn) (*PolicyTestOut, error)
	// PolicySchema returns the JSON Schema of a policy file.
	PolicySchema(ctx context.Context) (json.RawMessage, error)
	// Init writes a first policy file for a repository, and a section for agents.
	Init(ctx context.Context, in InitIn) (*InitOut, error)
	// Trust records, revokes or lists a person's trust in repositories.
	Trust(ctx context.Context, in TrustIn) (*TrustOut, error)
}

type (
	// PolicyIn asks for the rules that hold.
	PolicyIn struct {
		Repo string `json:"repo"` // a folder in it; empty: the working directory, where there is one
		Base string `json:"base"` // revision; empty: HEAD
		// Agent is the name of an agent whose definition may demand something.
		Agent string `json:"agent,omitempty"`
		// File is one file or folder to read in place of all, as if As had written
		// it: "operator", "user", "project", "task".
		File string `json:"file,omitempty"`
		As   string `json:"as,omitempty"`
	}
	// PolicyOut is what holds.
	PolicyOut struct {
		Schema   string          `json:"schema"`   // "caisson.policy/1"
		Digest   string          `json:"digest"`   // of the rules
		Operator bool            `json:"operator"` // there is an operator beside the user
		Trusted  bool            `json:"trusted"`  // the repository's code is known
		Changed  []string        `json:"changed"`  // files whose change ended a person's trust
		Sources  []PolicySource  `json:"sources"`
		Values   []PolicyValue   `json:"values"`
		Rules    json.RawMessage `json:"rules"` // caisson.rules/1: the same for programs
	}
	// PolicySource is one document that was read.
	PolicySource struct {
		Source task.Source `json:"source"`
		File   string      `json:"file"` // empty: shipped
	}
	// PolicyValue is one value, and who set it.
	PolicyValue struct {
		Path   string      `json:"path"`
		Value  string      `json:"value"`
		Source task.Source `json:"source"`
		Where  string      `json:"where"` // FILE:LINE, a flag, a variable
	}
	// ExplainIn asks one question.
	ExplainIn struct {
		PolicyIn
		Kind  string   `json:"kind"`  // "egress", "mount", "env", "credential", "grant", "command", "tool"
		Words []string `json:"words"` // the endpoint, the path and its mode, the name, the command; of a tool its name and a command
	}
	// ExplainOut is the answer.
	ExplainOut struct {
		Schema   string        `json:"schema"` // "caisson.verdict/1"
		Question string        `json:"question"`
		Verdict  task.Verdict  `json:"verdict"`
		Rule     string        `json:"rule"`
		Source   task.Source   `json:"source"`
		Where    string        `json:"where"`
		Beside   []PolicyValue `json:"beside"` // further rules that match and did not decide
	}
	// CompareIn names two policy files, or folders of them.
	CompareIn struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	// CompareOut is what differs.
	CompareOut struct {
		Schema  string         `json:"schema"` // "caisson.policydiff/1"
		Within  bool           `json:"within"` // the second allows nothing that the first does not
		Changes []PolicyChange `json:"changes"`
	}
	// PolicyChange is one difference.
	PolicyChange struct {
		Path   string      `json:"path"`
		Text   string      `json:"text"`
		Loose  bool        `json:"loose"` // the second allows more, or demands less
		Source task.Source `json:"source"`
		Where  string      `json:"where"`
	}
	// PolicyTestIn asks for the table of a file, or of all files that hold.
	PolicyTestIn struct {
		PolicyIn
	}
	// PolicyTestOut is what came of it.
	PolicyTestOut struct {
		Schema string       `json:"schema"` // "caisson.policytest/1"
		Failed int          `json:"failed"`
		Tests  []PolicyTest `json:"tests"`
	}
	// PolicyTest is one line of the table.
	PolicyTest struct {
		Name    string       `json:"name"`
		Where   string       `json:"where"`
		Expect  task.Verdict `json:"expect"`
		Verdict task.Verdict `json:"verdict"`
		Rule    string       `json:"rule"`
		OK      bool         `json:"ok"`
	}
	// TrustIn says what is done about trust.
	TrustIn struct {
		Repo   string `json:"repo"`
		Revoke bool   `json:"revoke"`
		List   bool   `json:"list"`
		DryRun bool   `json:"dry_run"` // say what the trust would rest on
	}
	// TrustOut is what holds now.
	TrustOut struct {
		Schema  string       `json:"schema"` // "caisson.trust/1"
		Repo    string       `json:"repo"`
		Trusted bool         `json:"trusted"`
		Revoked bool         `json:"revoked"` // there was a trust, and it is gone
		Files   []string     `json:"files"`   // what it rests on: a change of one ends it
		Changed []string     `json:"changed"` // what changed since it was said
		Known   []TrustKnown `json:"known"`   // of list
	}
	// TrustKnown is one repository that a person trusts.
	TrustKnown struct {
		Repo  string    `json:"repo"`
		Since time.Time `json:"since"`
		Files []string  `json:"files"`
	}
	// InitIn asks for a first policy file.
	InitIn struct {
		Repo   string `json:"repo"`   // a folder in it; empty: the working directory
		Agents bool   `json:"agents"` // also the section in AGENTS.md
		DryRun bool   `json:"dry_run"`
	}
	// InitOut is what was written, or would be.
	InitOut struct {
		Schema string      `json:"schema"` // "caisson.init/1"
		Files  []InitFile  `json:"files"`
		Found  []task.Fact `json:"found"` // what the files of the repository tell
	}
	// InitFile is one file of them.
	InitFile struct {
		Path    string `json:"path"`    // absolute
		Text    string `json:"text"`    // of a section: the section alone
		Written bool   `json:"written"` // false: it would be, or has it already
		There   bool   `json:"there"`   // it was there before
	}
	// SchemaOut is a JSON Schema.
	SchemaOut struct {
		JSON json.RawMessage `json:"json"`
	}
)

// policyOps are the operations on policy.
var policyOps = []Op{
	op("policy", "show the rules that hold", RoleObserver, func(ctx context.Context, c *Call, in *PolicyIn) (*PolicyOut, error) {
		return c.Engine.Policy(ctx, *in)
	}),
	op("explain", "say what the rules answer to one question", RoleObserver, func(ctx context.Context, c *Call, in *ExplainIn) (*ExplainOut, error) {
		return c.Engine.Explain(ctx, *in)
	}),
	op("compare-policy", "compare two policies", RoleObserver, func(ctx context.Context, c *Call, in *CompareIn) (*CompareOut, error) {
		return c.Engine.ComparePolicy(ctx, *in)
	}),
	op("test-policy", "run the tables of policy files", RoleObserver, func(ctx context.Context, c *Call, in *PolicyTestIn) (*PolicyTestOut, error) {
		return c.Engine.TestPolicy(ctx, *in)
	}),
	op("policy-schema", "print the JSON Schema of policy files", RoleObserver, func(ctx context.Context, c *Call, _ *None) (*SchemaOut, error) {
		b, err := c.Engine.PolicySchema(ctx)
		return &SchemaOut{b}, err
	}),
	op("init", "write a first policy file", RolePerson, func(ctx context.Context, c *Call, in *InitIn) (*InitOut, error) {
		return c.Engine.Init(ctx, *in)
	}),
	op("trust", "say that a repository's code is known", RolePerson, func(ctx context.Context, c *Call, in *TrustIn) (*TrustOut, error) {
		return c.Engine.Trust(ctx, *in)
	}),
}
