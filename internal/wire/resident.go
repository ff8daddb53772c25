package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/task"
)

// A resident is a process of this program that outlives the one that starts it:
// a supervisor, or a remover. It takes one order, a line of JSON, on standard
// input and answers in words on standard output; what it says to nobody goes to
// a file.

// word is what a resident tells who started it, one a line.
type word struct {
	Progress string          `json:"progress,omitempty"`
	ID       task.ID         `json:"id,omitempty"`
	Error    *task.ErrorForm `json:"error,omitempty"`
}

// logPath names the file for what is said to nobody.
func (h *house) logPath() string { return filepath.Join(h.dirs.State, "supervisor.log") }

// resident starts one in dir. files become its descriptors from 3 on.
func (h *house) resident(dir string, files []*os.File, args ...string) (cmd *exec.Cmd, in io.WriteCloser, out io.ReadCloser, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	log, err := os.OpenFile(h.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, nil, err
	}
	defer log.Close()
	cmd = exec.Command(exe, args...)
	cmd.Stderr, cmd.Dir, cmd.SysProcAttr, cmd.ExtraFiles = log, dir, newSession(), files
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	// What the caller's shell left open (a lock, the end of a pipe) must not
	// stay open for as long as the resident lives.
	if err := sealDescriptors(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

// takeOrder reads the order of a resident.
func takeOrder(in *bufio.Reader, op string, order any) error {
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, order)
	}
	if err != nil {
		return noOrder(op, err)
	}
	return nil
}

func noOrder(op string, err error) error {
	return task.Errorf(task.CodeUsage, op, "no order on standard input: %w", err)
}

// tellError is a resident's last word. It returns its exit status.
func tellError(out *json.Encoder, err error) int {
	_ = out.Encode(word{Error: task.FormOf(err)})
	return 1
}

// openResident opens the house of a resident.
func openResident(ctx context.Context) (*house, error) {
	h, err := open(ctx, false, noteOnStderr)
	if err == nil {
		h.db.RestAfter(dbRestAfter)
	}
	return h, err
}

func noteOnStderr(text string) { fmt.Fprintln(os.Stderr, "caisson: note: "+text) }
