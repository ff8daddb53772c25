package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// RemoveArg is the first argument of a program that removes what is left of a
// task's files; the second is the task. Descriptor 3 is the task's lock.
const RemoveArg = "__remove"

const lockFD = 3

// handTime bounds the wait until the process says that it owns the task.
const handTime = 20 * time.Second

// remove starts that process and returns once the task is its own.
func (h *house) remove(ctx context.Context, id task.ID, lock *os.File, o boundary.RemoveOrder) error {
	fail := func(err error) error {
		return task.Errorf(task.CodeInternal, "wire.remove", "the process cannot be started: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, handTime, sys.ErrDeadline)
	defer cancel()
	cmd, in, out, err := h.resident("/", []*os.File{lock}, RemoveArg, string(id))
	if err != nil {
		return fail(err)
	}
	// Not while it may own the task: only one of the two goes on with it.
	give := func(err error) error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err = json.NewEncoder(in).Encode(o)
	if cerr := in.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return give(err)
	}
	var w word
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &w)
	}
	switch {
	case !stop(): // it was killed, or is being killed
		return give(context.Cause(ctx))
	case err != nil:
		return give(err)
	case w.Error != nil:
		return give(w.Error.Err())
	case w.ID != id:
		return give(fmt.Errorf("it answered for task %q", w.ID))
	}
	_ = cmd.Process.Release() // it stays; nobody waits for it
	return nil
}

// Remove is the program of that process. It returns the exit status.
func Remove(arg string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE) // it outlives the terminal
	out := json.NewEncoder(os.Stdout)
	id, ok := task.ParseID(arg)
	if !ok {
		return tellError(out, task.Errorf(task.CodeUsage, "remove", "%q is not a task id", arg))
	}
	var o boundary.RemoveOrder
	if err := takeOrder(bufio.NewReader(os.Stdin), "remove", &o); err != nil {
		return tellError(out, err)
	}
	ctx := context.Background()
	h, err := openResident(ctx)
	if err != nil {
		return tellError(out, err)
	}
	defer h.close()
	lock, err := sys.AdoptLock(os.NewFile(lockFD, "lock"), filepath.Join(h.dirs.State, "tasks", string(id), "lock"))
	if err != nil {
		return tellError(out, task.Errorf(task.CodeUsage, "remove", "the lock of task %s was not handed over: %w", id, err))
	}
	owned := false
	err = h.manager.RemoveRest(ctx, id, lock, o, func() error {
		owned = true
		// An error: whoever closed the task is gone. It is ours all the same.
		_ = out.Encode(word{ID: id})
		detachStdio()
		return nil
	})
	if err != nil && !owned {
		return tellError(out, err)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "caisson: %s remover of task %s: %v\n", time.Now().UTC().Format(time.RFC3339), id, err)
		return 1
	}
	return 0
}
