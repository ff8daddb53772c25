package cli

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
)

// begun is a tool call of which the record has only the beginning so far.
type begun struct {
	e     door.Event
	shown bool // its line is out already
}

// verbs are what a person would call the tools that are no command.
var verbs = map[string]string{
	"read_file": "read", "write_file": "write", "edit_file": "edit", "notebook_edit": "edit", "list_dir": "ls", "glob": "find", "grep": "grep",
	"shell_output": "output of", "shell_input": "input to", "shell_kill": "kill", "shell_list": "list of shells", "install_dependencies": "install", "publish_artifact": "publish", "fetch": "fetch", "request_access": "ask for",
}

// aboutCalls are the types that toolEvent renders.
func aboutCalls(typ string) bool {
	return strings.HasPrefix(typ, "tool.") || strings.HasPrefix(typ, "approval.") || typ == "shell.ended"
}

// toolEvent renders the events of tool calls: one line per call, when it has
// ended, as a terminal would show the command and then its outcome. Who follows
// the log sees a command when it begins.
func (l *logText) toolEvent(e door.Event) {
	call, _ := e.Body["call"].(string)
	word := func(key string) string {
		v, _ := e.Body[key].(string)
		return clean(v)
	}
	switch e.Type {
	case "approval.asked":
		l.at(e.Time, "? "+word("question")+" asks: "+l.toolLine(e), yellow)
		l.toolMore(e, nil)
	case "approval.answered":
		text, color := "denied", red
		if allow, _ := e.Body["allow"].(bool); allow {
			text, color = "allowed", green
		}
		if s := word("scope"); s != "" {
			text += " (" + s + ")"
		}
		text += " by " + clean(fmt.Sprint(e.Actor["id"])) + l.through(word("door"))
		if s := word("reason"); s != "" {
			text += ": " + s
		}
		l.at(e.Time, "  "+word("question")+" "+text, color)
	case "approval.used":
		if l.a.ui.verbose { // the call's own line names the question
			l.at(e.Time, "  "+word("question")+" used for call "+clean(call), "")
		}
	case "approval.void":
		l.at(e.Time, "  "+word("question")+" counts no more: "+word("why"), red)
	case "shell.ended":
		text, color := l.toolOutcome(e)
		s := "shell " + word("shell") + " ended"
		if cmd := l.shells[call]; cmd != "" {
			s += ": " + cmd
		}
		delete(l.shells, call)
		l.at(e.Time, s+l.gap(text), color)
	case "tool.intent":
		b := &begun{e: e}
		if bg, _ := e.Body["background"].(bool); bg {
			l.shells[call] = l.toolLine(e)
		}
		if l.follow && len(stringList(e.Body["argv"])) > 0 {
			l.at(e.Time, l.toolLine(e), bold)
			b.shown = true
		}
		l.calls[call] = b
	case "tool.refused":
		code, _ := e.Body["error"].(string)
		l.at(e.Time, "refused: "+l.toolLine(e)+l.gap(clean(code)), red)
		l.toolMore(e, nil)
	case "tool.outcome":
		text, color := l.toolOutcome(e)
		b := l.calls[call]
		delete(l.calls, call)
		switch {
		case b == nil: // the record begins in the middle
			l.at(e.Time, clean(fmt.Sprint(e.Body["tool"]))+l.gap(text), color)
		case b.shown:
			l.at(e.Time, "  "+text, color)
		default:
			l.at(b.e.Time, l.toolLine(b.e)+l.gap(text), color)
		}
		if b != nil {
			l.toolMore(b.e, &e)
		}
	}
}

// end shows the calls that the record has no end of.
func (l *logText) end() error {
	for _, b := range slices.SortedFunc(maps.Values(l.calls), func(a, b *begun) int { return a.e.Time.Compare(b.e.Time) }) {
		if !b.shown {
			l.at(b.e.Time, l.toolLine(b.e)+l.gap("no end on record: it runs, or was cut off"), bold)
			l.toolMore(b.e, nil)
		}
	}
	return l.t.err
}

func (l *logText) through(door string) string {
	if door == "" {
		return ""
	}
	return " through " + door
}

func (l *logText) gap(s string) string {
	if s == "" {
		return ""
	}
	return "   " + s
}

// toolLine is a call as a person would have typed it.
func (l *logText) toolLine(e door.Event) string {
	tool, _ := e.Body["tool"].(string)
	argv := stringList(e.Body["argv"])
	var s string
	switch {
	case len(argv) == 3 && strings.HasSuffix(argv[0], "sh") && argv[1] == "-c":
		s = "$ " + clean(argv[2])
	case len(argv) > 0:
		s = "$ " + quoteArgv(argv)
	default:
		if s = verbs[tool]; s == "" {
			s = clean(tool)
		}
		for _, k := range []string{"shell", "pattern"} {
			if v, _ := e.Body[k].(string); v != "" {
				s += " " + quoteArgv([]string{v})
			}
		}
		if v, _ := e.Body["glob"].(string); v != "" {
			s += " --glob " + quoteArgv([]string{v})
		}
		for _, p := range stringList(e.Body["paths"]) {
			if p = l.inside(p); p != "." || e.Body["pattern"] == nil {
				s += " " + quoteArgv([]string{p})
			}
		}
	}
	if at, _ := e.Body["url"].(string); at != "" {
		s += " " + clean(at)
	}
	if wants := stringList(e.Body["wants"]); len(wants) > 0 {
		s += " " + clean(strings.Join(wants, ", "))
		if why, _ := e.Body["reason"].(string); why != "" {
			s += ": " + l.short(clean(why))
		}
	}
	if from, ok := asInt(e.Body["offset"]); ok {
		s += lineRange(from, e.Body["limit"])
	}
	if in, ok := asInt(e.Body["added"]); ok {
		out, _ := asInt(e.Body["removed"])
		s += fmt.Sprintf("  +%d -%d", in, out)
	}
	if bg, _ := e.Body["background"].(bool); bg {
		s += " &"
	}
	var extra []string
	if v, _ := e.Body["approval"].(string); v != "" {
		extra = append(extra, "a person allowed it: "+clean(v))
	}
	if r := stringList(e.Body["refused"]); len(r) > 0 {
		extra = append(extra, "ignored: "+clean(strings.Join(r, " ")))
	}
	if len(extra) > 0 {
		s += "   (" + strings.Join(extra, ", ") + ")"
	}
	return s
}

