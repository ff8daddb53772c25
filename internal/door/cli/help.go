package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-dev/caisson/internal/task"
)

const (
	groupTask    = "task"
	groupMachine = "machine"
)

var groupTitles = []struct{ id, title string }{{groupTask, "tasks"}, {groupMachine, "machine and decisions"}}

// addTopics adds the help topics: commands that only have a text.
func (a *app) addTopics(root *cobra.Command) {
	for _, g := range groupTitles {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
	}
	for _, t := range topics {
		root.AddCommand(&cobra.Command{Use: t.name, Short: t.short, Long: t.text(), Hidden: true})
	}
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND|TOPIC]",
		Short:  "help about a command or a topic",
		Hidden: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var out []string
			if len(args) == 0 {
				for _, c := range cmd.Root().Commands() {
					if !c.Hidden {
						out = append(out, c.Name()+"\t"+c.Short)
					}
				}
				for _, t := range topics {
					out = append(out, t.name+"\t"+t.short)
				}
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				a.help(cmd.Root(), nil)
				return nil
			}
			for _, c := range cmd.Root().Commands() {
				if c.Name() == args[0] {
					if c.DisableFlagParsing {
						return later(c.Name(), "`caisson "+c.Name()+"`")
					}
					a.help(c, nil)
					return nil
				}
			}
			var names []string
			for _, t := range topics {
				names = append(names, t.name)
			}
			return usagef(cmd, "no command or topic %q", args[0]).WithHint("`caisson --help` lists the commands; topics are %s", strings.Join(names, ", "))
		},
	}
}

// help writes the help of cmd. It is written out here, not templated: one
// start-up cost and one surprise less.
func (a *app) help(cmd *cobra.Command, _ []string) {
	a.ui.setup(a.quiet, a.verbose, a.noColor, false)
	w := a.stdout()
	for _, t := range topics {
		if cmd.Name() == t.name && cmd.HasParent() {
			fmt.Fprint(w, cmd.Long)
			return
		}
	}
	if !cmd.HasParent() {
		a.rootHelp(w, cmd)
		return
	}
	long := cmd.Long
	if long == "" {
		long = cmd.Short
	}
	fmt.Fprintf(w, "%s\n\n%s\n  %s\n", long, a.ui.paint(bold, "usage"), usageLine(cmd))
	if cmd.Example != "" {
		fmt.Fprintf(w, "\n%s\n%s\n", a.ui.paint(bold, "examples"), cmd.Example)
	}
	global := cmd.Root().PersistentFlags()
	if text := flagsText(cmd.Flags(), global); text != "" {
		fmt.Fprintf(w, "\n%s\n%s", a.ui.paint(bold, "flags"), text)
	}
	fmt.Fprintf(w, "\n%s\n%s", a.ui.paint(bold, "flags of every command"), flagsText(global, nil))
	if cmd.Name() == "run" || cmd.Name() == "open" || cmd.Name() == "plan" || cmd.Name() == "mcp" {
		fmt.Fprintf(w, "\nNot in this version, refused by name: --backend %s.\n",
			strings.Join(laterBackends[1:], "|"))
	}
	fmt.Fprintf(w, "\nExit statuses: `caisson help exit-codes`.\n")
}

// usageLine is how a command is called, with those that it stands below.
func usageLine(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.Parent().CommandPath()+" "+cmd.Use, " ")
}

func (a *app) rootHelp(w io.Writer, root *cobra.Command) {
	fmt.Fprintf(w, `caisson gives every agent task its own execution boundary, says exactly what that
boundary isolates and what it does not, proves it by probing it from inside, and ends
the task without losing work.

%s
  caisson COMMAND [flags]

%s
  caisson run -- make test                  one command in a task of its own
  caisson open --name fix && caisson exec fix -- go test ./... && caisson close fix
`, a.ui.paint(bold, "usage"), a.ui.paint(bold, "examples"))
	for _, g := range groupTitles {
		fmt.Fprintf(w, "\n%s\n", a.ui.paint(bold, g.title))
		for _, c := range root.Commands() {
			if c.GroupID == g.id && !c.Hidden {
				fmt.Fprintf(w, "  %-12s%s\n", c.Name(), c.Short)
			}
		}
	}
	fmt.Fprintf(w, "\n%s (caisson help TOPIC)\n", a.ui.paint(bold, "topics"))
	for _, t := range topics {
		fmt.Fprintf(w, "  %-12s%s\n", t.name, t.short)
	}
	fmt.Fprintf(w, "\n%s\n%s", a.ui.paint(bold, "flags of every command"), flagsText(root.PersistentFlags(), nil))
	fmt.Fprintf(w, "\n%s (refused by name)\n  %s\n", a.ui.paint(bold, "not yet"), strings.Join(laterCommands, " "))
}

