package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// A supervisor that has opened its task holds three megabytes that it will not
// need again: a heap, the runtime's lists of what was in it, SQLite's. Nothing
// but a new program gives them back. So it becomes one: the same program in the
// same process, to which the task's lock and record, its worker with the stream to
// it and the control socket come as open files, and the rest as one message.

// self is the program of this process, whatever lies at its path by now: what is
// handed over is for the same build alone.
const self = "/proc/self/exe"

// baton is that message.
type baton struct {
	Dirs     sys.Dirs // as they were found
	Listener int
	Task     []byte
}

// afresh does that. It returns only when it could not, and then the task is as it
// was before.
func (h *house) afresh(id task.ID) error {
	if h.front.l == nil {
		return errors.ErrUnsupported
	}
	hand, err := h.manager.Hand(id)
	if err != nil {
		return err
	}
	b := baton{Dirs: h.dirs, Task: hand.State}
	var memory *os.File
	var fd int
	if b.Listener, err = sys.FD(h.front.l); err == nil {
		if memory, err = inMemory(b); err == nil {
			defer memory.Close()
			fd, err = sys.FD(memory)
		}
	}
	if err != nil {
		return errors.Join(err, hand.Stay())
	}
	h.db.Rest()
	// Until the new program listens for it, SIGTERM ends it as SIGKILL would: then
	// the task is that of a supervisor that died, of which nothing is lost.
	return hand.Become(self, []string{os.Args[0], SuperviseArg, strconv.Itoa(fd)}, os.Environ(), []int{b.Listener, fd})
}

// SuperviseOn is the program of a supervisor that has opened its task and became
// this; arg is the descriptor of the baton. It returns the exit status.
func SuperviseOn(arg string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	debug.SetGCPercent(gcPercent)
	named(filepath.Base(os.Args[0]))
	out := json.NewEncoder(os.Stdout)
	var b baton
	h, err := takeBaton(arg, &b)
	if err != nil {
		return tellError(out, err)
	}
	defer h.close()
	id, err := h.manager.Take(ctx, b.Task)
	if err != nil {
		return tellError(out, err)
	}
	h.front = front{}
	clear(b.Task)
	return h.attend(ctx, id, out)
}

// inMemory packs b into memory that has a descriptor and no name. The caller
// closes it.
func inMemory(b baton) (*os.File, error) {
	packed, err := sys.Pack(b)
	if err != nil {
		return nil, err
	}
	defer clear(packed)
	f, err := nameless()
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(packed, 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func takeBaton(arg string, b *baton) (*house, error) {
	fail := func(err error) (*house, error) {
		return nil, task.Errorf(task.CodeUsage, "supervise", "nothing was handed over: %w", err)
	}
	fd, err := strconv.Atoi(arg)
	if err != nil || fd < 3 {
		return fail(errors.New("no descriptor"))
	}
	f := os.NewFile(uintptr(fd), "baton")
	packed, err := io.ReadAll(f)
	_ = f.Close()
	if err == nil {
		err = sys.Unpack(packed, b)
	}
	clear(packed)
	if err == nil && b.Listener < 3 {
		err = errors.New("no control socket")
	}
	if err != nil {
		return fail(err)
	}
	// All that came stays open for as long as this process, and no longer.
	if err := sealDescriptors(); err != nil {
		return fail(err)
	}
	f = os.NewFile(uintptr(b.Listener), "control socket")
	l, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		return fail(err)
	}
	h := newHouse(b.Dirs, later(b.Dirs), false, noteOnStderr)
	h.db.RestAfter(dbRestAfter)
	var ok bool
	if h.front.l, ok = l.(*net.UnixListener); !ok {
		return fail(errors.New("the control socket is none"))
	}
	return h, nil
}
