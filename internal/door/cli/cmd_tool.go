package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) toolCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "tool TASK TOOL [ARGUMENTS]",
		Short:   "make one tool call in an open task",
		GroupID: groupTask,
		Long: `Calls TOOL in a task, as a harness does for a model. ARGUMENTS are one JSON object; "-"
reads it from standard input. Prints the tool's result, with --json everything that is
known about the call: what the host observed and what the inside claimed, apart.

A call that a rule asks about waits for ` + "`caisson approve`" + ` or ` + "`caisson deny`" + `.`,
		Example: `  caisson tool fix-login read_file '{"path": "README.md"}'
  caisson tool fix-login shell '{"command": "make test", "timeout_ms": 600000}' --json`,
		ValidArgsFunction: a.completeTask,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef(cmd, "%s needs a task and a tool", cmd.CommandPath()).WithHint("for example `caisson tool fix-login list_dir`")
			}
			return atMost(3)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			call := task.ToolCall{Tool: args[1], Args: json.RawMessage("{}")}
			if len(args) == 3 {
				call.Args = json.RawMessage(args[2])
				if args[2] == "-" {
					b, err := io.ReadAll(io.LimitReader(a.cfg.Stdin, maxToolArgs+1))
					if err != nil {
						return task.Errorf(task.CodeUsage, "cli", "standard input cannot be read: %w", err)
					}
					call.Args = b
				}
			}
			if len(call.Args) > maxToolArgs {
				return usagef(cmd, "the arguments are longer than %d bytes", maxToolArgs)
			}
			if !json.Valid(call.Args) {
				return usagef(cmd, "the arguments are no JSON").WithHint(`for example '{"path": "README.md"}'`)
			}
			res, err := do[*task.ToolResult](a, cmd, "", "tool", &door.ToolIn{Task: args[0], Call: call}, func(c *door.Call) {
				c.Asked = func(q task.Question) {
					a.ui.note("%s", clean("the call waits for a person: `caisson approve "+q.ID+"` or `caisson deny "+q.ID+"`"))
				}
			})
			return a.toolEnd(res, err)
		},
	}
}

func (a *app) toolsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "tools",
		Short:   "the tools that a harness may call in a task",
		GroupID: groupMachine,
		Long: `Lists the tools of the contract. With --json each comes with the text for a model and the
JSON Schemas of its arguments and its result.`,
		Example:           "  caisson tools\n  caisson tools --json | jq '.tools[].input_schema'",
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := do[*door.ToolsOut](a, cmd, "", "tools", &door.None{}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(l)
				return nil
			}
			var rows [][]string
			for _, t := range l.Tools {
				kind := "changes"
				if t.ReadOnly {
					kind = "reads"
				}
				rows = append(rows, []string{t.Name, kind, t.Title})
			}
			t := &text{w: a.stdout(), u: a.ui}
			t.table("", rows, nil)
			return t.err
		},
	}
}

// maxToolArgs bounds what is read as arguments.
const maxToolArgs = 32 << 20

// toolEnd prints a call that ended.
func (a *app) toolEnd(res *task.ToolResult, err error) error {
	if res != nil && a.json && (err == nil || res.Claimed.Result != nil) {
		a.writeJSON(res)
	}
	if err != nil {
		return err
	}
	if f := res.Claimed.Failure; f != nil {
		if a.json {
			return status(1)
		}
		return task.Errorf(task.CodeConflict, "tool", "%s: %s", f.Code, f.Message)
	}
	if a.json {
		return nil
	}
	var b bytes.Buffer
	if json.Indent(&b, res.Claimed.Result, "", "  ") != nil {
		return errors.New("the result is no JSON")
	}
	_, err = fmt.Fprintln(plainJSON{a.stdout()}, b.String())
	return err
}
