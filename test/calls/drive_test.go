//go:build linux

package calls

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// driveArg makes this program one that holds a task and makes the calls that its
// standard input asks for, all of them side by side.
const driveArg = "__drive"

// wish is one line to a driver: a call, or the cancellation of one.
type wish struct {
	N      int
	Call   task.ToolCall
	Cancel bool
	By     door.Actor   // of an answer
	Answer *task.Answer // instead of a call
}

// answer is one line of it.
type answer struct {
	N      int
	ID     task.ID          `json:",omitempty"`
	Result *task.ToolResult `json:",omitempty"`
	Err    string           `json:",omitempty"`
	Code   task.Code        `json:",omitempty"`
	Beat   string           `json:",omitempty"`
	Output []byte           `json:",omitempty"`
	Asked  *task.Question   `json:",omitempty"`
}

func drive(e door.Engine, ctx context.Context, id task.ID) error {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(a)
	}
	say(answer{ID: id})
	in := json.NewDecoder(os.Stdin)
	cancels := map[int]context.CancelCauseFunc{}
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		var w wish
		if err := in.Decode(&w); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if w.Cancel {
			cancels[w.N](errors.New("no longer wanted"))
			continue
		}
		if w.Answer != nil {
			_, err := e.Answer(ctx, w.By, *w.Answer)
			a := answer{N: w.N}
			if err != nil {
				a.Code = task.CodeOf(err)
			}
			say(a)
			continue
		}
		cctx, cancel := context.WithCancelCause(ctx)
		cancels[w.N] = cancel
		wg.Go(func() {
			res, err := e.Tool(cctx, string(id), w.Call, door.ToolOptions{
				By:       door.Actor{Door: "test", Role: door.RoleAgent},
				Progress: func(s string) { say(answer{N: w.N, Beat: s}) },
				Output:   func(_ string, p []byte) { say(answer{N: w.N, Output: p}) },
				Asked:    func(q task.Question) { say(answer{N: w.N, Asked: &q}) },
			})
			a := answer{N: w.N, Result: res}
			if err != nil {
				a.Err, a.Code = err.Error(), task.CodeOf(err)
			}
			say(a)
		})
	}
}

// driver is a process that holds a task and calls tools in it.
type driver struct {
	*holder
	mu   sync.Mutex
	enc  *json.Encoder
	next int
	wait map[int]chan answer
	seen map[int]chan []byte // output, where somebody wants it

	asked chan task.Question
}

func drives(t *testing.T, id *harness.Identity, repo string) *driver {
	t.Helper()
	h := starts(t, id, repo, driveArg, "")
	d := &driver{holder: h, enc: json.NewEncoder(h.in), wait: map[int]chan answer{}, seen: map[int]chan []byte{}, asked: make(chan task.Question, 100)}
	go func() {
		for {
			var a answer
			if h.out.Decode(&a) != nil {
				return
			}
			if a.Beat != "" {
				continue
			}
			if a.Asked != nil {
				d.asked <- *a.Asked
				continue
			}
			d.mu.Lock()
			to, seen := d.wait[a.N], d.seen[a.N]
			d.mu.Unlock()
			if a.Output != nil {
				if seen != nil {
					seen <- a.Output
				}
				continue
			}
			if to != nil {
				to <- a
			}
		}
	}()
	return d
}

// begin starts a call and returns its number and where its answer comes.
func (d *driver) begin(tool string, args any, output chan []byte) (int, <-chan answer) {
	b, err := json.Marshal(args)
	if err != nil {
		d.t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	c := make(chan answer, 1)
	d.wait[d.next] = c
	if output != nil {
		d.seen[d.next] = output
	}
	if err := d.enc.Encode(wish{N: d.next, Call: task.ToolCall{Tool: tool, Args: b}}); err != nil {
		d.t.Error(err)
	}
	return d.next, c
}

func (d *driver) cancel(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.enc.Encode(wish{N: n, Cancel: true}); err != nil {
		d.t.Error(err)
	}
}

// answer answers a question as whoever by is; it returns the error's code.
func (d *driver) answer(by door.Actor, a task.Answer) task.Code {
	d.mu.Lock()
	d.next++
	c := make(chan answer, 1)
	d.wait[d.next] = c
	err := d.enc.Encode(wish{N: d.next, By: by, Answer: &a})
	d.mu.Unlock()
	if err != nil {
		d.t.Error(err)
	}
	return (<-c).Code
}

// call makes one call and waits for its answer.
func (d *driver) call(tool string, args any) (*task.ToolResult, string) {
	_, c := d.begin(tool, args, nil)
	a := <-c
	return a.Result, a.Err
}

// end lets go of the task.
func (d *driver) end() {
	d.t.Helper()
	_ = d.in.Close()
	if err := d.cmd.Wait(); err != nil {
		d.t.Error(err)
	}
}
