package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// missing is one axis of a report.
func (d *Decision) missing(a task.Axis, need, have int, why, lower string) task.Missing {
	hostile := d.profile[task.CodeTrust].Value == "hostile"
	return task.Missing{Axis: a, Required: need, Effective: have, WhyRequired: why, WhyLower: lower, Reasons: d.reasons[a],
		Shared: shared(&d.in, a, have), Blast: blast(&d.in, a, have), Options: d.options(a, need), Acceptable: d.acceptable(a, have, hostile)}
}

// sharedState says what stays shared at each level of an axis; the last entry
// stands for every level above. "{repo}" is the repository's git directory.
var sharedState = map[task.Axis][]string{
	task.SRC: {"the checkout itself, with everything not committed in it", "refs, objects, hooks and configuration of {repo}", "the objects of every branch in {repo}, to read", ""},
	task.PRC: {"every process of this user can be seen, signalled and traced", "process ids, IPC and host name of this machine", "capabilities, or user 0, or unmasked kernel files", ""},
	task.FS:  {"every file of this user, to read and to write", "every file this user can read, credentials included", "the system folders of this machine, to read", "host paths behind the mounts", ""},
	task.NET: {"this machine's network: its loopback services, LAN, cloud metadata, the Internet", "LAN, cloud metadata, the host's gateway, the whole Internet", "destinations that were allowed; of what is said to them inside TLS nothing is decided or recorded", "destinations that were allowed", ""},
	task.RES: {"memory, processor, processes, disk and time of this machine, without a bound", "memory, processor, process numbers and disk of this machine", "the disk, and the sum of what all tasks use", ""},
	task.KRN: {"the kernel with its whole system call interface", "the kernel, through a filtered system call interface", "one guest or user-space kernel for several tasks", "the hypervisor", ""},
	task.CPL: {"a daemon that does anything for whoever reaches its socket", "a daemon that checks who owns what", ""},
	task.CHN: {"the channel's process: tools can forge what it says", "the word of the worker about what it did", ""},
	task.SVC: {"services with their data, for every task and for you", "service processes, with separated data", "the network path to the service", ""},
	task.CRD: {"every credential of the environment and the home folder", "the credentials on the allow-list", "short-lived credentials of the task", "what a lent credential can do while it is lent", ""},
	task.APR: {"nobody is asked before an action", "the person who answers sees a rule, not the action", "one person's answer", ""},
	task.VER: {"nothing is known about the result", "the agent's word about the result", "the result alone was checked, not together with others", ""},
	task.EVD: {"nothing is recorded", "a log that can be edited", "a record on this machine, unsigned", ""},
	task.CLN: {"leftovers stay until somebody removes them", "leftovers may stay unnoticed", "removal is recorded but not verified", ""},
}

func shared(in *Input, a task.Axis, have int) []string {
	l := sharedState[a]
	if have < 0 || len(l) == 0 {
		return []string{}
	}
	text := l[min(have, len(l)-1)]
	if a == task.SRC && have == 2 && in.Source.Strategy == task.StrategyWorktree {
		text = "the files of the worktree: your editor and git read them while the task writes them"
	}
	if a == task.NET && have == 1 && slices.ContainsFunc(in.Grants, func(g task.Grant) bool { return g.Kind == "net" && g.Value == string(NetOpen) }) {
		// The gate is wide open, and still a gate.
		text = "the whole Internet; this machine's services, LAN and cloud metadata where a rule names their addresses"
	}
	if text == "" {
		return []string{}
	}
	repo := in.Source.CommonDir
	if repo == "" {
		repo = "the repository"
	}
	return []string{strings.ReplaceAll(text, "{repo}", repo)}
}

// maxInstances bounds a list of things within reach; the rest is counted.
const maxInstances = 200

// blast lists instances, not adjectives, where the caller knows any.
func blast(in *Input, a task.Axis, have int) []string {
	l := in.Instances[a]
	if len(l) == 0 {
		if len(shared(in, a, have)) == 0 {
			return []string{}
		}
		return []string{"not enumerated on this machine"}
	}
	out := append([]string{}, l[:min(len(l), maxInstances)]...)
	if n := len(l) - len(out); n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return out
}

// wayOut gives the ways to at least a level of an axis.
var wayOut = map[task.Axis][]struct {
	upTo int // serves needs up to this level
	text string
}{
	task.SRC: {{2, "use --source clone, which is the default, or --source worktree"}, {3, "add --history base (--source clone): the task gets a copy of its own with only what its base reaches"}},
	task.PRC: {{2, "let user namespaces be made: caisson doctor names the setting that forbids them"}, {3, "run caisson as an ordinary user, or keep the state directory on a file system with id-mapped mounts"}},
	task.FS:  {{2, "let user and mount namespaces be made: caisson doctor names the setting that forbids them"}, {3, "add --rootfs DIR: a prepared folder becomes the root, read-only, instead of this machine's system folders"}},
	task.NET: {{4, "let network namespaces be made: caisson doctor names the setting that forbids them"}},
	task.RES: {{1, "add --timeout DURATION"}, {2, "delegate a cgroup to this user: systemctl --user must work in this session (loginctl enable-linger), or run as root"}, {3, "have a budget with disk set in the policy (budget: {disk: 20g, …}), and give the task a --disk limit of its own"}},
	task.KRN: {{1, "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER)"}},
	task.CPL: {{2, "take the socket out of what is mounted: drop the --ro that contains it"}},
	task.CRD: {{1, "name what the task may have with --env, nothing else comes in"}},
	task.EVD: {{2, "put the state directory where it can be written: CAISSON_STATE_DIR"}},
	task.CLN: {{2, "put the state directory where it can be written: CAISSON_STATE_DIR"}},
}

