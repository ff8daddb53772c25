//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson"
)

// callerArg begins the arguments of this program as a caller: something that
// lives on and makes calls one after the other when it is asked to.
const callerArg = "__caller"

// order is what a caller is asked to do, answered what it did.
type (
	order struct {
		Tool   string         `json:"tool"`
		Args   map[string]any `json:"args"`
		Argv   []string       `json:"argv"`   // of a fork
		Stream bool           `json:"stream"` // take a program's output as it comes
		N      int            `json:"n"`
		Pause  time.Duration  `json:"pause"` // before each
	}
	answered struct {
		Took  []time.Duration `json:"took"`
		Bytes int64           `json:"bytes"` // that came by streams, in all calls
		Err   string          `json:"err"`
	}
)

// playCaller is this program as a caller: "go DIR" holds a task on a copy of a
// folder and uses the Go package, "fork" starts programs where it is itself.
func playCaller(args []string) int {
	err := errors.New("no such caller")
	do := func(order) (int64, error) { return 0, err }
	end := func() error { return nil }
	switch {
	case len(args) == 2 && args[0] == "go":
		var t *caisson.Task
		if t, err = caisson.Open(context.Background(), caisson.Options{Dir: args[1], Source: "copy", Keep: "never"}); err == nil {
			do = func(o order) (int64, error) { return callGo(t, o) }
			end = func() error { _, err := t.Close(); return err }
		}
	case len(args) == 1 && args[0] == "fork":
		var null *os.File
		if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
			do = func(o order) (int64, error) { return 0, fork(o.Argv, null) }
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	err = out.Encode(answered{})
	for err == nil {
		var o order
		if err = in.Decode(&o); err != nil {
			break
		}
		var a answered
		for range o.N {
			time.Sleep(o.Pause)
			at := time.Now()
			n, derr := do(o)
			a.Took, a.Bytes = append(a.Took, time.Since(at)), a.Bytes+n
			if derr != nil {
				a.Err = derr.Error()
				break
			}
		}
		err = out.Encode(a)
	}
	if cerr := end(); cerr != nil || err != io.EOF {
		fmt.Fprintln(os.Stderr, err, cerr)
		return 1
	}
	return 0
}

func callGo(t *caisson.Task, o order) (came int64, err error) {
	var output func(string, []byte)
	if o.Stream {
		output = func(_ string, p []byte) { came += int64(len(p)) } // one stream: it is never called twice at once
	}
	r, err := t.Stream(context.Background(), o.Tool, o.Args, output)
	switch {
	case err != nil:
		return came, err
	case r.Claimed.Failure != nil:
		return came, errors.New(r.Claimed.Failure.Message)
	case r.Observed.Exit != nil && *r.Observed.Exit != 0:
		return came, fmt.Errorf("exit %d", *r.Observed.Exit)
	}
	return came, nil
}

func fork(argv []string, null *os.File) error {
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Files: []*os.File{null, null, null}})
	if err != nil {
		return err
	}
	s, err := p.Wait()
	if err == nil && !s.Success() {
		err = errors.New(s.String())
	}
	return err
}

// caller is the other side of a program that lives on and makes calls.
type caller struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *tail
	id  int // of the last message, of an MCP client
}

// live starts one. The caller of it calls end.
func live(argv, env []string) (*caller, error) {
	c := &caller{cmd: exec.Command(argv[0], argv[1:]...), err: &tail{}}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C reaches us, and we end it
	c.cmd.Stderr = c.err
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	return c, c.cmd.Start()
}

// end closes its input, which it takes as the wish to end.
func (c *caller) end() error {
	_ = c.in.Close()
	late := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", short(c.cmd.Args), err, c.err)
	}
	return nil
}

// began waits for a caller's first word.
func (c *caller) began() error {
	_, err := c.line()
	return err
}

func (c *caller) line() ([]byte, error) {
	l, err := c.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", short(c.cmd.Args), err, c.err)
	}
	return l, nil
}

// do has a caller of ours make calls.
func (c *caller) do(o order) (a answered, err error) {
	if err := json.NewEncoder(c.in).Encode(o); err != nil {
		return a, err
	}
	l, err := c.line()
	if err == nil {
		err = json.Unmarshal(l, &a)
	}
	if err == nil && a.Err != "" {
		err = errors.New(a.Err)
	}
	return a, err
}

// ask sends one request of the Model Context Protocol and waits for its answer.
func (c *caller) ask(method string, params any) (json.RawMessage, error) {
	c.id++
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if _, err := c.in.Write(append(b, '\n')); err != nil {
		return nil, err
	}
	for {
		l, err := c.line()
		if err != nil {
			return nil, err
		}
		var m struct {
			ID     *int            `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(l, &m); err != nil {
			return nil, err
		}
		switch {
		case m.ID == nil || *m.ID != c.id: // a notification
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, m.Error)
		default:
			return m.Result, nil
		}
	}
}

// greet is what a client says first.
func (c *caller) greet() error {
	if _, err := c.ask("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "bench", "version": "1"}}); err != nil {
		return err
	}
	_, err := io.WriteString(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return err
}

// tool makes calls as a client does.
func (c *caller) tool(o order) (a answered, err error) {
	for range o.N {
		time.Sleep(o.Pause)
		at := time.Now()
		r, err := c.ask("tools/call", map[string]any{"name": o.Tool, "arguments": o.Args})
		a.Took = append(a.Took, time.Since(at))
		if err == nil && strings.Contains(string(r), `"isError":true`) {
			err = fmt.Errorf("%s: %.300s", o.Tool, r)
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}
