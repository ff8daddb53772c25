package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// status ends the program with a status that is not an error of ours: the
// command's own, or the 3 and 7 that accompany a report.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// passes marks the commands that pass the command's own status through.
const passes = "passes-status"

// Statuses of our own in commands that pass a status through.
const (
	statusOwn           = 125
	statusNotExecutable = 126
	statusNoCommand     = 127
	statusCanceled      = 130
)

// exitStatus maps an error to the status of cmd.
func exitStatus(cmd *cobra.Command, err error) int {
	code := task.CodeOf(err)
	if cmd == nil || cmd.Annotations[passes] == "" {
		return code.ExitStatus()
	}
	switch code {
	case task.CodeNotExecutable:
		return statusNotExecutable
	case task.CodeNoCommand:
		return statusNoCommand
	case task.CodeCanceled:
		return statusCanceled
	}
	return statusOwn
}

// finish reports err and returns the exit status.
func (a *app) finish(cmd *cobra.Command, err error) int {
	a.ui.clear()
	if code := task.CodeOf(err); a.out.failed != nil && (err == nil || code == task.CodeInternal) {
		err = a.out.failed
	}
	if err == nil {
		return 0
	}
	var s status
	if errors.As(err, &s) {
		return int(s)
	}
	st := exitStatus(cmd, err)
	session := cmd != nil && (cmd.Annotations[passes] != "" || cmd.Annotations[ownsStdout] != "")
	if a.json || a.jsonAsked() {
		// The streams of run, exec and shell belong to the command inside, that of
		// mcp to the protocol: there the document is the last line of standard error.
		if session {
			a.writeJSONLine(a.cfg.Stderr, sessionResult{Schema: schemaOf(cmd), Error: errorOf(err, st)})
			return st
		}
		a.writeJSON(errorDoc{errorOf(err, st)})
	}
	a.ui.errorLines(err)
	return st
}

// jsonAsked looks for --json itself when parsing failed before reaching it.
// What follows "--" is never ours.
func (a *app) jsonAsked() bool {
	args := a.cfg.Args
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return a.parseFailed && slices.Contains(args, "--json")
}

// errorDoc is what --json prints instead of a result.
type errorDoc struct {
	Error *errorJSON `json:"error"`
}

type errorJSON struct {
	Code    task.Code `json:"code"`
	Op      string    `json:"op"`
	Message string    `json:"message"`
	Hint    string    `json:"hint,omitempty"`
	Detail  any       `json:"detail,omitempty"`
	Exit    int       `json:"exit"` // the status the program ends with
}

func errorOf(err error, st int) *errorJSON {
	out := &errorJSON{Code: task.CodeOf(err), Message: err.Error(), Hint: task.HintOf(err), Exit: st}
	var e *task.Error
	if errors.As(err, &e) {
		out.Op, out.Detail = e.Op, e.Detail
	}
	return out
}

// sessionResult is what --json prints after run, exec, shell and check.
type sessionResult struct {
	Schema  string        `json:"schema"`
	Task    task.ID       `json:"task"` // empty when none was started
	Ran     bool          `json:"ran"`  // the command was started
	Outcome *task.Outcome `json:"outcome"`
	Check   *task.Check   `json:"check,omitempty"` // of check
	// What became of the task of a run.
	State     task.State       `json:"state,omitempty"`
	Retention *task.Retention  `json:"retention,omitempty"`
	Results   []task.ResultRef `json:"results,omitempty"`
	Error     *errorJSON       `json:"error,omitempty"`
}

func schemaOf(cmd *cobra.Command) string { return "caisson." + cmd.Name() + "/1" }

func (a *app) writeJSON(v any) {
	fillLists(reflect.ValueOf(v))
	enc := json.NewEncoder(plainJSON{a.stdout()})
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // a reader that went away is not our failure
}

