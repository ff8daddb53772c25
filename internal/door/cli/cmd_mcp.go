package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// MCPOptions is what a protocol server is started with; see package mcp.
type MCPOptions struct {
	Engine        door.Engine
	Task          task.ID
	Stdin, Stdout *os.File
	Listen        string       // path of a Unix socket; empty: the two streams
	Ready         func()       // called once it listens
	Note          func(string) // a line for the person, from any goroutine
}

// ownsStdout marks a command whose standard output belongs to a protocol: its
// result goes to standard error, as that of a session does.
const ownsStdout = "owns-stdout"

// mcpResult is what `mcp` prints with --json.
type mcpResult struct {
	Schema string            `json:"schema"` // "caisson.mcp/1"
	Task   task.ID           `json:"task"`
	Closed *task.CloseReport `json:"closed,omitempty"` // absent with --task: the task goes on
	Error  *errorJSON        `json:"error,omitempty"`
}

const mcpLong = `Serves the tools of one task to a client of the Model Context Protocol: reading,
writing, editing and searching files, and commands, all carried out inside the task's
boundary. The client's model names a tool and its arguments and nothing else. The task
is opened at the start and ended when the client closes its side or a signal arrives,
as ` + "`run`" + ` ends one: work is rescued, a changed task keeps its files.

With --task the tools of an open task are served, which goes on afterwards. Standard
input and output are the protocol's; everything for a person goes to standard error.
With --listen it speaks streamable HTTP on a Unix socket of yours instead.

A call that a rule makes wait for a person is answered with ` + "`caisson approve`" + `, or in the
client, where that shows forms. Of the environment that the client starts it with,
nothing but what the task's own allow-list names goes inside.

Switch the client's own file and shell tools off, else its model uses those, on your
machine: docs/mcp.md says how for each client.`

const mcpExample = `  Claude Code
    claude mcp add caisson -- caisson mcp --repo "$PWD"
    claude --tools "" --allowedTools mcp__caisson

  Codex: ~/.codex/config.toml
    [mcp_servers.caisson]
    command = "caisson"
    args = ["mcp", "--repo", "/home/me/project"]
    tool_timeout_sec = 86400
    required = true
    [features]
    shell_tool = false
    unified_exec = false

  Gemini CLI: .gemini/settings.json
    {"mcpServers": {"caisson": {"command": "caisson", "args": ["mcp"]}}}
    gemini --policy caisson.toml      (docs/mcp.md has the file)

  VS Code: .vscode/mcp.json
    {"servers": {"caisson": {"type": "stdio", "command": "caisson",
                             "args": ["mcp", "--repo", "${workspaceFolder}"]}}}

  A task that is open already, or a socket
    caisson mcp --task fix-login
    caisson mcp --listen unix:$XDG_RUNTIME_DIR/caisson-mcp/agent.sock`

func (a *app) mcpCommand() *cobra.Command {
	var f requestFlags
	var ref, listen string
	var atTTY bool
	cmd := &cobra.Command{
		Use:               "mcp [flags]",
		Short:             "serve a task's tools to an agent client, on stdin and stdout",
		GroupID:           groupTask,
		Long:              mcpLong,
		Example:           mcpExample,
		Annotations:       map[string]string{ownsStdout: "yes"},
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := socketPath(listen)
			if err != nil {
				return err
			}
			if ref != "" {
				if name := changedRequestFlag(cmd); name != "" {
					return usagef(cmd, "--task %s serves a task that is open: --%s has no meaning there", clipped(ref), name).WithHint("give it to `caisson open`")
				}
				return a.mcpServe(cmd, "", path, atTTY, func(ctx context.Context, e door.Engine, serve func(context.Context, task.ID) error) (task.ID, *task.CloseReport, error) {
					v, err := door.Do[*task.View](ctx, a.call(e), "show", &door.TaskIn{Task: ref})
					if err != nil {
						return "", nil, err
					}
					if v.State != task.Ready {
						return v.ID, nil, task.Errorf(task.CodeState, "cli.mcp", "task %s is %s: its tools cannot be served", v.ID, v.State).WithHint("`caisson ls` lists the open ones; `caisson resume` opens a kept one")
					}
					return v.ID, nil, serve(ctx, v.ID)
				})
			}
			q, err := f.request(cmd, a.cfg.Env)
			if err != nil {
				return err
			}
			return a.mcpServe(cmd, f.repo, path, atTTY, func(ctx context.Context, e door.Engine, serve func(context.Context, task.ID) error) (id task.ID, rep *task.CloseReport, err error) {
				rep, err = e.Hold(ctx, q, a.ui.progress, func(ctx context.Context, held task.ID) error {
					id = held
					return serve(ctx, held)
				})
				return id, rep, err
			})
		},
	}
	f.add(a, cmd)
	cmd.Flags().StringVar(&ref, "task", "", "serve the tools of this open task, which goes on afterwards `TASK`")
	cmd.Flags().BoolVar(&atTTY, "approve-tty", false, "ask about calls that wait for a person on /dev/tty, where the client leaves your terminal to you")
	cmd.Flags().StringVar(&listen, "listen", "", "serve streamable HTTP on a socket of yours instead of stdin and stdout `unix:PATH`")
	_ = cmd.RegisterFlagCompletionFunc("task", a.completeTask)
	return cmd
}

