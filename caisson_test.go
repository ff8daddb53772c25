//go:build linux

package caisson_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson"
)

// TestCalls has a program call tools side by side, cancel one, publish a file
// and end the task.
func TestCalls(t *testing.T) {
	tk, err := caisson.Open(t.Context(), caisson.Options{Dir: project, Keep: "never", Deny: []string{"shell_kill"}})
	if err != nil {
		t.Fatal(err)
	}
	defer tk.Close()
	if tools, err := tk.Tools(t.Context()); err != nil || len(tools) < 10 || !json.Valid(tools[0].Input) {
		t.Errorf("%d tools, %v", len(tools), err)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			res, err := tk.Call(t.Context(), "read_file", json.RawMessage(`{"path":"file.txt"}`))
			if err != nil || !strings.Contains(string(res.Claimed.Result), `one\n`) {
				t.Error(res, err)
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	began := make(chan struct{})
	var once sync.Once
	wg.Go(func() {
		<-began
		cancel(errors.New("enough"))
	})
	if _, err := tk.Stream(ctx, "shell", map[string]any{"command": "echo up; sleep 1000"}, func(string, []byte) { once.Do(func() { close(began) }) }); caisson.CodeOf(err) != "canceled" {
		t.Errorf("canceled: %v", err)
	}
	wg.Wait()
	if _, err := tk.Call(t.Context(), "shell_kill", map[string]any{"shell": "s1"}); caisson.CodeOf(err) != "denied" {
		t.Errorf("denied: %v", err)
	}
	if res, err := tk.Call(t.Context(), "read_file", map[string]any{"path": "nothing"}); err != nil || res.Claimed.Failure == nil || res.Claimed.Failure.Code != "not_found" {
		t.Errorf("a tool that did nothing: %+v, %v", res, err)
	}
	if _, err := tk.Call(t.Context(), "read_file", map[string]any{}); caisson.CodeOf(err) != "usage" {
		t.Errorf("no arguments: %v", err)
	}
	// A file that no result can hold, one that does, and none.
	if _, err := tk.Call(t.Context(), "shell", map[string]any{"command": "yes 0123456789abcde | head -c 100000000 >large"}); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]int64{"large": 100_000_000, "file.txt": 4} {
		r, _, err := tk.Open(t.Context(), path)
		if err != nil {
			t.Fatal(path, err)
		}
		n, err := io.Copy(io.Discard, r)
		if cerr := r.Close(); n != want || err != nil || cerr != nil {
			t.Errorf("%s: %d bytes of %d, %v, %v", path, n, want, err, cerr)
		}
	}
	if r, res, err := tk.Open(t.Context(), "nothing"); r != nil || err != nil || res.Claimed.Failure == nil || res.Claimed.Failure.Code != "not_found" {
		t.Errorf("a file that is not there: %+v, %v", res, err)
	}
	// What a search tells before it ends, if it takes that long, has the result's form.
	if res, err := tk.Stream(t.Context(), "grep", map[string]any{"pattern": "one"}, func(stream string, p []byte) {
		if stream != "found" || !json.Valid(p) {
			t.Errorf("a search told of %s: %s", stream, p)
		}
	}); err != nil || !strings.Contains(string(res.Claimed.Result), "file.txt") {
		t.Errorf("grep: %+v, %v", res, err)
	}
	if _, err := tk.Call(t.Context(), "shell", map[string]any{"command": "echo report >/run/boundary/out/r.txt"}); err != nil {
		t.Error(err)
	}
	if _, err := tk.Call(t.Context(), "publish_artifact", map[string]any{"path": "r.txt"}); err != nil {
		t.Error(err)
	}
	arts, err := tk.Artifacts(t.Context())
	if err != nil || len(arts) != 1 {
		t.Fatal(arts, err)
	}
	rep, err := tk.Close()
	if err != nil || rep == nil {
		t.Fatal(rep, err)
	}
	if b, err := os.ReadFile(arts[0].Path); err != nil || string(b) != "report\n" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := tk.Call(t.Context(), "shell", map[string]any{"command": "true"}); err == nil {
		t.Error("a call in a task that ended")
	}
	if again, err := tk.Close(); again != rep || err != nil {
		t.Errorf("closed again: %v, %v", again, err)
	}
}

// TestOpenFails says why there is no task.
func TestOpenFails(t *testing.T) {
	for name, o := range map[string]caisson.Options{
		"no repository": {Dir: "/nonexistent"}, "no such tool": {Dir: project, Deny: []string{"shel"}}, "no rule": {Dir: project, Ask: []string{":x"}}, "keep": {Dir: project, Keep: "yes"},
		"source": {Dir: project, Source: "zip"},
	} {
		if tk, err := caisson.Open(t.Context(), o); err == nil {
			tk.Close()
			t.Errorf("%s: it was opened", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if tk, err := caisson.Open(ctx, caisson.Options{Dir: project}); err == nil {
		tk.Close()
		t.Error("canceled, and it was opened")
	}
}
