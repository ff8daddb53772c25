package approval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

func question(id, tool string) task.Question {
	now := time.Now()
	return task.Question{ID: id, Tool: tool, Digest: "d" + id, Asked: now, Expires: now.Add(time.Minute)}
}

func fine(task.Question) error { return nil }

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		door string
		a    task.Answer
		code task.Code // of Answer
		want bool      // allowed
	}{
		"allow":            {"control", task.Answer{ID: "1", Allow: true}, "", true},
		"deny":             {"control", task.Answer{ID: "1"}, "", false},
		"zero":             {"control", task.Answer{}, task.CodeNotFound, false},
		"the asker's door": {"mcp", task.Answer{ID: "1", Allow: true}, task.CodeDenied, false},
		"no door":          {"", task.Answer{ID: "1", Allow: true}, task.CodeDenied, false},
		"its digest":       {"control", task.Answer{ID: "1", Allow: true, Digest: "d1"}, "", true},
		"another digest":   {"control", task.Answer{ID: "1", Allow: true, Digest: "d2"}, task.CodeConflict, false},
		"another question": {"control", task.Answer{ID: "2", Allow: true}, task.CodeNotFound, false},
		"no such scope":    {"control", task.Answer{ID: "1", Allow: true, Scope: "always"}, task.CodeUsage, false},
		"deny with scope":  {"control", task.Answer{ID: "1", Scope: ScopeTool}, task.CodeUsage, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &Queue{}
				w := q.Ask(question("1", "shell"), "mcp", "b")
				_, err := q.Answer(c.door, c.a, fine)
				if code := task.CodeOf(err); err != nil && code != c.code || err == nil && c.code != "" {
					t.Fatal(err)
				}
				a, werr := w.Wait(context.Background())
				if a.Allow != c.want || (werr == nil) != (err == nil) {
					t.Errorf("%+v, %v", a, werr)
				}
				if len(q.Questions()) != 0 {
					t.Error("it waits on")
				}
			})
		})
	}
}

// TestLateAnswers has the call, or the time of its question, end first.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &Queue{}
		w := q.Ask(question("1", "shell"), "mcp", "b")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the client went away"))
		if a, err := w.Wait(ctx); a.Allow || task.CodeOf(err) != task.CodeCanceled {
			t.Errorf("%+v, %v", a, err)
		}
		if _, err := q.Answer("control", task.Answer{ID: "1", Allow: true}, fine); task.CodeOf(err) != task.CodeNotFound {
			t.Errorf("an answer that outlived its call: %v", err)
		}
		w = q.Ask(question("2", "shell"), "mcp", "b")
		if a, err := w.Wait(context.Background()); a.Allow || task.CodeOf(err) != task.CodeDenied {
			t.Errorf("%+v, %v", a, err)
		}
		if _, err := q.Answer("control", task.Answer{ID: "2", Allow: true, Scope: ScopeTool}, fine); task.CodeOf(err) != task.CodeNotFound || q.Granted("shell", "b") != "" {
			t.Errorf("an answer after its time: %v", err)
		}
		// Its time ends while the answer is being recorded: a grant must not stay.
		w = q.Ask(question("3", "shell"), "mcp", "b")
		_, err := q.Answer("control", task.Answer{ID: "3", Allow: true, Scope: ScopeTool}, func(task.Question) error {
			time.Sleep(2 * time.Minute)
			return nil
		})
		if a, werr := w.Wait(context.Background()); task.CodeOf(err) != task.CodeNotFound || a.Allow || werr == nil || q.Granted("shell", "b") != "" {
			t.Errorf("%v, %+v, %v", err, a, werr)
		}
		// What cannot be recorded does not count, and can be answered again.
		w = q.Ask(question("4", "shell"), "mcp", "b")
		if _, err := q.Answer("control", task.Answer{ID: "4", Allow: true}, func(task.Question) error { return errors.New("disk full") }); err == nil {
			t.Error("an answer that is not on record")
		}
		if _, err := q.Answer("control", task.Answer{ID: "4"}, fine); err != nil {
			t.Error(err)
		}
		if a, err := w.Wait(context.Background()); a.Allow || err != nil {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

func TestGrants(t *testing.T) {
	q := &Queue{}
	give := func(id, tool, bind, scope string) {
		t.Helper()
		w := q.Ask(question(id, tool), "mcp", bind)
		if _, err := q.Answer("control", task.Answer{ID: id, Allow: true, Scope: scope}, fine); err != nil {
			t.Fatal(err)
		}
		if a, err := w.Wait(context.Background()); !a.Allow || err != nil {
			t.Fatal(a, err)
		}
	}
	give("1", "shell", "one", ScopeOnce)
	give("2", "shell", "two", ScopeExact)
	give("3", "write_file", "three", ScopeTool)
	for _, c := range []struct{ tool, bind, want string }{
		{"shell", "one", ""}, {"shell", "two", "2"}, {"shell", "three", ""}, {"write_file", "anything", "3"}, {"edit_file", "two", ""}, {"", "two", ""}, {"shell", "", ""},
	} {
		if got := q.Granted(c.tool, c.bind); got != c.want {
			t.Errorf("%s %s: granted by %q, want %q", c.tool, c.bind, got, c.want)
		}
	}
}

// TestGrantsOfExact: whatever is asked about exactly is allowed alone, also where
// another of the same name exists; a tool that is asked about is the control.
func TestGrantsOfExact(t *testing.T) {
	for _, c := range []struct {
		name  string
		ask   func(*Queue, task.Question) *Waiting
		other string // what another of the same name is granted by
	}{
		{"a tool", func(q *Queue, k task.Question) *Waiting { return q.Ask(k, "egress", "one") }, "1"},
		{"exactly", func(q *Queue, k task.Question) *Waiting { return q.AskExact(k, "egress", "one") }, ""},
	} {
		q := &Queue{}
		w := c.ask(q, question("1", "push at http://a.test"))
		if _, err := q.Answer("control", task.Answer{ID: "1", Allow: true, Scope: ScopeTool}, fine); err != nil {
			t.Fatal(err)
		}
		if a, err := w.Wait(context.Background()); !a.Allow || err != nil {
			t.Fatal(a, err)
		}
		if got := q.Granted("push at http://a.test", "one"); got != "1" {
			t.Errorf("%s: the same again is granted by %q", c.name, got)
		}
		if got := q.Granted("push at http://a.test", "two"); got != c.other {
			t.Errorf("%s: another of the same name is granted by %q, want %q", c.name, got, c.other)
		}
	}
}

// TestOneAnswerCounts answers from many doors at once.
func TestOneAnswerCounts(t *testing.T) {
	t.Parallel()
	for range 50 {
		q := &Queue{}
		w := q.Ask(question("1", "shell"), "mcp", "b")
		var counted atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if _, err := q.Answer(fmt.Sprint("door", i), task.Answer{ID: "1", Allow: i%2 == 0}, fine); err == nil {
					counted.Add(1)
				}
			})
		}
		wg.Wait()
		if _, err := w.Wait(context.Background()); err != nil || counted.Load() != 1 {
			t.Fatalf("%d answers counted, %v", counted.Load(), err)
		}
	}
}

