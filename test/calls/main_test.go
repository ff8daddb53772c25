//go:build linux

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/wire"
	"github.com/caisson-dev/caisson/test/harness"
)

// holdArg makes this program one that holds a task on the folder it stands in.
const holdArg = "__hold"

func TestMain(m *testing.M) {
	wire.PlayRole()
	if len(os.Args) == 3 && (os.Args[1] == holdArg || os.Args[1] == driveArg) {
		os.Exit(hold(os.Args[1], os.Args[2]))
	}
	harness.Beside(4)
	os.Exit(harness.Main(m))
}

// held is what a holder says.
type held struct {
	ID     task.ID           `json:",omitempty"`
	State  task.State        `json:",omitempty"`
	Err    string            `json:",omitempty"`
	Report *task.CloseReport `json:",omitempty"`
}

var errUse = errors.New("what the task was held for failed")

// hold opens a task, says its id, and ends it when its standard input ends.
func hold(what, how string) int {
	say := json.NewEncoder(os.Stdout)
	ctx := context.Background()
	e, closeAll, err := wire.Engine(ctx, false, func(s string) { fmt.Fprintln(os.Stderr, s) })
	if err != nil {
		_ = say.Encode(held{Err: err.Error()})
		return 1
	}
	defer closeAll()
	rep, err := e.Hold(ctx, task.Request{Person: true, Keep: task.KeepAuto, Asking: task.Asking{Rules: []task.ToolRule{{Verdict: task.VerdictAsk, Tool: "shell", Pattern: "*ask-me*"}}}}, nil, func(ctx context.Context, id task.ID) error {
		if what == driveArg {
			return drive(e, ctx, id)
		}
		_ = say.Encode(held{ID: id})
		over := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			close(over)
		}()
		select {
		case <-over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if how == "fail" {
			return errUse
		}
		return nil
	})
	last := held{Report: rep}
	if err != nil {
		last.Err = err.Error()
	}
	_ = say.Encode(last)
	return 0
}

// self is this program where every identity can start it.
var self = sync.OnceValues(func() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	out := filepath.Join(filepath.Dir(harness.Bin()), "calls.test")
	return out, exec.Command("cp", exe, out).Run()
})

// holder is a process that holds a task.
type holder struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
	id  string
}

func holds(t *testing.T, id *harness.Identity, repo, how string) *holder {
	t.Helper()
	return starts(t, id, repo, holdArg, how)
}

func starts(t *testing.T, id *harness.Identity, repo, what, how string) *holder {
	t.Helper()
	bin, err := self()
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{t: t, cmd: id.Command(context.Background(), repo, bin, what, how)}
	h.cmd.Stderr = os.Stderr
	h.in, err = h.cmd.StdinPipe()
	out, oerr := h.cmd.StdoutPipe()
	if err = errors.Join(err, oerr, h.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.cmd.Process.Kill() })
	h.out = json.NewDecoder(out)
	h.id = string(h.next().ID)
	if h.id == "" {
		t.Fatal("no task was opened")
	}
	return h
}

// next is the next thing that the holder says.
func (h *holder) next() (w held) {
	h.t.Helper()
	if err := h.out.Decode(&w); err != nil {
		h.t.Fatal(err)
	}
	if w.ID == "" && w.Report == nil {
		h.t.Fatalf("%+v", w)
	}
	return w
}

// end lets go of the task.
func (h *holder) end() held {
	h.t.Helper()
	_ = h.in.Close()
	w := h.next()
	if err := h.cmd.Wait(); err != nil {
		h.t.Fatal(err)
	}
	return w
}