// changedRequestFlag returns the first flag about a new task that was given.
func changedRequestFlag(cmd *cobra.Command) string {
	own := map[string]bool{"task": true, "listen": true, "approve-tty": true}
	found := ""
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && found == "" && !own[f.Name] && cmd.InheritedFlags().Lookup(f.Name) == nil {
			found = f.Name
		}
	})
	return found
}

func socketPath(listen string) (string, error) {
	if listen == "" {
		return "", nil
	}
	path, ok := strings.CutPrefix(listen, "unix:")
	if !ok || !strings.HasPrefix(path, "/") {
		return "", invalid("listen", listen, "must be unix: and an absolute path", "unix:/run/user/1000/caisson-mcp/agent.sock")
	}
	return path, nil
}

// mcpServe serves until the client goes, the task ends or a signal arrives, and
// tells what became of the task.
func (a *app) mcpServe(cmd *cobra.Command, repo, listen string, atTTY bool, with func(context.Context, door.Engine, func(context.Context, task.ID) error) (task.ID, *task.CloseReport, error)) error {
	if a.cfg.MCP == nil {
		return unsupported("`caisson mcp`")
	}
	if listen == "" && isTerminal(a.cfg.Stdin) {
		return usagef(cmd, "standard input is a terminal: `caisson mcp` is started by an agent client").WithHint("see `caisson mcp --help` for its configuration; --listen serves on a socket")
	}
	ctx := a.interruptible(cmd.Context())
	// A client that goes away is an error of a write, and not our end: the task
	// has to be ended in order.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	var tty *os.File
	if atTTY {
		var err error
		if tty, err = os.OpenFile("/dev/tty", os.O_RDWR, 0); err != nil {
			return usagef(cmd, "--approve-tty: there is no terminal to ask at").WithHint("`caisson approve --watch` asks at another one")
		}
		defer tty.Close()
	}
	e, err := a.open(ctx, repo, false)
	if err != nil {
		return canceled(ctx, err)
	}
	id, rep, err := with(ctx, e, func(ctx context.Context, id task.ID) error {
		a.ui.clear()
		where := "standard input and output"
		if listen != "" {
			where = listen
		}
		ready := func() { a.ui.note("serving the tools of task %s on %s", id, where) }
		if listen == "" {
			ready()
		}
		if tty != nil {
			// It ends with ctx; a read that waits for the person ends with the program.
			actx, done := context.WithCancel(ctx)
			defer done()
			go func() { _ = a.answerAt(actx, e, string(id), tty, tty) }()
		}
		err := a.cfg.MCP(ctx, MCPOptions{Engine: e, Task: id, Stdin: a.cfg.Stdin, Stdout: a.cfg.Stdout, Listen: listen, Ready: ready, Note: a.ui.aside})
		// A signal is how a person or a client ends a server: no failure.
		var s signaled
		if errors.As(err, &s) {
			return nil
		}
		return err
	})
	a.ui.clear()
	if err != nil && rep == nil {
		return canceled(ctx, err)
	}
	if a.json {
		res := mcpResult{Schema: schemaOf(cmd), Task: id, Closed: rep}
		if err != nil {
			res.Error = errorOf(err, exitStatus(cmd, err))
		}
		a.writeJSONLine(a.cfg.Stderr, res)
		if err != nil {
			return status(exitStatus(cmd, err))
		}
		return nil
	}
	a.mcpEnded(id, rep)
	return err
}

// mcpEnded tells what became of the task. A client keeps what a server writes to
// standard error, so it is written there without a terminal too.
func (a *app) mcpEnded(id task.ID, rep *task.CloseReport) {
	if rep == nil {
		return
	}
	for _, n := range rep.Notes {
		a.ui.aside(n)
	}
	for _, r := range rep.Rescued {
		if r.Kind != "ignored" {
			a.ui.aside(fmt.Sprintf("rescued %s: %s", r.Kind, r.Name))
		}
	}
	if rep.State == task.Kept {
		a.ui.aside(fmt.Sprintf("task %s keeps its files: `caisson diff %s` shows its result, %s", id, id, takes(id, rep.Bare)))
	} else {
		a.ui.aside(fmt.Sprintf("task %s is %s", id, rep.State))
	}
}
