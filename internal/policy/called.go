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
		"shell_kill", "shell_list", "install_dependencies", "publish_artifact", "fetch", "request_access"}
	FileTools    = []string{"read_file", "write_file", "edit_file", "notebook_edit", "list_dir", "glob", "grep", "publish_artifact"}
	CommandTools = []string{"shell", "shell_input"}
	HostTools    = []string{"fetch", "request_access"} // are given a host
)

// calledTool refuses a rule that no call can match: it would be a line without
// effect, which whoever wrote it believes in.
func calledTool(r *CallRule) error {
	tools := slices.DeleteFunc(slices.Clone(CalledTools), func(n string) bool { return r.Tool != "" && !Match(r.Tool, n) })
	given := func(list []string) bool {
		return slices.ContainsFunc(tools, func(n string) bool { return slices.Contains(list, n) })
	}
	switch {
	case (r.Host != "" || len(r.Methods) > 0) && (!given(HostTools) || r.Path != "" || len(r.Command) > 0):
		return fmt.Errorf("host, methods: they are about %s alone, so the rule would never match; base.egress, deny.egress and outward.ask, with hosts, ports, methods and paths, hold for every connection, whatever opens it", strings.Join(HostTools, ", "))
	case r.Credential != "":
		return errors.New("credential: no call of this version names a credential, so the rule would never match; deny.credentials holds for whatever asks for one")
	case len(tools) > 0:
	case !strings.ContainsAny(r.Tool, "*?"):
		return fmt.Errorf("tool: %w", &WordError{r.Tool, CalledTools})
	default:
		return fmt.Errorf("tool: no tool is called %q; there are %s", clip(r.Tool), strings.Join(CalledTools, ", "))
	}
	switch {
	case r.Path != "" && len(r.Command) > 0:
		return errors.New("path, command: no tool is given both, so the rule would never match; write two rules")
	case r.Path != "" && !given(FileTools):
		return fmt.Errorf("path: %s is given no path, so the rule would never match; which files a command reaches is bounded by the boundary (base.mounts, deny.mounts), and path is about %s", r.Tool, strings.Join(FileTools, ", "))
	case len(r.Command) > 0 && !given(CommandTools):
		return fmt.Errorf("command: %s is given no command, so the rule would never match; command is about %s", r.Tool, strings.Join(CommandTools, ", "))
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
