// Package control is the door of an open task's supervisor: a Unix socket on
// which commands of the same user act on the one task the supervisor owns.
//
// Its limit: it serves only peers that the kernel says are the same user in
// the same user and pid namespace, and only the few operations that need the
// live boundary or its record; everything else is answered from the inventory.
package control

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// maxMessage bounds one message. The arguments of a tool call are the largest
// thing that crosses: the content of a file, with JSON's escapes.
const maxMessage = 40 << 20

// What crosses is JSON with exactly one field besides op set. Descriptors travel
// with the message that names them. There are three types of one form, so that a
// command does not build, at each start of the program and for each supervisor,
// what encodes reports that it never sees.

// request is what a client says.
type request struct {
	Op      string          `json:"op,omitempty"`    // "exec", "close", "ping", or one of ops.go
	In      json.RawMessage `json:"in,omitempty"`    // of an operation of ops.go
	Meant   *meant          `json:"meant,omitempty"` // of an exec: refuse it unless this is your task
	Command *command        `json:"command,omitempty"`
	Check   *checked        `json:"check,omitempty"` // of a check: what Command is one of
	Close   *closeOptions   `json:"close,omitempty"`
	Signal  int             `json:"signal,omitempty"`
	Cancel  bool            `json:"cancel,omitempty"`
	Summary *door.IOSummary `json:"summary,omitempty"`
}

// step is what a supervisor answers to a command, one after the other, and the
// end of every other answer.
type step struct {
	Else     bool            `json:"else,omitempty"` // another task is meant, nothing was begun
	Started  bool            `json:"started,omitempty"`
	PTY      bool            `json:"pty,omitempty"` // one descriptor: the master
	Progress string          `json:"progress,omitempty"`
	Exited   bool            `json:"exited,omitempty"` // the command ended: send the summary
	Outcome  *task.Outcome   `json:"outcome,omitempty"`
	Check    json.RawMessage `json:"check,omitempty"` // task.Check
	Error    *task.ErrorForm `json:"error,omitempty"`
	Done     bool            `json:"done,omitempty"`
}

// message is what it answers to everything else.
type message struct {
	Risky    []task.Risk       `json:"risky,omitempty"` // risky files that were found, before anything is done
	More     bool              `json:"more,omitempty"`  // of Risky: the next message has more of them
	Part     []byte            `json:"part,omitempty"`  // the next bytes of its answer
	Progress string            `json:"progress,omitempty"`
	Output   *output           `json:"output,omitempty"` // of a tool call that runs
	Asked    *task.Question    `json:"asked,omitempty"`  // the tool call waits for a person
	File     bool              `json:"file,omitempty"`   // one descriptor: the output that was asked for
	Closed   *task.CloseReport `json:"closed,omitempty"`
	Error    *task.ErrorForm   `json:"error,omitempty"`
	Done     bool              `json:"done,omitempty"`
}

// meant is a task as its user calls it: by any text, in one installation.
type meant struct {
	Ref   []byte `json:"ref"`
	State []byte `json:"state"` // the state folder
}

// command is a task.Command whose texts, which may be any bytes, survive JSON.
type command struct {
	Argv   [][]byte `json:"argv"`
	Dir    []byte   `json:"dir"`
	From   []byte   `json:"from"`
	Env    [][]byte `json:"env"`
	TTY    bool     `json:"tty"`
	Rows   uint16   `json:"rows,omitempty"`
	Cols   uint16   `json:"cols,omitempty"`
	Person bool     `json:"person,omitempty"`
}

func toCommand(c task.Command) *command {
	return &command{Argv: task.Raw(c.Argv), Dir: []byte(c.Dir), From: []byte(c.From), Env: task.Raw(c.Env), TTY: c.TTY, Rows: c.Rows, Cols: c.Cols, Person: c.Person}
}

func (c *command) command() task.Command {
	return task.Command{Argv: task.Texts(c.Argv), Dir: string(c.Dir), From: string(c.From), Env: task.Texts(c.Env), TTY: c.TTY, Rows: c.Rows, Cols: c.Cols, Person: c.Person}
}

// output is what a program just wrote.
type output struct {
	Stream string `json:"stream"`
	Bytes  []byte `json:"bytes"`
}

// checked says that a command verifies the task's files.
type checked struct {
	Name  []byte `json:"name"`
	Named bool   `json:"named,omitempty"`
}

type closeOptions struct {
	DryRun  bool      `json:"dry_run"`
	Discard bool      `json:"discard"`
	Keep    task.Keep `json:"keep"`
}

// conn frames messages on a Unix stream socket: four bytes of length, then
// JSON; descriptors ride on the length.
type conn struct {
	c  *net.UnixConn
	mu sync.Mutex // one writer at a time
}

// send sends a request, a step or a message.
func (c *conn) send(m any, files ...*os.File) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return task.Errorf(task.CodeUsage, "control", "a request of %d bytes is longer than %d", len(body), maxMessage)
	}
	// In one piece: whoever waits for it is woken once.
	whole := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	return sendWithFiles(c.c, whole, files)
}

// recv returns the next M and the descriptors that came with it; the caller
// closes them.
func recv[M request | step | message](c *conn) (m M, files []*os.File, err error) {
	var head [4]byte
	if files, err = recvWithFiles(c.c, head[:]); err != nil {
		return m, nil, err
	}
	var body bytes.Buffer // grows with what comes, not with what was announced
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		err = fmt.Errorf("control: message of %d bytes", n)
	} else if _, err = io.CopyN(&body, c.c, int64(n)); err == nil {
		err = json.Unmarshal(body.Bytes(), &m)
	}
	if err != nil {
		closeAll(files)
		var none M
		return none, nil, err
	}
	return m, files, nil
}