// flagsText lists flags in the order they were added, without those of except
// and without the hidden ones. A usage ends with the name of its value in
// back quotes, which moves to the left column.
func flagsText(fs, except *pflag.FlagSet) string {
	var rows [][]string
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || (except != nil && except.Lookup(f.Name) != nil) {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		left := "    --" + f.Name
		if f.Shorthand != "" {
			left = "-" + f.Shorthand + ", --" + f.Name
		}
		if f.Value.Type() != "bool" {
			if f.NoOptDefVal != "" {
				left += "[=" + value + "]"
			} else {
				left += " " + value
			}
			usage = strings.TrimSuffix(usage, " "+value)
		}
		rows = append(rows, []string{left, usage})
	})
	var b strings.Builder
	(&text{w: &b, u: &ui{}}).table("  ", rows, nil)
	return b.String()
}

type topic struct {
	name, short string
	text        func() string
}

var topics = []topic{
	{"exit-codes", "exit statuses and error codes", exitCodesText},
	{"states", "the states of a task and of a resource", func() string { return statesText }},
	{"environment", "variables and folders", func() string { return environmentText }},
	{"levels", "the axes and what their levels mean", levelsText},
}

var codeMeanings = []struct {
	code task.Code
	text string
}{
	{task.CodeUsage, "the words of the call are off"},
	{task.CodeNotFound, "no such task, revision or file"},
	{task.CodeConflict, "a name, a state or a change collides"},
	{task.CodeState, "the task is not in a state that allows this"},
	{task.CodeBoundaryMissing, "required above promised; nothing was created"},
	{task.CodeProbeMismatch, "promised above proved; nothing was executed"},
	{task.CodeUnsupported, "known, but not in this version or not here"},
	{task.CodeUnavailable, "a backend or a facility of the machine is missing"},
	{task.CodePolicy, "a policy or a required level cannot be read"},
	{task.CodeDenied, "a rule or a layer refused"},
	{task.CodeUnsafePath, "a path would overlap what must stay apart"},
	{task.CodeSource, "the repository cannot be used as asked"},
	{task.CodeBadResult, "what came out of a boundary failed verification"},
	{task.CodeNotExecutable, "the command is not executable"},
	{task.CodeNoCommand, "the command was not found"},
	{task.CodeChannel, "the worker's channel is gone or sent nonsense"},
	{task.CodeOutcomeUnknown, "a call may or may not have happened; never repeated"},
	{task.CodeLimit, "a limit ended it"},
	{task.CodeCanceled, "a person or a signal ended it"},
	{task.CodeStuck, "a cleanup did not finish; it stays ours and is retried"},
	{task.CodeKept, "done, but files stay on disk"},
	{task.CodeEvidence, "the record could not be written or does not verify"},
	{task.CodeStateStore, "the state folder cannot be used"},
	{task.CodeInternal, "a fault of caisson itself"},
}

func exitCodesText() string {
	var b strings.Builder
	b.WriteString(`run, exec, shell and check end with the command's own status, 128+n when signal n ended it, or
  125  a failure of caisson before or after the command; the code says which
  126  the command is not executable
  127  the command was not found
  130  canceled before the command started

All other commands end with
    0  done
    1  failed
    2  the words of the call are off
    3  a boundary is missing; nothing was executed (also plan with a gap)
    4  an approval was refused or has expired, or a rule refused
    5  a backend is unavailable
    6  a policy is invalid
    7  done, but files stay on disk as kept, or something is stuck
  130  canceled

Every error has a code, printed in the error line and as error.code in --json:
`)
	for _, c := range codeMeanings {
		fmt.Fprintf(&b, "  %-18s %3d  %s\n", c.code, c.code.ExitStatus(), c.text)
	}
	b.WriteString("\nWith --json an error is {\"error\": {code, op, message, hint, detail, exit}} on standard\noutput in place of the result (run, exec, shell and check: on the last line of standard error).\n")
	return b.String()
}