func TestVisible(t *testing.T) {
	for s, want := range map[string]string{
		"plain äöü 日本 🙂":             "plain äöü 日本 🙂",
		"\x1b[2Jrm":                  `\x1b[2Jrm`,
		"a\rb\nc\td\x00":             `a\rb\nc\td\x00`,
		"safe\u202egnp.exe":          `safe\u202egnp.exe`,
		"x\u200b\u2066y\ufeff\u00ad": `x\u200b\u2066y\ufeff\u00ad`,
		"bad\xff\xc3":                `bad\xff\xc3`,
		"\u009b31m":                  `\x9b31m`,
		"tag\U000e0041":              `tag\ue0041`,
		"\u3164filler":               `\u3164filler`,
		"rm\u00a0a\u3000b\u2800c":    `rm\u00a0a\u3000b\u2800c`,
		"x\u034fy\u180bz\ufff9":      `x\u034fy\u180bz\ufff9`,
		"e\u0301":                    "e\u0301",
	} {
		if got := Visible(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		s     string
		most  int
		where string
		want  string
	}{
		{"whole\u202e", 8, "x", `whole\u202e`},
		{"0123456789", 4, "", "0123… [6 more bytes are not shown]"},
		{"0123456789", 4, "`show`", "0123… [6 more bytes are not shown: `show` has all of it]"},
		{"a\u202e\u202e", 5, "", `a\u202e… [3 more bytes are not shown]`},
		{"\xff\xff\xff", 2, "", `\xff\xff… [1 more bytes are not shown]`},
		{"äöü", 0, "", "… [6 more bytes are not shown]"},
	} {
		if got := Cut(c.s, c.most, c.where); got != c.want {
			t.Errorf("%q: %q, want %q", c.s, got, c.want)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"a\n", "a\n", ""},
		{"", "new\n", "--- f\n+++ f\n@@ -1,0 +1,1 @@\n+new\n"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nX\n6\n7\n8\n9\n", "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+X\n 6\n 7\n 8\n"},
		{"a", "a\n", "--- f\n+++ f\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{"a\na\na\n", "a\na\n", "--- f\n+++ f\n@@ -1,3 +1,2 @@\n a\n a\n-a\n"},
		{"x\n", "\x1b[1A\n", "--- f\n+++ f\n@@ -1,1 +1,1 @@\n-x\n+\\x1b[1A\n"},
	} {
		if got := Diff("f", c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %q, want %q", c.a, c.b, got, c.want)
		}
	}
	if got := Diff("f", "", strings.Repeat("x\n", 1000)); strings.Count(got, "\n") > maxDiff+10 || !strings.Contains(got, "600 more lines") {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
}
