package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/door"
)

// logText renders evidence for a person, one event a line or a few.
type logText struct {
	t   text
	a   *app
	day string // of the last event
	// follow: events come as they happen.
	follow bool
	top    string            // the task's source, as commands in it see it
	calls  map[string]*begun // tool calls without their end, by id
	shells map[string]string // background shells that run, by the call that began them
}

func (a *app) newLogText(w io.Writer) *logText {
	return &logText{t: text{w: w, u: a.ui}, a: a, calls: map[string]*begun{}, shells: map[string]string{}}
}

// phrases says what an event type means, for types that render as their fields.
var phrases = map[string]string{
	"task.created": "task created", "plan.decided": "plan decided", "finding.raised": "finding", "grant.given": "granted",
	"acceptance.recorded": "accepted", "acceptance.revoked": "acceptance taken back",
	"artifact.kept":   "artifact kept",
	"source.prepared": "source prepared", "boundary.intent": "about to make the boundary", "boundary.created": "boundary made",
	"boundary.blocked": "blocked: a layer is missing", "boundary.failed": "boundary failed", "boundary.ended": "boundary ended",
	"probe.reported": "probed", "supervisor.started": "supervisor started", "supervisor.ended": "supervisor ended",
	"supervisor.lost": "supervisor lost", "channel.poisoned": "channel poisoned", "call.canceled": "cancellation", "call.refused": "command refused",
	"limit.hit": "limit hit", "work.found": "work found", "rescue.intent": "about to rescue", "rescue.done": "rescued",
	"rescue.failed": "rescue failed", "cleanup.intent": "about to remove", "cleanup.outcome": "removed",
	"credential.lent": "credential about to be read", "credential.used": "credential used", "credential.signed": "signed with a lent key of SSH", "credential.refused": "credential refused",
	"credential.astray": "placeholder of no use", "credential.back": "credential taken back",
	"port.published": "port published", "port.refused": "not let in at a published port", "port.withdrawn": "port withdrawn",
	"install.intent": "about to install dependencies", "install.outcome": "dependencies installed",
	"check.intent": "about to check", "check.outcome": "checked",
	"task.state": "state", "task.kept": "kept", "task.stuck": "stuck", "task.sealed": "sealed", "task.closed": "closed", "child.ended": "child",
	"retention.set": "to be kept", "resume.intent": "about to resume", "resume.failed": "not resumed, kept as before",
	"apply.intent": "about to apply", "apply.outcome": "applied", "apply.recovered": "an apply that was cut short was taken back",
	"fetch.intent": "about to fetch commits", "branch.intent": "about to make a branch", "branch.outcome": "branch made", "export.intent": "about to export", "export.outcome": "exported",
	"log.repaired": "log repaired after a crash", "checkout.changed": "the checkout's git directory changed",
}

// failures says what an outcome means that has an error's code.
var failures = map[string]string{"apply.outcome": "not applied", "branch.outcome": "no branch made", "export.outcome": "not exported"}

// bad are the types a reader must not miss.
var bad = []string{
	"boundary.blocked", "boundary.failed", "supervisor.lost", "channel.poisoned", "limit.hit", "rescue.failed", "task.stuck", "log.repaired",
	"resume.failed", "apply.recovered", "credential.refused",
}

// at begins a line with its time.
func (l *logText) at(t time.Time, line, color string) {
	t = t.Local()
	if day := t.Format(time.DateOnly); day != l.day {
		l.day = day
		l.t.printf("%s\n", l.a.ui.paint(dim, day))
	}
	l.t.printf("%s  %s\n", l.a.ui.paint(dim, t.Format("15:04:05.000")), l.a.ui.paint(color, line))
}

func (l *logText) emit(e door.Event) error {
	if e.Type == "task.created" {
		if m, ok := e.Body["source"].(map[string]any); ok {
			l.top, _ = m["target"].(string)
		}
	}
	if aboutCalls(e.Type) {
		l.toolEvent(e)
	} else {
		line, color := l.line(e)
		l.at(e.Time, line, color)
	}
	if (e.Type == "call.outcome" || e.Type == "tool.outcome") && l.a.ui.verbose {
		l.tail("out", e.Body["stdout_tail"])
		l.tail("err", e.Body["stderr_tail"])
	}
	return l.t.err
}

func (l *logText) tail(name string, v any) {
	s, _ := v.(string)
	if s == "" {
		return
	}
	for _, line := range strings.Split(strings.TrimRight(s, "\n"), "\n") {
		l.t.printf("              %s %s\n", l.a.ui.paint(dim, name+"|"), clean(line))
	}
}

func (l *logText) line(e door.Event) (string, string) {
	switch e.Type {
	case "call.intent":
		argv := stringList(e.Body["argv"])
		s := "$ " + quoteArgv(argv)
		if slices.Equal(argv, shellArgv) && !l.a.ui.verbose {
			s = "$ shell"
		}
		var extra []string
		if env := stringList(e.Body["env"]); len(env) > 0 {
			extra = append(extra, "with "+clean(strings.Join(env, " ")))
		}
		if dir, ok := e.Body["dir"].(string); ok && l.a.ui.verbose {
			extra = append(extra, "in "+clean(dir))
		}
		if tty, _ := e.Body["tty"].(bool); tty {
			extra = append(extra, "on a terminal")
		}
		if who, _ := e.Actor["id"].(string); who != "" && l.a.ui.verbose {
			extra = append(extra, "by "+clean(who))
		}
		if len(extra) > 0 {
			s += "   (" + strings.Join(extra, ", ") + ")"
		}
		return s, bold
	case "call.outcome":
		return l.outcome(e.Body)
	case "egress.decided":
		return l.crossing(e.Body)
	case "egress.widened":
		return l.widened(e.Body), bold
	case "egress.narrowed":
		return "out: " + clean(text1(e.Body, "to")) + " is allowed no more", ""
	case "egress.ended":
		return l.crossed(e.Body)
	case "check.intent":
		return l.checkBegins(e.Body), ""
	case "check.outcome":
		return l.checkEnds(e.Body)
	}
	what := phrases[e.Type]
	if what == "" {
		what = clean(e.Type)
	}
	color := ""
	if slices.Contains(bad, e.Type) {
		color = red
	}
	if code, _ := e.Body["code"].(string); code != "" && failures[e.Type] != "" {
		what, color = failures[e.Type], red
	}
	body := e.Body
	if !l.a.ui.verbose {
		body = summary(e)
	}
	if f := l.fields(body); f != "" {
		what += ": " + f
	}
	return what, color
}

