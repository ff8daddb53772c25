//go:build linux

package worker_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// inMemory returns a file in memory with that content.
func inMemory(t *testing.T, content string) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.Write(fd, []byte(content)); err != nil {
		t.Fatal(err)
	}
	return fd
}

// A worker that answers a tool with anything but what a tool may answer is given
// up, and the host neither waits for what it sent nor keeps it open.
func TestToolForgedReplies(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	good := json.RawMessage(`{"a":1}`)
	for name, c := range map[string]struct {
		body frame.ReplyBody
		fds  []int
		ok   bool // the control
		code string
	}{
		"honest":               {frame.ReplyBody{OK: true, Result: good}, nil, true, ""},
		"honest, long":         {frame.ReplyBody{OK: true, Size: 7}, []int{inMemory(t, `{"a":1}`)}, true, ""},
		"honest, with a file":  {frame.ReplyBody{OK: true, Result: good, Out: true}, []int{inMemory(t, "x")}, true, ""},
		"honest refusal":       {frame.ReplyBody{Code: "not_found", Msg: "x"}, nil, true, "not_found"},
		"a code of its own":    {frame.ReplyBody{Code: "root", Msg: "x\x1b[0m"}, nil, true, "internal"},
		"no result":            {frame.ReplyBody{OK: true}, nil, false, ""},
		"two results":          {frame.ReplyBody{OK: true, Result: good, Size: 7}, []int{inMemory(t, `{"a":1}`)}, false, ""},
		"a list":               {frame.ReplyBody{OK: true, Result: json.RawMessage(`[1]`)}, nil, false, ""},
		"no JSON":              {frame.ReplyBody{OK: true, Size: 3}, []int{inMemory(t, `{"a`)}, false, ""},
		"shorter than said":    {frame.ReplyBody{OK: true, Size: 70}, []int{inMemory(t, `{"a":1}`)}, false, ""},
		"longer than may be":   {frame.ReplyBody{OK: true, Size: 1 << 40}, []int{inMemory(t, `{"a":1}`)}, false, ""},
		"negative":             {frame.ReplyBody{OK: true, Size: -1}, []int{inMemory(t, `{"a":1}`)}, false, ""},
		"a pipe as result":     {frame.ReplyBody{OK: true, Size: 7}, []int{pipe[0]}, false, ""},
		"a pipe as file":       {frame.ReplyBody{OK: true, Result: good, Out: true}, []int{pipe[0]}, false, ""},
		"a folder as file":     {frame.ReplyBody{OK: true, Result: good, Out: true}, []int{int(dir.Fd())}, false, ""},
		"a descriptor more":    {frame.ReplyBody{OK: true, Result: good}, []int{inMemory(t, "x")}, false, ""},
		"a descriptor less":    {frame.ReplyBody{OK: true, Result: good, Out: true}, nil, false, ""},
		"three of them":        {frame.ReplyBody{OK: true, Size: 7, Out: true}, []int{inMemory(t, `{"a":1}`), inMemory(t, "x"), inMemory(t, "x")}, false, ""},
		"a refusal with one":   {frame.ReplyBody{Code: "limit"}, []int{inMemory(t, "x")}, false, ""},
		"a refusal and result": {frame.ReplyBody{Code: "limit", Result: good}, nil, false, ""},
		"an event's word":      {frame.ReplyBody{OK: true, Result: good, Event: frame.EventExit}, nil, false, ""},
	} {
		f := playWorker(t)
		type got struct {
			r   worker.ToolReply
			err error
		}
		done := make(chan got, 1)
		go func() {
			r, err := f.client.Tool(deadline(t, 60*time.Second), contract.ReadFile, []byte(`{"path":"x"}`), nil)
			done <- got{r, err}
		}()
		req := f.next()
		fr := reply(req, c.body)
		fr.FDs = c.fds
		if err := f.conn.Write(fr); err != nil {
			t.Fatal(err)
		}
		g := <-done
		g.r.Close()
		switch {
		case req.Kind != frame.Tool:
			t.Errorf("%s: a frame of kind %d", name, req.Kind)
		case !c.ok:
			if task.CodeOf(g.err) != task.CodeOutcomeUnknown || f.client.Err() == nil {
				t.Errorf("%s: %+v %v, channel %v", name, g.r, g.err, f.client.Err())
			}
		case g.err != nil || f.client.Err() != nil:
			t.Errorf("%s: %v, channel %v", name, g.err, f.client.Err())
		case c.code != "" && (g.r.Failure == nil || g.r.Failure.Code != c.code || g.r.Result != nil):
			t.Errorf("%s: %+v", name, g.r)
		case c.code == "" && string(g.r.Result) != `{"a":1}`:
			t.Errorf("%s: %s", name, g.r.Result)
		}
	}
}