func (d *Decision) options(a task.Axis, need int) []string {
	in := &d.in
	out := []string{}
	if h := d.profile[task.CodeTrust]; h.Value == "unfamiliar" && slices.ContainsFunc(d.reasons[a], func(r task.Reason) bool { return r.Fact.What == task.CodeTrust }) {
		if in.NoTrust || slices.ContainsFunc(h.Facts, func(f task.Fact) bool { return f.Source == task.SourceOperator }) {
			out = append(out, "have the operator name this repository under trust in their policy, with the day on which that ends")
		} else {
			out = append(out, "if you know this code: caisson trust "+task.ShellWord(in.Source.Repo)+" once, or --trust for this task")
		}
	}
	out = append(out, in.Ways[a]...)
	for _, w := range wayOut[a] {
		if need <= w.upTo {
			out = append(out, w.text)
			break
		}
	}
	if n, asked := in.Need[a]; asked && n == need {
		row := 0
		for _, f := range Fire(d.profile) {
			row = max(row, f.Row.Need[a])
		}
		if row < need {
			out = append(out, fmt.Sprintf("ask for less: --need %s=%d is above what the task's rows need (%d)", a, need, row))
		}
	}
	if len(out) == 0 {
		out = append(out, fmt.Sprintf("no backend of this version gives %s %d; do this work on a machine or in a tool that does", a, need))
	}
	return out
}

// acceptCommand is the exact command that accepts every gap, for who may; empty
// where nobody may accept one of them, for then the rest would be of no use.
func (d *Decision) acceptCommand() string {
	cmd := "caisson accept " + d.Plan.Report
	n := 0
	for _, a := range task.Short(d.Required, d.Effective) {
		have := max(d.Effective[a], 0)
		if d.accepted(a, d.Effective[a]) != nil {
			continue
		}
		if have < d.in.Operator[a] {
			return ""
		}
		cmd += fmt.Sprintf(" --axis %s=%d", a, have)
		n++
	}
	if n == 0 || d.in.Unattended {
		return ""
	}
	return cmd + " --reason TEXT"
}

// notIsolated is the statement of what stays open even when nothing is missing.
func notIsolated(in *Input, eff task.Vector) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	add("what the task returns: its changes, hooks, build files and scripts act with your authority once you run them outside")
	add("programs outside the boundary: editor, agent, its servers and hooks")
	if eff[task.KRN] < 4 {
		add("processor, cache and timing side channels: the hardware is shared")
	}
	if eff[task.KRN] <= 1 {
		add("flaws of this machine's kernel: one kernel serves the task and everything else")
	}
	if n := eff[task.NET]; n < 4 && n != task.LevelNA {
		add("names and addresses of what the task contacts are visible on the way")
		for _, s := range shared(in, task.NET, n) {
			add("network: %s", s)
		}
	}
	if eff[task.FS] <= 2 && eff[task.FS] != task.LevelNA {
		for _, s := range shared(in, task.FS, eff[task.FS]) {
			add("files: %s", s)
		}
	}
	if eff[task.SRC] == 2 || in.Source.Shared {
		for _, s := range shared(in, task.SRC, 2) {
			add("source: %s", s)
		}
	} else if n := eff[task.SRC]; n < 2 && n != task.LevelNA {
		for _, s := range shared(in, task.SRC, n) {
			add("source: %s", s)
		}
	}
	for _, a := range []task.Axis{task.PRC, task.RES, task.CPL, task.CHN, task.CRD, task.CLN, task.EVD} {
		top := map[task.Axis]int{task.PRC: 3, task.RES: 3, task.CPL: 2, task.CHN: 2, task.CRD: 2, task.CLN: 2, task.EVD: 2}[a]
		if n := eff[a]; n != task.LevelNA && n < top {
			for _, s := range shared(in, a, n) {
				add("%s: %s", a.Title(), s)
			}
		}
	}
	for _, g := range sortedGrants(in.Grants) {
		switch g.Kind {
		case "ro":
			add("granted to read: %s", g.Value)
		case "env":
			add("granted variable %s, with whatever account it opens", g.Value)
		case "ptrace":
			add("granted: programs of the task can trace each other")
		case "userns":
			add("granted: programs of the task can make user namespaces, which opens more of the kernel")
		default:
			add("granted: %s %s", g.Kind, g.Value)
		}
	}
	for _, f := range sortedFindings(in.Findings) {
		add("finding %s: %s", f.ID, f.Text)
	}
	add("other tasks' changes: tasks that pass one by one do not prove that their results work together")
	return out
}

// acceptable says who may accept a gap of this plan.
func (d *Decision) acceptable(a task.Axis, have int, hostile bool) []string {
	switch {
	case max(have, 0) < d.in.Operator[a]:
		return []string{"nobody: it is below a floor of the policy, and only a change of the policy lowers that"}
	case d.in.Rules.Alone:
		return []string{"user (there is no operator beside you)"}
	}
	return Acceptable(a, have, hostile)
}