// lineRange says which lines of a file were asked for.
func lineRange(from int64, limit any) string {
	n, _ := asInt(limit)
	switch {
	case n == 1:
		return fmt.Sprintf(" (line %d)", from)
	case n > 1:
		return fmt.Sprintf(" (lines %d-%d)", from, from+n-1)
	}
	return fmt.Sprintf(" (lines %d-)", from)
}

// inside names a path as one in the task's source would type it.
func (l *logText) inside(p string) string {
	if l.top == "" || !path.IsAbs(p) {
		return p
	}
	if p == l.top {
		return "."
	}
	if rest, ok := strings.CutPrefix(p, l.top+"/"); ok {
		return rest
	}
	return p
}

// toolOutcome says how a call ended. What only the inside said is marked.
func (l *logText) toolOutcome(e door.Event) (string, string) {
	const claimed = " (claimed)"
	seen, _ := e.Body["observed"].(map[string]any)
	said, _ := e.Body["claimed"].(map[string]any)
	var parts []string
	color := ""
	if f, ok := said["failure"].(map[string]any); ok {
		return clean(fmt.Sprint(f["code"])) + claimed + ": " + clean(fmt.Sprint(f["message"])), red
	}
	end, mark := seen, ""
	if seen["exit"] == nil {
		end, mark = said, claimed
	}
	if exit, sig := number(end["exit"]), number(end["signal"]); exit != "" {
		text := "exit " + exit
		if sig != "" && sig != "0" {
			text = "ended by signal " + sig
		}
		if color = green; exit != "0" {
			color = red
		}
		parts = append(parts, text+mark)
	}
	if s := counts(said); s != "" {
		parts = append(parts, s+claimed)
	}
	ms, ok := asInt(seen["duration_ms"])
	if !ok {
		ms, ok = asInt(e.Body["duration_ms"])
	}
	if ok && (ms >= 1000 || end["exit"] != nil) {
		parts = append(parts, spent(time.Duration(ms)*time.Millisecond))
	}
	r, _ := seen["reason"].(string)
	if r == "" {
		r, _ = e.Body["reason"].(string)
	}
	if r != "" {
		parts, color = append(parts, clean(r)), red
	}
	if s, _ := e.Body["error"].(string); s != "" {
		parts, color = append(parts, "error: "+clean(s)), red
	}
	if l.a.ui.verbose {
		for _, k := range []string{"stdout", "stderr"} {
			if n, ok := asInt(seen[k+"_bytes"]); ok && n > 0 {
				parts = append(parts, k+" "+bytesText(n))
			}
		}
	}
	return strings.Join(parts, ", "), color
}

// counts are the numbers of a result.
func counts(said map[string]any) string {
	var parts []string
	for _, c := range [][3]string{{"matches", "match", "matches"}, {"files", "file", "files"}, {"entries", "entry", "entries"}, {"replacements", "replacement", "replacements"}} {
		if n, ok := asInt(said[c[0]]); ok {
			word := c[2]
			if n == 1 {
				word = c[1]
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	s := strings.Join(parts, " in ")
	if t, _ := said["truncated"].(bool); t {
		s += ", cut at a limit"
	}
	if c, _ := said["created"].(bool); c {
		s += "new file"
	}
	return s
}

// spent is a duration as a person says it.
func spent(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// toolMore shows, to who asked for all of it, what binds the call to its record.
func (l *logText) toolMore(e door.Event, out *door.Event) {
	if !l.a.ui.verbose {
		return
	}
	row := func(name string, values ...any) {
		var parts []string
		for _, v := range values {
			if s, _ := v.(string); s != "" {
				parts = append(parts, clean(s))
			}
		}
		if len(parts) > 0 {
			l.t.printf("              %s %s\n", l.a.ui.paint(dim, name+"|"), strings.Join(parts, " "))
		}
	}
	row("call", e.Body["call"], e.Body["digest"])
	rule, _ := e.Body["rule"].(string)
	row("verdict", e.Body["verdict"], "("+rule+")", "by", e.Actor["kind"], "through", e.Actor["id"])
	if dir, _ := e.Body["dir"].(string); dir != "" {
		row("in", dir)
	}
	if out == nil {
		return
	}
	if said, ok := out.Body["claimed"].(map[string]any); ok && said["result_sha256"] != nil {
		row("claimed", "result", number(said["result_bytes"])+" bytes", said["result_sha256"])
	}
	seen, _ := out.Body["observed"].(map[string]any)
	if files, ok := seen["files"].([]any); ok {
		for _, f := range files {
			if m, ok := f.(map[string]any); ok {
				row("observed", m["path"], m["state"], m["sha256"], m["after"])
			}
		}
	}
}
