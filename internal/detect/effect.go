package detect

import "github.com/caisson-dev/caisson/internal/task"

// effect is a set of what a command does.
type effect uint32

const (
	effOpaque effect = 1 << iota
	effRepo
	effUnknown
	effInstall
	effProcess
	effPort
	effState
	effDB
	effQueue
	effBucket
	effCache
	effEmulator
	effStateOut
	effMigData
	effMigSchema
	effMigRoles
	effContainer
	effRuntime
	effKernel
	effRead
	effMutate
	effCredDev
	effCredProd
	effVisible
	effDestroy
)

// effectRule is the rule of one effect. Its id is CMD-nn for a command that was
// given and SCR-nn for one that stands in a file of the repository.
type effectRule struct {
	bit   effect
	word  string // in the table of programs
	num   string
	what  task.Characteristic
	value string
	sure  task.Confidence
	doc   string
}

// effectRules is in the order of the bits.
var effectRules = []effectRule{
	{effOpaque, "opaque", "01", task.Executes, "generated", task.Certain, "runs what its words do not show: an interpreter with code, the input of a shell, a name made when it runs"},
	{effRepo, "repo", "02", task.Executes, "repo-defined", task.Certain, "runs code of the repository: scripts, tests, build files, hooks"},
	{effUnknown, "unknown", "03", task.Executes, "repo-defined", task.Guess, "a program that is in no table"},
	{effInstall, "install", "04", task.InstallsDeps, "yes", task.Certain, "installs packages"},
	{effProcess, "process", "05", task.StartsProcesses, "yes", task.Likely, "leaves a process running: a server, a background job"},
	{effPort, "port", "06", task.NeedsPorts, "yes", task.Likely, "a server listens on a port"},
	{effState, "state", "07", task.TaskRuntimeState, "yes", task.Likely, "keeps state of its own between runs"},
	{effDB, "db", "08", task.MutableState, "db", task.Likely, "a client of a database, or its server"},
	{effQueue, "queue", "09", task.MutableState, "queue", task.Likely, "a client of a message queue, or its server"},
	{effBucket, "bucket", "10", task.MutableState, "bucket", task.Likely, "reads or writes an object store"},
	{effCache, "cache", "11", task.MutableState, "cache", task.Likely, "a client of a cache, or its server"},
	{effEmulator, "emulator", "12", task.MutableState, "emulator", task.Likely, "an emulator of a cloud service"},
	{effStateOut, "stateout", "13", task.MutableState, "external", task.Likely, "changes state that an external system keeps"},
	{effMigData, "migdata", "14", task.Migrations, "data", task.Likely, "loads or changes data of a database: seeds, restores"},
	{effMigSchema, "migschema", "15", task.Migrations, "schema", task.Likely, "changes the schema of a database"},
	{effMigRoles, "migroles", "16", task.Migrations, "roles", task.Likely, "changes roles or extensions of a database server"},
	{effContainer, "container", "17", task.CreatesContainers, "yes", task.Certain, "creates containers or builds images"},
	{effRuntime, "runtime", "18", task.NeedsRuntimeAPI, "yes", task.Certain, "talks to a container runtime or a cluster"},
	{effKernel, "kernel", "19", task.KernelOrDevice, "yes", task.Certain, "touches the kernel, a device, mounts or other processes' memory"},
	{effRead, "read", "20", task.ExternalAccess, "read", task.Likely, "reads from an external system"},
	{effMutate, "mutate", "21", task.ExternalAccess, "mutate", task.Likely, "changes an external system"},
	{effCredDev, "dev", "22", task.Credentials, "dev", task.Likely, "works with credentials"},
	{effCredProd, "prod", "23", task.Credentials, "prod", task.Likely, "works with credentials of a production system"},
	{effVisible, "visible", "24", task.ExternallyVisible, "yes", task.Likely, "others see its effect: publishing, pushing, deploying, sending"},
	{effDestroy, "destroy", "25", task.Destructive, "yes", task.Likely, "destroys what is outside the task, or cannot be undone"},
}

// facts renders a set as facts.
func (e effect) facts(prefix, evidence string, sure task.Confidence) []task.Fact {
	if e == 0 {
		return nil
	}
	var out []task.Fact
	for i := range effectRules {
		r := &effectRules[i]
		if e&r.bit == 0 {
			continue
		}
		f := task.Fact{What: r.what, Value: r.value, Source: task.SourceDetector, Rule: prefix + r.num, Evidence: evidence, Confidence: r.sure}
		if sure != "" {
			f.Confidence = sure
		}
		out = append(out, f)
	}
	return out
}
