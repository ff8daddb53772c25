package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
)

// aboutEgress says whether an event is about something that left a task, or
// wanted to.
func aboutEgress(e door.Event) bool {
	tool, _ := e.Body["tool"].(string)
	call, _ := e.Body["call"].(string)
	return strings.HasPrefix(e.Type, "egress.") || strings.HasPrefix(e.Type, "credential.") || strings.HasPrefix(e.Type, "approval.") && (strings.HasPrefix(tool, "connect to ") || strings.Contains(call, ":") && e.Body["question"] != nil)
}

// crossing renders what was asked for and what was said.
func (l *logText) crossing(b map[string]any) (string, string) {
	to := text1(b, "to")
	switch method, path := text1(b, "method"), text1(b, "path"); {
	case text1(b, "proto") == "dns" && to != "":
		to = "name " + to
	case to == "" && text1(b, "said") != "":
		to = text1(b, "said")
	case to == "":
		to = "other destinations"
	case path != "":
		scheme := " http://"
		if text1(b, "proto") == "https" {
			scheme = " https://"
		}
		to = method + scheme + to + path
	}
	s := "out " + l.number(b) + clean(to)
	if p := text1(b, "proto"); p != "dns" && p != "any" && p != "" {
		s += " by " + clean(p)
	}
	if act := text1(b, "act"); act != "" {
		s += ", a " + clean(act)
	}
	rule := clean(text1(b, "rule"))
	color := ""
	switch text1(b, "verdict") {
	case "allow":
		s += "   (" + rule + ")"
	case "ask":
		s += "   (a person is to be asked: " + rule + ")"
	default:
		color = yellow
		s += " refused: " + rule
	}
	if n, ok := asInt(b["again"]); ok && n > 0 {
		s += fmt.Sprintf(", and %d times more within %ss", n, number(b["within_s"]))
	}
	return s, color
}

// crossed renders what became of it.
func (l *logText) crossed(b map[string]any) (string, string) {
	up, _ := asInt(b["up"])
	down, _ := asInt(b["down"])
	ms, _ := asInt(b["ms"])
	s := fmt.Sprintf("  %s%s out, %s in, %s", l.number(b), bytesText(up), bytesText(down), time.Duration(ms)*time.Millisecond)
	if at := text1(b, "address"); at != "" {
		s += ", " + clean(at)
	}
	color := ""
	if r := text1(b, "reason"); r != "" {
		s += ", " + clean(r)
		color = yellow
		if t := text1(b, "text"); t != "" {
			s += ": " + l.short(clean(t))
		}
	}
	return s, color
}

// number ties the end of a connection to its beginning.
func (l *logText) number(b map[string]any) string {
	if n := number(b["crossing"]); n != "" {
		return "#" + n + " "
	}
	return ""
}

func text1(b map[string]any, key string) string {
	s, _ := b[key].(string)
	return s
}

// widened renders that a destination was added to an open task.
func (l *logText) widened(b map[string]any) string {
	s := "out: " + clean(text1(b, "to")) + " is allowed until the task ends, by " + clean(text1(b, "by"))
	if q := text1(b, "question"); q != "" {
		s += ", as a model asked (" + clean(q) + ")"
	}
	if r := text1(b, "reason"); r != "" {
		s += ": " + l.short(clean(r))
	}
	return s
}
