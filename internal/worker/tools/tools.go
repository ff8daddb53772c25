//go:build linux

package tools

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Call is one call of a tool. A tool gives back what it opened, but for Out.
type Call struct {
	Root *Root
	// In is a descriptor that came with the call, or -1: content for write_file
	// that does not pass through the arguments. It stays the caller's.
	In int
	// Out is a descriptor that goes back with the result, or -1: the file of a
	// read_file whose result does not hold all of it. Run's caller closes it.
	Out int
	// Found, where set, is told what a search found since it was told last: a JSON
	// object of the tool's result type with these files alone, FoundMost bytes at
	// most. False ends it.
	Found func(part json.RawMessage) bool
}

// tool does one call. args is a pointer to the type that the contract names.
// What it returns becomes JSON; a failure says that nothing was done.
type tool struct {
	run func(ctx context.Context, c *Call, args any) (any, *contract.Failure)
	// slow tools walk trees. They have places of their own, so that they never
	// make a small read wait.
	slow bool
}

// all are the tools that the worker itself does.
var all = map[string]tool{
	contract.ReadFile:     {run: readFile},
	contract.WriteFile:    {run: writeFile},
	contract.EditFile:     {run: editFile},
	contract.NotebookEdit: {run: notebookEdit},
	contract.ListDir:      {run: listDir, slow: true},
	contract.Glob:         {run: glob, slow: true},
	contract.Grep:         {run: grep, slow: true},
}

// Slow reports whether name is a tool that may take long by its nature.
func Slow(name string) bool { return all[name].slow }

// Run does one call. raw is one JSON object of arguments, which is decoded as
// strictly here as on the host. The result is one JSON object. A panic is
// caught and told as Internal: a fault in one call never ends the worker.
func Run(ctx context.Context, c *Call, name string, raw []byte) (result json.RawMessage, failure *contract.Failure) {
	defer func() {
		if p := recover(); p != nil {
			result, failure = nil, contract.Fail(contract.Internal, "a fault of the tool: %.200s", fmt.Sprint(p))
		}
		if failure != nil && c.Out >= 0 {
			_ = unix.Close(c.Out)
			c.Out = -1
		}
	}()
	t, ok := all[name]
	if !ok {
		return nil, contract.Fail(contract.BadArgs, "the worker has no tool %.60q", name)
	}
	args, _, err := contract.Decode(name, raw)
	if err != nil {
		if f, ok := err.(*contract.Failure); ok {
			return nil, f
		}
		return nil, contract.Fail(contract.Internal, "%v", err)
	}
	if f := ended(ctx); f != nil {
		return nil, f
	}
	v, f := t.run(ctx, c, args)
	if f != nil {
		return nil, f
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, contract.Fail(contract.Internal, "the result cannot be written: %v", err)
	}
	return b, nil
}

// ended says why ctx ended, nil while it has not. Tools ask between pieces of
// work that take about a millisecond.
func ended(ctx context.Context) *contract.Failure {
	switch ctx.Err() {
	case nil:
		return nil
	case context.DeadlineExceeded:
		return contract.Fail(contract.Limit, "the tool took too long; ask for less")
	}
	return contract.Fail(contract.Canceled, "the call was canceled")
}
