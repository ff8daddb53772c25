package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) diffCommand() *cobra.Command {
	var o door.DiffOptions
	var exitCode bool
	cmd := &cobra.Command{
		Use:     "diff TASK [-- PATH…]",
		Short:   "exact change set of a task against its base",
		GroupID: groupTask,
		Long: `Prints everything the task changed, committed or not, as a patch that ` + "`git apply`" + `
takes: any file name, any bytes. On a terminal control characters are shown escaped;
elsewhere the bytes are exact. Works while the task is open, and after it ended as long
as its files or its rescued result are there.

A PATH is the name of a file or folder, never a pattern: relative to the top of the
source, or absolute inside it.

Files that tools on your machine would execute or trust once they are in a checkout are
listed first, on standard error: hooks, settings of agents and editors, build scripts,
links that lead out, names that deceive. docs/risky-files.md has the rules.`,
		Example: `  caisson diff fix-login
  caisson diff t5k | git apply --3way
  caisson diff t5k --stat -- src docs/guide.md
  caisson diff t5k --name-status -z
  caisson diff t5k --json | jq .risky`,
		Args: func(cmd *cobra.Command, args []string) error {
			named := len(args)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				named = max(dash, min(len(args), 1)) // a task may stand behind the dashes
			}
			if named > 1 {
				return usagef(cmd, "caisson diff: unexpected argument %q", args[1]).WithHint("paths go behind `--`: caisson diff %s -- PATH…", clean(args[0]))
			}
			return exact(1, "a task")(cmd, args[:named])
		},
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Stat && o.NameStatus {
				return usagef(cmd, "--stat and --name-status exclude each other")
			}
			if o.NUL && !o.NameStatus {
				return usagef(cmd, "-z goes with --name-status")
			}
			o.Paths = args[1:]
			in := &door.DiffIn{Task: args[0], Options: o}
			differs := false
			run := a.diffText
			if a.json {
				run = a.diffJSON
			}
			err := run(cmd, in, func(r *task.DiffReport) { differs = r.Files > 0 })
			if err == nil && exitCode && differs {
				return status(1)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Stat, "stat", false, "a summary per file")
	f.BoolVar(&o.NameStatus, "name-status", false, "names and kinds of change only")
	f.BoolVarP(&o.NUL, "null", "z", false, "end names with NUL and do not quote them, with --name-status")
	f.BoolVar(&exitCode, "exit-code", false, "end with status 1 when there are changes")
	f.BoolVar(&a.noPager, "no-pager", false, "do not start a pager")
	return cmd
}

// diffText prints the diff, and the risky files before it.
func (a *app) diffText(cmd *cobra.Command, in *door.DiffIn, seen func(*task.DiffReport)) error {
	found := func(r *task.DiffReport) error {
		seen(r)
		a.tellRisky(r.Risky)
		if v := r.Verification; v != nil && r.Files > 0 && (len(v.Checks) > 0 || v.Stale > 0 || v.Demanded > 0) {
			a.tellVerified(r.ID, v)
		}
		return nil
	}
	write := func(w io.Writer) error {
		_, err := do[*task.DiffReport](a, cmd, "", "diff", in, func(c *door.Call) { c.Writer, c.Found = w, found })
		return err
	}
	if !a.ui.outTTY || in.Options.NUL {
		return write(a.stdout())
	}
	if w, _, err := term.GetSize(fdOf(a.cfg.Stdout)); err == nil && w >= minStat {
		in.Options.Width = w
	}
	return a.page(func(w io.Writer) error {
		d := &diffText{w: w, color: a.ui.colorOut && !in.Options.Stat && !in.Options.NameStatus}
		if err := write(d); err != nil {
			return err
		}
		return d.Close()
	})
}

// minStat is the least width that a summary per file is made for.
const minStat = 40

// maxTold is how many risky files a person is told on standard error; --json
// lists all.
const maxTold = 100

// tellRisky lists risky files on standard error, one line each, in text that
// cannot steer a terminal.
func (a *app) tellRisky(risks []task.Risk) {
	if len(risks) == 0 || a.ui.quiet || a.json {
		return
	}
	a.listRisky(risks, maxTold)
}

// listRisky prints at most most of the risky files.
func (a *app) listRisky(risks []task.Risk, most int) {
	a.ui.clear()
	for _, line := range riskyLines(risks, most) {
		fmt.Fprintf(a.ui.err, "caisson: %s %s\n", paint(a.ui.colorErr, yellow, "risky:"), line)
	}
}

// riskyLines makes one line per file, at most most of them.
func riskyLines(risks []task.Risk, most int) []string {
	var lines []string
	files := 0
	for i, r := range risks {
		if i > 0 && r.Path != "" && r.Path == risks[i-1].Path {
			if files <= most {
				lines[len(lines)-1] += "; " + clean(r.Why)
			}
			continue
		}
		if files++; files > most {
			continue
		}
		if r.Path == "" {
			lines = append(lines, clean(r.Why))
			continue
		}
		lines = append(lines, clean(r.Path)+": "+clean(r.Why))
	}
	if files > most {
		lines = append(lines, fmt.Sprintf("and %d more files; --json lists all", files-most))
	}
	return lines
}

// diffResult is what `diff --json` prints.
type diffResult struct {
	Schema  string       `json:"schema"` // "caisson.diff/1"
	Task    string       `json:"task"`   // as asked
	Changes []changeJSON `json:"changes"`
	ID      task.ID      `json:"id"`
	Start   string       `json:"start"` // tree the task began with
	Tree    string       `json:"tree"`  // tree that it has now
	Files   int          `json:"files"` // changed, added and deleted; a rename is two
	Risky   []task.Risk  `json:"risky"`
	From    string       `json:"from"` // "files", or "refs" when only the rescued result is left

	Verification *task.Verification `json:"verification,omitempty"`
}

type changeJSON struct {
	Status   string `json:"status"`                // A, M, D, T or R, as git
	Path     string `json:"path"`                  // with U+FFFD for bytes that are not UTF-8
	Bytes    string `json:"path_base64,omitempty"` // the exact name, when it is not UTF-8
	OldPath  string `json:"old_path,omitempty"`    // of a rename
	OldBytes string `json:"old_path_base64,omitempty"`
}

func (a *app) diffJSON(cmd *cobra.Command, in *door.DiffIn, seen func(*task.DiffReport)) error {
	var buf bytes.Buffer
	in.Options.Stat, in.Options.NameStatus, in.Options.NUL = false, true, true
	r, err := do[*task.DiffReport](a, cmd, "", "diff", in, func(c *door.Call) { c.Writer = &buf })
	if err != nil {
		return err
	}
	seen(r)
	changes, err := parseNameStatus(buf.Bytes())
	if err != nil {
		return err
	}
	a.writeJSON(&diffResult{
		Schema: "caisson.diff/1", Task: in.Task, Changes: changes,
		ID: r.ID, Start: r.Start, Tree: r.Tree, Files: r.Files, Risky: r.Risky, From: r.From, Verification: r.Verification,
	})
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