func (a *app) writeJSONLine(w interface{ Write([]byte) (int, error) }, v any) {
	enc := json.NewEncoder(plainJSON{w})
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// plainJSON writes JSON so that it cannot steer a terminal: what comes out of a
// task stands in it. JSON itself escapes only the controls below 0x20; a terminal
// also obeys those from 0x80 on, and a reader is misled by what hides or turns text.
// The value stays the same. Each Write is whole characters.
type plainJSON struct{ w io.Writer }

func (p plainJSON) Write(b []byte) (int, error) {
	out := b[:0:0]
	from := 0
	for i := 0; i < len(b); {
		r, n := rune(b[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(b[i:])
		}
		if r >= 0x7f && r < 0xa0 || r >= utf8.RuneSelf && (hidden(r) || r == utf8.RuneError && n == 1) {
			out = append(out, b[from:i]...)
			if hi, lo := utf16.EncodeRune(r); hi != unicode.ReplacementChar {
				out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
			} else {
				out = fmt.Appendf(out, `\u%04x`, r)
			}
			from = i + n
		}
		i += n
	}
	if from == 0 {
		return p.w.Write(b)
	}
	if _, err := p.w.Write(append(out, b[from:]...)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// fillLists makes nil lists empty ones, so that a reader finds a list where the
// schema says so. It can only change what a pointer leads to.
func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); v.Type().Field(i).IsExported() {
				fillLists(f)
			}
		}
	case reflect.Slice:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		if k := v.Type().Elem().Kind(); k == reflect.Struct || k == reflect.Pointer {
			for i := range v.Len() {
				fillLists(v.Index(i))
			}
		}
	}
}

// elsewhere is what git, docker and their like call our commands.
var elsewhere = map[string]string{
	"list": "ls", "ps": "ls", "status": "ls", "inspect": "show", "logs": "log -f", "events": "log -f", "rm": "close", "stop": "close", "kill": "close",
	"remove": "close", "delete": "close", "create": "open", "start": "open", "new": "open", "up": "open", "down": "close", "attach": "shell", "enter": "shell",
	"sh": "shell", "prune": "reap", "gc": "reap", "clean": "reap", "info": "doctor", "merge": "apply", "checkout": "branch", "cherry-pick": "apply", "format-patch": "export --patch", "save": "keep", "reopen": "resume", "restart": "resume",
}

// flagElsewhere does the same for flags of run and exec.
var flagElsewhere = map[string]string{
	"i": "not needed: input is always connected", "t": "not needed: a terminal is used when there is one", "interactive": "not needed: input is always connected",
	"tty": "not needed: a terminal is used when there is one", "rm": "not needed: a task of `caisson run` ends with its command; see --keep",
	"e": "here it is --env K=V", "w": "here it is --dir DIR", "workdir": "here it is --dir DIR", "volume": "here it is --ro DIR, for reading; work comes back through the repository",
	"mount": "here it is --ro DIR, for reading; work comes back through the repository", "m": "here it is --memory SIZE", "d": "here it is `caisson open`, then `caisson exec`",
	"detach": "here it is `caisson open`, then `caisson exec`", "p": "a server inside is reached with `caisson exec TASK -- CMD…`", "C": "here it is --repo DIR",
}

// unknownCommand names the nearest command.
func (a *app) unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Root().Commands() {
		if !c.Hidden && c.Runnable() {
			names = append(names, c.Name())
		}
	}
	e := task.Errorf(task.CodeUsage, "cli", "no command %q", name)
	if n := elsewhere[name]; n != "" {
		return e.WithHint("that is `caisson %s`", n)
	}
	if n := sys.Nearest(name, names); n != "" {
		return e.WithHint("did you mean `caisson %s`?", n)
	}
	return e.WithHint("`caisson --help` lists the commands; to run a program in a task: `caisson run -- %s`", name)
}

// flagError turns what the flag parser says into an error of ours.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	a.parseFailed = true
	if cmd == cmd.Root() {
		for _, s := range a.cfg.Args {
			if !strings.HasPrefix(s, "-") {
				return a.unknownCommand(cmd, s)
			}
		}
	}
	var missing *pflag.NotExistError
	if errors.As(err, &missing) {
		name := missing.GetSpecifiedName()
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		short := "--" + name
		if missing.GetSpecifiedShortnames() != "" {
			short = "-" + name
		}
		e := usagef(cmd, "%s has no flag %s", cmd.CommandPath(), short)
		if h := flagElsewhere[name]; h != "" && (cmd.Name() == "run" || cmd.Name() == "exec") {
			return e.WithHint("%s", h)
		}
		if n := sys.Nearest(name, names); n != "" && len(name) > 1 {
			return e.WithHint("did you mean --%s? see `%s --help`", n, cmd.CommandPath())
		}
		return e
	}
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		return usagef(cmd, "--%s does not take the value %q", bad.GetFlag().Name, bad.GetValue())
	}
	var value *pflag.ValueRequiredError
	if errors.As(err, &value) {
		return usagef(cmd, "--%s needs a value", value.GetFlag().Name)
	}
	return usagef(cmd, "%s", strings.ToLower(err.Error()[:1])+err.Error()[1:])
}
