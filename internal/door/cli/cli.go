// Package cli is the command line: it parses what a person typed, calls the
// operations of package door, and renders what they return.
//
// Its limit: it decides nothing about a boundary. It is the only place that
// reads flags and the launch environment, and the only user of the CLI library.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// Config is everything the command line gets from its program.
type Config struct {
	Args   []string // without the program's name
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File
	Env    []string // K=V; the process environment
	Dir    string   // working directory, absolute; empty when it is unreadable

	Version string // for a person
	Commit  string

	// Engine opens the engine. It is called at most once and only by commands
	// that need it. With quick the caller wants an answer at once (completion, a
	// command in an open task): start-up reconciliation is left out, or is beside
	// the operation. note takes what no operation can
	// return, one line at a time, from any goroutine. The returned func closes it.
	Engine func(ctx context.Context, quick bool, note func(string)) (door.Engine, func(), error)

	// MCP serves the tools of one task until the client goes (nil) or ctx ends (its
	// cause). It is another door; the program joins the two.
	MCP func(ctx context.Context, o MCPOptions) error

	// Verify attacks one boundary; WriteVerified writes what came of it to a new file.
	Verify        func(ctx context.Context, o VerifyOptions) (*task.VerifyReport, error)
	WriteVerified func(path string, all *task.VerifyAll) (head string, err error)
}

// app is one use of the command line.
type app struct {
	cfg     Config
	json    bool
	quiet   bool
	verbose bool
	noColor bool
	noPager bool

	ui     *ui
	engine door.Engine
	closer func()
	sig    *interrupts // of commands without a session

	out         printed
	parseFailed bool // flags may be unread

	checked *task.Check // of `check`, when its command has ended
}

// Run parses the arguments, runs the command and returns the exit status.
func Run(ctx context.Context, cfg Config) int {
	a := &app{cfg: cfg, ui: newUI(cfg), out: printed{w: cfg.Stdout}}
	root := a.root()
	root.SetArgs(cfg.Args)
	cmd, err := root.ExecuteContextC(ctx)
	if a.sig != nil {
		a.sig.stop()
	}
	if a.closer != nil {
		a.closer()
	}
	return a.finish(cmd, err)
}

func (a *app) root() *cobra.Command {
	cobra.EnableCommandSorting = false // the order below is the order of a task's life
	root := &cobra.Command{
		Use:   "caisson",
		Short: "give every agent task its own execution boundary, and prove it",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return a.unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(a.cfg.Stdout)
	root.SetErr(a.cfg.Stderr)
	root.SetIn(a.cfg.Stdin)
	root.SetHelpFunc(a.help)
	root.SetUsageFunc(func(*cobra.Command) error { return nil })
	root.SetFlagErrorFunc(a.flagError)
	root.SetHelpCommand(a.helpCommand())
	showVersion := root.Flags().Bool("version", false, "print the version")
	root.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *showVersion && len(args) == 0 {
			return a.printVersion()
		}
		return nil
	}
	pf := root.PersistentFlags()
	pf.BoolVar(&a.json, "json", false, "print the result as JSON (see docs/json.md)")
	pf.BoolVarP(&a.quiet, "quiet", "q", false, "print results and errors only")
	pf.BoolVarP(&a.verbose, "verbose", "v", false, "say more about what happens and where errors come from")
	pf.BoolVar(&a.noColor, "no-color", false, "no colour, as with NO_COLOR")
	pf.SortFlags = false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.ui.setup(a.quiet, a.verbose, a.noColor, a.json)
		if cmd.Name() == "version" {
			return nil
		}
		return enoughFiles()
	}

	for _, c := range []*cobra.Command{
		a.runCommand(), a.openCommand(), a.execCommand(), a.shellCommand(), a.checkCommand(), a.mcpCommand(), a.toolCommand(), a.approveCommand(), a.denyCommand(), a.acceptCommand(),
		a.lsCommand(), a.showCommand(), a.logCommand(), a.diffCommand(), a.applyCommand(), a.branchCommand(), a.exportCommand(), a.portsCommand(), a.allowCommand(), a.keepCommand(), a.resumeCommand(), a.closeCommand(),
		a.reapCommand(), a.doctorCommand(), a.verifyCommand(), a.planCommand(), a.policyCommand(), a.trustCommand(), a.initCommand(), a.toolsCommand(), a.versionCommand(), a.completionCommand(),
	} {
		c.Flags().SortFlags = false
		c.DisableFlagsInUseLine = true
		root.AddCommand(c)
	}
	a.addLater(root)
	a.addTopics(root)
	return root
}

// open returns the engine, after the launch environment was checked against
// the workspace.
func (a *app) open(ctx context.Context, repo string, quick bool) (door.Engine, error) {
	if a.engine != nil {
		return a.engine, nil
	}
	if err := a.checkWorkspaceEnv(repo); err != nil {
		return nil, err
	}
	e, closer, err := a.cfg.Engine(ctx, quick, a.ui.aside)
	if err != nil {
		return nil, err
	}
	a.engine, a.closer = e, closer
	return e, nil
}

// call returns what an operation of the table needs from this door.
func (a *app) call(e door.Engine) *door.Call {
	return &door.Call{Actor: door.Actor{Door: "cli", Role: door.RolePerson}, Engine: e, Progress: a.ui.progress}
}

// do opens the engine and runs one operation without a session; signals cancel it.
func do[O any](a *app, cmd *cobra.Command, repo, name string, in any, set func(*door.Call)) (O, error) {
	var zero O
	ctx := a.interruptible(cmd.Context())
	e, err := a.open(ctx, repo, false)
	if err != nil {
		return zero, canceled(ctx, err)
	}
	c := a.call(e)
	if set != nil {
		set(c)
	}
	out, err := door.Do[O](ctx, c, name, in)
	a.ui.clear()
	return out, canceled(ctx, err)
}

func (a *app) stdout() io.Writer { return &a.out }

// printed is standard output with the memory of the first failure to write to
// it: a result that a full disk cut short must not end with 0.
type printed struct {
	w      io.Writer
	failed error
}

func (p *printed) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	// A reader that went away has seen enough.
	if err != nil && p.failed == nil && !errors.Is(err, syscall.EPIPE) {
		p.failed = task.Errorf(task.CodeConflict, "cli.print", "the result could not be written to standard output: %w", err).
			WithHint("what was printed is incomplete")
	}
	return n, err
}

// exact checks the number of arguments.
func exact(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usagef(cmd, "%s needs %s", cmd.CommandPath(), what)
		}
		if len(args) > n {
			return usagef(cmd, "%s: unexpected argument %q", cmd.CommandPath(), args[n])
		}
		return nil
	}
}

func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef(cmd, "%s: unexpected argument %q", cmd.CommandPath(), args[n])
		}
		return nil
	}
}

func usagef(cmd *cobra.Command, format string, args ...any) *task.Error {
	return task.Errorf(task.CodeUsage, "cli", format, args...).WithHint("see `%s --help`", cmd.CommandPath())
}