const statesText = `A task:
  planned    on record, nothing created
  blocked    a required layer is missing; nothing was executed
  creating   its resources are being made
  probing    the boundary stands and is being measured from inside
  ready      commands may run
  paused     frozen
  closing    work is being rescued, resources removed; shown as removing once nothing
             but its files is left and a process of its own removes these
  closed     everything is confirmed gone
  kept       processes are gone, files stay until the date in show
  stuck      a cleanup failed; still ours, retried by every command and by reap

  planned → blocked | creating → probing → ready ⇄ paused → closing → closed | kept | stuck
  kept → closing when its time is over; kept → creating by resume; stuck → closing on
  every retry

A resource (show lists them):
  intent     about to be made; it may or may not exist
  present    was seen to exist
  removing   is being removed; it may or may not exist
  gone       its absence was observed
  stuck      its removal failed; still ours
`

const environmentText = `Read from your environment, at start:
  CAISSON_BACKEND      require this backend
  CAISSON_NEED         levels to demand, AXIS=LEVEL separated by commas; raises, never lowers
  CAISSON_ENGINE       the engine of --backend docker or podman, unix:///PATH; else as
                       docker and podman find it: DOCKER_HOST, DOCKER_CONTEXT, its
                       context, the usual sockets; CONTAINER_HOST, the usual sockets
  CAISSON_RUNSC, CAISSON_CRUN, CAISSON_RUNC
                       the program of --backend gvisor, oci:crun, oci:runc; else on PATH
  CAISSON_RUNSC_PLATFORM
                       systrap, as without it, or kvm: how gVisor runs programs
  CAISSON_UNATTENDED   1: nobody is there to answer
  CAISSON_STATE_DIR    state folder instead of $XDG_STATE_HOME/caisson; absolute
  CAISSON_RUNTIME_DIR  sockets instead of $XDG_RUNTIME_DIR/caisson (else /run/caisson for
                       root, /run/user/UID/caisson or $TMPDIR/caisson-UID); absolute
  NO_COLOR             no colour
  CAISSON_PAGER, PAGER the pager of log and diff, a program and its options; empty or
                       "cat": none; without either, and without GIT_PAGER=cat: less

A CAISSON_* variable that is set is refused when a file of the workspace mentions it
(.env, .env.*, .envrc, settings of agents and editors, from the working directory up to
the top of the repository): it could have come from there. Take it out of the file, or
run ` + "`env -u VARIABLE caisson …`" + ` and use the flag.

With --backend docker or podman so is what names the engine: DOCKER_HOST,
DOCKER_CONTEXT, DOCKER_CONFIG, CONTAINER_HOST, where such a file sets it.

PAGER is left aside when such a file mentions it.

Nothing of your environment goes inside except what --env names.
`

func levelsText() string {
	var b strings.Builder
	b.WriteString(`A boundary isolates along axes, each with levels; 0 is nothing. Three numbers are kept
apart: required by the plan (--need AXIS=LEVEL raises it), promised by what doctor's
trials say about this machine, and proved by probing the boundary from inside. Required
above promised stops before anything is created (boundary_missing); promised above
proved stops before the first command (probe_mismatch).

`)
	for _, x := range task.Axes {
		fmt.Fprintf(&b, "  %-4s %-14s 0-%d  %s\n", x, x.Title(), task.MaxLevel(x), axisMeaning[x])
	}
	b.WriteString("\nn/a: the axis does not apply to this task.\n")
	return b.String()
}

var axisMeaning = map[task.Axis]string{
	task.SRC: "the source: from the checkout itself to a self-contained copy",
	task.PRC: "processes: who can see, signal or trace whom",
	task.FS:  "files: what can be read and written",
	task.NET: "the network: from everything to no way out but the recorded one",
	task.RES: "memory, processors, processes, disk, time",
	task.KRN: "the kernel's surface: from all of it to a machine of its own",
	task.CPL: "sockets that control the machine: engines, buses, agents",
	task.CHN: "the channel between caisson and what runs inside",
	task.SVC: "databases and queues the task uses",
	task.CRD: "credentials: what is reachable, lent, taken back",
	task.APR: "who answers questions, and how that is bound to one call",
	task.VER: "what a test result is bound to",
	task.EVD: "the record: who can write it, who can check it",
	task.CLN: "the end: what is removed, and how that is known",
}