// A worker that says what it found in any other way than a tool may is given up.
func TestToolForgedFound(t *testing.T) {
	good := json.RawMessage(`{"path":"/x","files":[],"matches":0,"searched":1,"skipped":{}}`)
	event := frame.ReplyBody{Event: frame.EventFound, Result: good}
	for name, c := range map[string]struct {
		tool  string
		deaf  bool // nobody asked
		body  frame.ReplyBody
		fds   []int
		times int
		ok    bool // the control
	}{
		"honest":             {contract.Grep, false, event, nil, 1, true},
		"as often as it may": {contract.Grep, false, event, nil, frame.MaxFound, true},
		"more often":         {contract.Grep, false, event, nil, frame.MaxFound + 1, false},
		"nobody asked":       {contract.Grep, true, event, nil, 1, false},
		"another type":       {contract.Grep, false, frame.ReplyBody{Event: frame.EventFound, Result: json.RawMessage(`{"root":true}`)}, nil, 1, false},
		"of another tool":    {contract.ReadFile, false, event, nil, 1, false},
		"a list":             {contract.Grep, false, frame.ReplyBody{Event: frame.EventFound, Result: json.RawMessage(`[]`)}, nil, 1, false},
		"nothing":            {contract.Grep, false, frame.ReplyBody{Event: frame.EventFound}, nil, 1, false},
		"too long":           {contract.Grep, false, frame.ReplyBody{Event: frame.EventFound, Result: json.RawMessage(`{"path":"` + strings.Repeat("x", frame.ToolInline) + `"}`)}, nil, 1, false},
		"with a descriptor":  {contract.Grep, false, event, []int{inMemory(t, "x")}, 1, false},
		"as a reply":         {contract.Grep, false, frame.ReplyBody{OK: true, Event: frame.EventFound, Result: good}, nil, 1, false},
		"an exit":            {contract.Grep, false, frame.ReplyBody{Event: frame.EventExit}, nil, 1, false},
	} {
		f := playWorker(t)
		heard := 0
		var found func(json.RawMessage)
		if !c.deaf {
			found = func(json.RawMessage) { heard++ }
		}
		done := make(chan error, 1)
		go func() {
			_, err := f.client.ToolFound(deadline(t, 60*time.Second), c.tool, []byte(`{"pattern":"x"}`), nil, found)
			done <- err
		}()
		req := f.next()
		for range c.times {
			fr := reply(req, c.body)
			fr.Kind, fr.FDs = frame.Event, c.fds
			_ = f.conn.Write(fr)
		}
		_ = f.conn.Write(reply(req, frame.ReplyBody{OK: true, Result: good}))
		switch err := <-done; {
		case !c.ok:
			if task.CodeOf(err) != task.CodeOutcomeUnknown || f.client.Err() == nil {
				t.Errorf("%s: %v, channel %v", name, err, f.client.Err())
			}
		case err != nil || f.client.Err() != nil || heard != c.times:
			t.Errorf("%s: heard %d times, %v, channel %v", name, heard, err, f.client.Err())
		}
	}
}

// A result where none was asked for, and a tool's answer twice, are violations.
func TestToolAnswersOutOfPlace(t *testing.T) {
	f := playWorker(t)
	r, errs := f.exec()
	if err := f.conn.Write(reply(r, frame.ReplyBody{OK: true, PID: 5, Result: json.RawMessage(`{}`)})); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; task.CodeOf(err) != task.CodeOutcomeUnknown {
		t.Errorf("a program's start with a result: %v", err)
	}
	f = playWorker(t)
	go func() {
		_, _ = f.client.Tool(context.Background(), contract.ReadFile, nil, nil)
	}()
	req := f.next()
	for range 2 {
		_ = f.conn.Write(reply(req, frame.ReplyBody{OK: true, Result: json.RawMessage(`{}`)}))
	}
	select {
	case <-f.poison:
	case <-time.After(60 * time.Second):
		t.Error("a second answer was taken")
	}
}

// A canceled tool is asked to stop and its answer is waited for; a late one is
// no violation.
func TestToolStop(t *testing.T) {
	f := playWorker(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan worker.ToolReply, 1)
	go func() {
		r, err := f.client.Tool(ctx, contract.Grep, []byte(`{"pattern":"x"}`), nil)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	req := f.next()
	cancel()
	if stop := f.next(); stop.Kind != frame.Stop || stop.Op != req.Op || len(stop.Body) != 0 {
		t.Errorf("%+v", stop)
	}
	if err := f.conn.Write(reply(req, frame.ReplyBody{Code: string(contract.Canceled), Msg: "x"})); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.Failure == nil || r.Failure.Code != string(contract.Canceled) {
		t.Errorf("%+v", r)
	}
	if f.client.Err() != nil {
		t.Error(f.client.Err())
	}
}
