package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) lsCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:               "ls",
		Short:             "list tasks and their states",
		GroupID:           groupTask,
		Long:              "Lists the tasks that are open, kept or stuck. `caisson help states` explains the states.",
		Example:           "  caisson ls\n  caisson ls --all --json",
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := do[*door.ListOut](a, cmd, "", "list", &door.ListIn{All: all}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(l)
				return nil
			}
			return a.renderList(a.stdout(), l.Tasks)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also closed and blocked tasks")
	return cmd
}

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show TASK",
		Short:   "one task: required, promised and proved levels, grants, resources",
		GroupID: groupTask,
		Long: `Prints, per axis, which level the task required, which the backend promised and which
was proved by probing from inside, then findings, grants, tools, limits, resources,
retention, results, and what is not isolated. ` + "`caisson help levels`" + ` explains the axes.`,
		Example:           "  caisson show fix-login\n  caisson show t5k --json",
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := do[*task.View](a, cmd, "", "show", &door.TaskIn{Task: args[0]}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(v)
				return nil
			}
			return a.renderTask(a.stdout(), v)
		},
	}
}

func (a *app) logCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:     "log TASK",
		Short:   "a task's evidence: commands, exits, probes, rescue",
		GroupID: groupTask,
		Long: `Prints the record that caisson kept on the host, outside the boundary, as a person
reads it. With --json every event is one line, as recorded. -f waits for more until
the task ends.`,
		Example:           "  caisson log fix-login\n  caisson log -f t5k\n  caisson log --json t5k | jq .type",
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			emitTo := func(w io.Writer) error {
				r := a.newLogText(w)
				emit := r.emit
				if a.json {
					enc := json.NewEncoder(w)
					enc.SetEscapeHTML(false)
					emit = func(e door.Event) error {
						if len(e.Line) == 0 {
							return enc.Encode(e)
						}
						_, err := w.Write(append(e.Line, '\n'))
						return err
					}
				}
				_, err := do[*door.None](a, cmd, "", "log", &door.LogIn{Task: args[0], Follow: follow}, func(c *door.Call) { c.Emit = emit })
				return err
			}
			if follow {
				return emitTo(a.stdout())
			}
			return a.page(emitTo)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more events until the task ends")
	cmd.Flags().BoolVar(&a.noPager, "no-pager", false, "do not start a pager")
	return cmd
}

func (a *app) diffCommand() *cobra.Command {
	var o door.DiffOptions
	cmd := &cobra.Command{
		Use:     "diff TASK",
		Short:   "exact change set of a task against its base",
		GroupID: groupTask,
		Long: `Prints everything the task changed, committed or not, as a patch that ` + "`git apply`" + `
takes: any file name, any bytes. On a terminal control characters are shown escaped;
elsewhere the bytes are exact. Works while the task's files are there: it is open, or
kept with its source. Later the refs that show lists serve.`,
		Example: `  caisson diff fix-login
  caisson diff t5k | git apply --3way
  caisson diff t5k --name-status -z`,
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Stat && o.NameStatus {
				return usagef(cmd, "--stat and --name-status exclude each other")
			}
			if o.NUL && !o.NameStatus {
				return usagef(cmd, "-z goes with --name-status")
			}
			in := &door.DiffIn{Task: args[0], Options: o}
			if a.json {
				return a.diffJSON(cmd, in)
			}
			write := func(w io.Writer) error {
				_, err := do[*door.None](a, cmd, "", "diff", in, func(c *door.Call) { c.Writer = w })
				return err
			}
			if !a.ui.outTTY || o.NUL {
				return write(a.stdout())
			}
			return a.page(func(w io.Writer) error {
				d := &diffText{w: w, color: a.ui.colorOut && !o.Stat && !o.NameStatus}
				if err := write(d); err != nil {
					return err
				}
				return d.Close()
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Stat, "stat", false, "a summary per file")
	f.BoolVar(&o.NameStatus, "name-status", false, "names and kinds of change only")
	f.BoolVarP(&o.NUL, "null", "z", false, "end names with NUL and do not quote them, with --name-status")
	f.BoolVar(&a.noPager, "no-pager", false, "do not start a pager")
	return cmd
}

// diffResult is what `diff --json` prints.
type diffResult struct {
	Schema  string       `json:"schema"` // "caisson.diff/1"
	Task    string       `json:"task"`   // as asked
	Changes []changeJSON `json:"changes"`
}

type changeJSON struct {
	Status   string `json:"status"`                // A, M, D, T or R, as git
	Path     string `json:"path"`                  // with U+FFFD for bytes that are not UTF-8
	Bytes    string `json:"path_base64,omitempty"` // the exact name, when it is not UTF-8
	OldPath  string `json:"old_path,omitempty"`    // of a rename
	OldBytes string `json:"old_path_base64,omitempty"`
}

func (a *app) diffJSON(cmd *cobra.Command, in *door.DiffIn) error {
	var buf bytes.Buffer
	in.Options = door.DiffOptions{NameStatus: true, NUL: true}
	if _, err := do[*door.None](a, cmd, "", "diff", in, func(c *door.Call) { c.Writer = &buf }); err != nil {
		return err
	}
	changes, err := parseNameStatus(buf.Bytes())
	if err != nil {
		return err
	}
	a.writeJSON(diffResult{Schema: "caisson.diff/1", Task: in.Task, Changes: changes})
	return nil
}

// parseNameStatus reads the NUL-separated form of --name-status.
func parseNameStatus(data []byte) ([]changeJSON, error) {
	out := []changeJSON{}
	fields := bytes.Split(data, []byte{0})
	fields = fields[:len(fields)-1] // what follows the last NUL is nothing
	next := func() ([]byte, bool) {
		if len(fields) == 0 {
			return nil, false
		}
		f := fields[0]
		fields = fields[1:]
		return f, true
	}
	for len(fields) > 0 {
		st, _ := next()
		path, ok := next()
		if !ok || len(st) == 0 {
			return nil, task.Errorf(task.CodeInternal, "cli.diff", "the list of changes is malformed")
		}
		c := changeJSON{Status: string(st[:1])}
		if st[0] == 'R' || st[0] == 'C' {
			c.OldPath, c.OldBytes = pathJSON(path)
			if path, ok = next(); !ok {
				return nil, task.Errorf(task.CodeInternal, "cli.diff", "the list of changes is malformed")
			}
		}
		c.Path, c.Bytes = pathJSON(path)
		out = append(out, c)
	}
	return out, nil
}

func pathJSON(p []byte) (string, string) {
	if utf8.Valid(p) {
		return string(p), ""
	}
	return string(bytes.ToValidUTF8(p, []byte("\uFFFD"))), base64.StdEncoding.EncodeToString(p)
}

// versionResult is what `version --json` prints.
type versionResult struct {
	Schema  string `json:"schema"` // "caisson.version/1"
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "print the version",
		GroupID:           groupMachine,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	if a.json {
		a.writeJSON(versionResult{"caisson.version/1", a.cfg.Version, a.cfg.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH})
		return nil
	}
	commit := ""
	if a.cfg.Commit != "" {
		commit = " (" + a.cfg.Commit + ")"
	}
	_, err := fmt.Fprintf(a.stdout(), "caisson %s%s %s %s/%s\n", a.cfg.Version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
