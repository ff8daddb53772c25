package task

import "slices"

// Characteristic is one thing about a task that decides how much boundary it
// needs.
type Characteristic string

// The characteristics, in the order they are printed.
const (
	CodeTrust         Characteristic = "code_trust"
	Supervision       Characteristic = "supervision"
	Concurrency       Characteristic = "concurrency"
	Recovery          Characteristic = "recovery"
	Executes          Characteristic = "executes"
	InstallsDeps      Characteristic = "installs_deps"
	StartsProcesses   Characteristic = "starts_processes"
	NeedsPorts        Characteristic = "needs_ports"
	TaskRuntimeState  Characteristic = "task_runtime_state"
	MutableState      Characteristic = "mutable_state"
	Migrations        Characteristic = "migrations"
	CreatesContainers Characteristic = "creates_containers"
	NeedsRuntimeAPI   Characteristic = "needs_runtime_api"
	KernelOrDevice    Characteristic = "kernel_or_device"
	ExternalAccess    Characteristic = "external_access"
	Credentials       Characteristic = "credentials"
	PersonalData      Characteristic = "personal_data"
	ExternallyVisible Characteristic = "externally_visible"
	Destructive       Characteristic = "destructive"
)

// Characteristics lists all of them, in printing order.
var Characteristics = []Characteristic{CodeTrust, Supervision, Concurrency, Recovery, Executes, InstallsDeps, StartsProcesses, NeedsPorts, TaskRuntimeState,
	MutableState, Migrations, CreatesContainers, NeedsRuntimeAPI, KernelOrDevice, ExternalAccess, Credentials, PersonalData, ExternallyVisible, Destructive}

// Unknown is a value that every characteristic has: nobody could tell. It counts
// as the riskiest one.
const Unknown = "unknown"

var yesNo = []string{"no", "yes"}

// values are those of each characteristic by rising risk. Those of MutableState
// after the first are kinds, none riskier than another.
var values = map[Characteristic][]string{
	CodeTrust:   {"trusted", "unfamiliar", "hostile"},
	Supervision: {"supervised", "asynchronous", "broad-unsupervised"},
	Concurrency: {"single", "overlaps"},
	Recovery:    {"simple", "hard"},
	// checks: only commands that the operator lists, which load no code of the
	// repository.
	Executes:     {"none", "checks", "repo-defined", "generated"},
	InstallsDeps: yesNo, StartsProcesses: yesNo, NeedsPorts: yesNo, TaskRuntimeState: yesNo,
	MutableState:      {"none", "cache", "emulator", "queue", "bucket", "db", "external"},
	Migrations:        {"none", "data", "schema", "roles"},
	CreatesContainers: yesNo, NeedsRuntimeAPI: yesNo, KernelOrDevice: yesNo,
	ExternalAccess: {"none", "read", "mutate"},
	Credentials:    {"none", "dev", "prod"},
	PersonalData:   yesNo, ExternallyVisible: yesNo, Destructive: yesNo,
}

// Values returns the values of a characteristic by rising risk, without Unknown;
// nil for an unknown characteristic. The caller must not change it.
func (c Characteristic) Values() []string { return values[c] }

// Risk ranks a value of c: 0 is the least. Unknown ranks as the riskiest value,
// and so does a word that is no value of c. It is -1 for an unknown
// characteristic.
func (c Characteristic) Risk(value string) int {
	vs := values[c]
	if i := slices.Index(vs, value); i >= 0 {
		return i
	}
	return len(vs) - 1
}

// Fact is one statement about a characteristic of a task: who says so, and what
// it rests on. Statements add up; the riskiest counts.
type Fact struct {
	What       Characteristic `json:"characteristic"`
	Value      string         `json:"value"`
	Subject    string         `json:"subject,omitempty"`  // which database, endpoint, credential, task: by name, never a secret value
	Source     Source         `json:"source"`             // who says so
	Rule       string         `json:"rule,omitempty"`     // of a detector, e.g. "MIG-02"
	Evidence   string         `json:"evidence,omitempty"` // FILE:LINE at the base commit, or a command
	Confidence Confidence     `json:"confidence"`
}

// Confidence says how sure a fact is. All count the same: a guess raises too.
type Confidence string

// The confidences.
const (
	Certain Confidence = "certain" // declared, or read from what has one meaning
	Likely  Confidence = "likely"  // by name or by convention
	Guess   Confidence = "guess"   // may well be otherwise
)

// Source is who made a statement or a rule, most trusted first.
type Source string

// The sources. Those of a person are operator, user, env and flag; what comes
// after them can only tighten, or ask within what was delegated to it.
const (
	SourceOperator  Source = "operator"  // the policy directory
	SourceUser      Source = "user"      // the user's policy file
	SourceEnv       Source = "env"       // the launch environment of a person
	SourceFlag      Source = "flag"      // typed by a person
	SourceDefault   Source = "default"   // shipped
	SourceInventory Source = "inventory" // computed from what runs
	SourceAgent     Source = "agent"     // an agent definition
	SourceProject   Source = "project"   // the project's file at the base commit
	SourceTask      Source = "task"      // the request of another program, or a changed project file
	SourceModel     Source = "model"     // arguments of tool calls
	SourceDetector  Source = "detector"  // found by looking
)
