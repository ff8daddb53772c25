package worker

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// maxReport bounds what a builtin may print.
const maxReport = 4 << 20

// Builtin runs one of the worker's own programs exactly as a tool would run,
// with stdin as its input, and returns its output: a claim of the inside.
// It takes as long as ctx allows, at most a minute.
func (c *Client) Builtin(ctx context.Context, name string, stdin []byte) ([]byte, error) {
	const op = "worker.builtin"
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	var ends [3][2]*os.File
	defer func() {
		for _, e := range ends {
			for _, f := range e {
				if f != nil {
					_ = f.Close()
				}
			}
		}
	}()
	for i := range ends {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, task.Errorf(task.CodeInternal, op, "pipes: %w", err)
		}
		ends[i] = [2]*os.File{r, w}
	}
	in, out, errs := ends[0], ends[1], ends[2]
	call, err := c.Exec(ctx, Command{Builtin: name}, []*os.File{in[0], out[1], errs[1]})
	for _, f := range []*os.File{in[0], out[1], errs[1]} {
		_ = f.Close()
	}
	if err != nil {
		return nil, err
	}
	type result struct {
		b   []byte
		err error
	}
	outc, errc := make(chan result, 1), make(chan result, 1)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = in[1].Write(stdin)
		_ = in[1].Close()
	}()
	drain := func(f *os.File, c chan result) {
		b, err := io.ReadAll(io.LimitReader(f, maxReport))
		c <- result{b, err}
	}
	go drain(out[0], outc)
	go drain(errs[0], errc)
	o, err := call.Wait(ctx)
	if err != nil {
		kill, done := detached(ctx, 15*time.Second)
		defer done()
		_ = call.Cancel(kill, 0) // not confirmed: the error below already ends the boundary
	}
	// The reads end with the program's ends of the pipes; deadlines make sure.
	for _, f := range []*os.File{in[1], out[0], errs[0]} {
		_ = f.SetDeadline(time.Now().Add(5 * time.Second))
	}
	<-written
	got, complaint := <-outc, <-errc
	switch {
	case err != nil:
		return nil, err
	case o.Exit != 0:
		return nil, task.Errorf(task.CodeInternal, op, "builtin %s ended with status %d: %s", name, o.Exit, clean(string(complaint.b)))
	case got.err != nil:
		return nil, task.Errorf(task.CodeChannel, op, "output of builtin %s: %w", name, got.err)
	}
	return got.b, nil
}
