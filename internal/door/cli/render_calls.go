package cli

import (
	"fmt"
	"strings"

	"github.com/caisson-dev/caisson/internal/door"
)

// toolIntent renders a tool call as a person would have typed it: a command
// where it is one, else the tool and what it is about.
func (l *logText) toolIntent(e door.Event) string {
	tool, _ := e.Body["tool"].(string)
	argv := stringList(e.Body["argv"])
	var s string
	switch {
	case len(argv) == 3 && strings.HasSuffix(argv[0], "sh") && argv[1] == "-c":
		s = "$ " + clean(argv[2])
	case len(argv) > 0:
		s = "$ " + quoteArgv(argv)
	default:
		s = "> " + clean(tool)
		for _, p := range stringList(e.Body["paths"]) {
			s += " " + quoteArgv([]string{p})
		}
		for _, k := range []string{"pattern", "glob", "shell"} {
			if v, _ := e.Body[k].(string); v != "" {
				s += " " + k + "=" + quoteArgv([]string{v})
			}
		}
	}
	if bg, _ := e.Body["background"].(bool); bg {
		s += " &"
	}
	var extra []string
	if v, _ := e.Body["approval"].(string); v != "" {
		extra = append(extra, "allowed by "+clean(v))
	}
	if r := stringList(e.Body["refused"]); len(r) > 0 {
		extra = append(extra, "ignored: "+clean(strings.Join(r, " ")))
	}
	if l.a.ui.verbose {
		if dir, _ := e.Body["dir"].(string); dir != "" {
			extra = append(extra, "in "+clean(dir))
		}
		extra = append(extra, "by "+clean(fmt.Sprint(e.Actor["kind"]))+" through "+clean(fmt.Sprint(e.Actor["id"])))
	}
	if len(extra) > 0 {
		s += "   (" + strings.Join(extra, ", ") + ")"
	}
	return s
}

// toolOutcome renders how a tool call ended; what only the inside said is marked.
func (l *logText) toolOutcome(b map[string]any) (string, string) {
	seen, _ := b["observed"].(map[string]any)
	said, _ := b["claimed"].(map[string]any)
	flat := map[string]any{"duration_ms": seen["duration_ms"], "reason": seen["reason"], "error": b["error"], "stdout_bytes": seen["stdout_bytes"], "stderr_bytes": seen["stderr_bytes"]}
	if f, ok := said["failure"].(map[string]any); ok {
		return "  " + clean(fmt.Sprint(f["code"])) + ": " + clean(fmt.Sprint(f["message"])), red
	}
	switch {
	case seen["exit"] != nil:
		flat["exit"], flat["signal"], flat["observed"] = seen["exit"], seen["signal"], true
	case said["exit"] != nil:
		flat["exit"], flat["signal"], flat["observed"] = said["exit"], said["signal"], false
	default:
		if e, _ := b["error"].(string); e != "" {
			return "  error: " + clean(e), red
		}
		s := "  done"
		if n := number(seen["duration_ms"]); n != "" {
			s += " after " + n + " ms"
		}
		if n, ok := asInt(said["result_bytes"]); ok {
			s += ", " + bytesText(n)
		}
		return s, green
	}
	return l.outcome(flat)
}
