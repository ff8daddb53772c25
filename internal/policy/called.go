package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CalledTools are the tools that a rule about calls can name. FileTools are
// those of them that are given a path, CommandTools those that are given
// commands. A test holds them against the contract of the tools.
var (
	CalledTools = []string{"read_file", "write_file", "edit_file", "notebook_edit", "list_dir", "glob", "grep", "shell", "shell_output", "shell_input",
		"shell_kill", "shell_list", "install_dependencies", "publish_artifact"}
	FileTools    = []string{"read_file", "write_file", "edit_file", "notebook_edit", "list_dir", "glob", "grep", "publish_artifact"}
	CommandTools = []string{"shell", "shell_input"}
)

// calledTool refuses a rule whose tool there is none of, or whose path no such
// tool is given: it would be a line without effect.
func calledTool(r *CallRule) error {
	names := func(list []string) bool {
		return slices.ContainsFunc(list, func(n string) bool { return Match(r.Tool, n) })
	}
	switch {
	case r.Tool == "":
	case !strings.ContainsAny(r.Tool, "*?") && !slices.Contains(CalledTools, r.Tool):
		return fmt.Errorf("tool: %w", &WordError{r.Tool, CalledTools})
	case !names(CalledTools):
		return fmt.Errorf("tool: no tool is called %q; there are %s", clip(r.Tool), strings.Join(CalledTools, ", "))
	case r.Path != "" && !names(FileTools):
		return fmt.Errorf("path: %s is given no path, so the rule would never match; which files a command reaches is bounded by the boundary (base.mounts, deny.mounts), and path is about %s", r.Tool, strings.Join(FileTools, ", "))
	}
	return nil
}

// called refuses a question about a call that cannot be made.
func (q *Question) called() error {
	switch {
	case q.Tool == "" || q.Tool == "*":
		return nil
	case !slices.Contains(CalledTools, q.Tool):
		return fmt.Errorf("tool: %w", &WordError{q.Tool, CalledTools})
	case q.Path != "" && !slices.Contains(FileTools, q.Tool):
		return fmt.Errorf("%s is given no path: which files a command reaches is bounded by the boundary", q.Tool)
	case len(q.Command) > 0 && !slices.Contains(CommandTools, q.Tool):
		return errors.New(q.Tool + " is given no command")
	}
	return nil
}