func (l *logText) outcome(b map[string]any) (string, string) {
	color := green
	s := "  exit " + number(b["exit"])
	if sig := number(b["signal"]); sig != "0" && sig != "" {
		s = "  ended by signal " + sig
	}
	if number(b["exit"]) != "0" {
		color = red
	}
	if ms, ok := b["duration_ms"].(float64); ok {
		s += " after " + time.Duration(ms*float64(time.Millisecond)).String()
	} else if n := number(b["duration_ms"]); n != "" {
		s += " after " + n + " ms"
	}
	for _, k := range []string{"stdin", "stdout", "stderr"} {
		if n, ok := asInt(b[k+"_bytes"]); ok && n > 0 {
			s += fmt.Sprintf(", %s %s", k, bytesText(n))
		}
	}
	if r, ok := b["reason"].(string); ok && r != "" {
		s += ", " + clean(r)
	}
	if r, ok := b["error"].(string); ok && r != "" {
		s += ", error: " + clean(r)
		color = red
	}
	if seen, ok := b["observed"].(bool); ok && !seen && b["error"] == nil {
		s += ", as the worker said"
	}
	return s, color
}

// summary is a body without what a person reads in `show` or with -v.
func summary(e door.Event) map[string]any {
	out := map[string]any{}
	for k, v := range e.Body {
		switch k {
		case "source":
			if m, ok := v.(map[string]any); ok {
				base, _ := m["base"].(string)
				out["source"] = fmt.Sprint(m["strategy"], " of ", m["repo"], " at ", base[:min(12, len(base))])
			}
		case "levels":
			if e.Type == "probe.reported" {
				out["proved"] = vector(v, "proved")
			} else {
				out["promised"] = vector(v, "promised")
			}
		case "results", "rescued":
			var names []any
			list, _ := v.([]any)
			for _, x := range list {
				if m, ok := x.(map[string]any); ok {
					names = append(names, m["name"])
				}
			}
			out[k] = names
		case "report":
			if m, ok := v.(map[string]any); ok {
				checks, _ := m["checks"].([]any)
				out["checks"] = len(checks)
			}
		case "required", "limits", "digest", "version", "matrix", "origin", "probe":
		case "argv":
			if e.Type != "rescue.intent" && e.Type != "fetch.intent" { // a long git command that nobody typed
				out[k] = v
			}
		default:
			if off, ok := v.(bool); ok && !off {
				continue // a thing that is not so
			}
			if n, ok := asInt(v); ok && n == 0 && (e.Type == "work.found" || e.Type == "rescue.done") {
				continue
			}
			out[k] = v
		}
	}
	return out
}

// vector renders one column of a list of levels as "SRC 2 PRC 3 …".
func vector(v any, column string) string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			if n, ok := asInt(m[column]); ok && n > 0 {
				out = append(out, fmt.Sprint(m["axis"], " ", n))
			}
		}
	}
	return strings.Join(out, " ")
}

// plainFields are values that read without their key.
var plainFields = []string{"text", "message", "state", "name", "argv", "error"}

// fields renders a body as key=value in a stable order.
func (l *logText) fields(b map[string]any) string {
	keys := make([]string, 0, len(b))
	for k := range b {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []string
	for _, k := range keys {
		v := l.value(b[k])
		switch {
		case v == "" || v == "[]" || v == "{}" || v == "null":
		case slices.Contains(plainFields, k):
			out = append(out, v)
		default:
			out = append(out, clean(k)+"="+v)
		}
	}
	return strings.Join(out, " ")
}

func (l *logText) value(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		if strings.ContainsAny(x, " \t\n\"'=") {
			return l.short(quoteArgv([]string{x}))
		}
		return l.short(clean(x))
	case int:
		return fmt.Sprint(x)
	case []any:
		if list := stringList(x); len(list) == len(x) {
			return l.short(clean(strings.Join(list, ",")))
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return l.short(clean(string(data)))
}

// short cuts long values unless a person asked for all of it.
func (l *logText) short(s string) string {
	const most = 120
	if l.a.ui.verbose || utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-3]) + "..."
}

func stringList(v any) []string {
	switch list := v.(type) {
	case []string:
		return list
	case []any:
		var out []string
		for _, x := range list {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

func asInt(v any) (int64, bool) {
	switch n := v.(type) {
	case float64:
		return int64(n), true
	case int64:
		return n, true
	case int:
		return int64(n), true
	case json.Number:
		i, err := n.Int64()
		return i, err == nil
	}
	return 0, false
}

func number(v any) string {
	if n, ok := asInt(v); ok {
		return fmt.Sprint(n)
	}
	return ""
}
