package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
)

// TestLogOfCalls reads a record of tool calls as a person would.
func TestLogOfCalls(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	n := 0
	ev := func(typ string, body map[string]any) door.Event {
		n++
		return door.Event{Type: typ, Time: begin.Add(time.Duration(n) * time.Second), Body: body, Actor: map[string]any{"kind": "user", "id": "ann"}}
	}
	intent := func(call, tool string, more map[string]any) door.Event {
		b := map[string]any{"call": call, "tool": tool, "digest": "d-" + call, "verdict": "allow", "rule": "default"}
		for k, v := range more {
			b[k] = v
		}
		return ev("tool.intent", b)
	}
	outcome := func(call string, seen, said map[string]any) door.Event {
		return ev("tool.outcome", map[string]any{"call": call, "tool": "x", "observed": seen, "claimed": said})
	}
	type m = map[string]any
	events := []door.Event{
		ev("task.created", m{"name": "n", "source": m{"target": "/p", "base": "0"}}),
		intent("c1", "shell", m{"argv": []any{"/bin/sh", "-c", "npm test"}}),
		intent("c2", "read_file", m{"paths": []any{"/p/src/a b.go"}, "offset": float64(1), "limit": float64(40)}),
		outcome("c2", m{"duration_ms": float64(1)}, m{"result_bytes": float64(9), "result_sha256": "abc"}),
		outcome("c1", m{"duration_ms": float64(3210), "exit": float64(0), "signal": float64(0)}, m{}),
		intent("c3", "edit_file", m{"paths": []any{"/p/src/a.go"}, "added": float64(3), "removed": float64(1)}),
		outcome("c3", m{"duration_ms": float64(2)}, m{"replacements": float64(1)}),
		intent("c4", "shell", m{"argv": []any{"go", "vet", "./..."}}),
		outcome("c4", m{"duration_ms": float64(70)}, m{"exit": float64(2)}),
		intent("c5", "grep", m{"pattern": "a b", "glob": "*.go", "paths": []any{"/p"}}),
		outcome("c5", m{"duration_ms": float64(2)}, m{"matches": float64(2), "files": float64(1), "truncated": true}),
		intent("c6", "read_file", m{"paths": []any{"/etc/pass\x1b[2J"}}),
		outcome("c6", m{}, m{"failure": m{"code": "not_found", "message": "no\x1b[2J file"}}),
		ev("approval.asked", m{"question": "q1", "call": "c7", "tool": "write_file", "paths": []any{"/p/x"}}),
		ev("approval.answered", m{"question": "q1", "allow": true, "scope": "tool", "door": "control", "reason": "fine"}),
		ev("approval.used", m{"question": "q1", "call": "c7"}),
		intent("c7", "write_file", m{"paths": []any{"/p/x"}, "approval": "q1", "refused": []any{"backend"}}),
		outcome("c7", m{}, m{"created": true}),
		ev("approval.void", m{"question": "q2", "why": "it expired"}),
		ev("tool.refused", m{"call": "c8", "tool": "shell", "argv": []any{"rm", "-rf", "x y"}, "error": "denied by a rule"}),
		intent("c9", "shell", m{"argv": []any{"/bin/sh", "-c", "serve"}, "background": true}),
		outcome("c9", m{"duration_ms": float64(3)}, m{}),
		ev("shell.ended", m{"call": "c9", "shell": "s1", "duration_ms": float64(90000), "observed": m{"exit": float64(143), "signal": float64(15)}, "reason": "killed"}),
		outcome("c0", m{"error": ""}, m{}),
		intent("c10", "shell_output", m{"shell": "s1"}),
	}
	want := `03:04:07  $ npm test   exit 0, 3.2 s
03:04:08  read 'src/a b.go' (lines 1-40)
03:04:11  edit src/a.go  +3 -1   1 replacement (claimed)
03:04:13  $ go vet ./...   exit 2 (claimed), 70 ms
03:04:15  grep 'a b' --glob '*.go'   2 matches in 1 file, cut at a limit (claimed)
03:04:17  read '/etc/pass\x1b[2J'   not_found (claimed): no\x1b[2J file
03:04:19  ? q1 asks: write x
03:04:20    q1 allowed (tool) by ann through control: fine
03:04:22  write x   (a person allowed it: q1, ignored: backend)   new file (claimed)
03:04:24    q2 counts no more: it expired
03:04:25  refused: $ rm -rf 'x y'   denied by a rule
03:04:26  $ serve &
03:04:28  shell s1 ended: $ serve &   ended by signal 15, 1m30s, killed
03:04:29  x
03:04:30  output of s1   no end on record: it runs, or was cut off
`
	render := func(verbose, follow bool) string {
		var out bytes.Buffer
		l := (&app{ui: &ui{verbose: verbose}}).newLogText(&out)
		l.follow = follow
		for _, e := range events {
			if err := l.emit(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.end(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	// Calls are shown with the time they began at, when they ended: in this
	// record the command that began first ended second.
	var got []string
	for line := range strings.Lines(render(false, false)) {
		if len(line) > 13 && line[2] == ':' && !strings.Contains(line, "task created") {
			got = append(got, strings.Replace(line, ".000", "", 1))
		}
	}
	sorted := strings.Split(strings.TrimSuffix(want, "\n"), "\n")
	sorted[0], sorted[1] = sorted[1], sorted[0]
	if s := strings.TrimSuffix(strings.Join(got, ""), "\n"); s != strings.Join(sorted, "\n") {
		t.Errorf("got\n%s\nwant\n%s", s, strings.Join(sorted, "\n"))
	}
	all := render(true, false)
	for _, s := range []string{"call| c1 d-c1\n", "verdict| allow (default) by user through ann\n", "claimed| result 9 bytes abc\n", "q1 used for call c7"} {
		if !strings.Contains(all, s) {
			t.Errorf("-v lacks %q", s)
		}
	}
	live := render(false, true)
	if i, j := strings.Index(live, "$ npm test\n"), strings.Index(live, "  exit 0, 3.2 s\n"); i < 0 || j < i {
		t.Errorf("followed, a command is not shown when it begins:\n%s", live)
	}
}
