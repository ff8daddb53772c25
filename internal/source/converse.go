package source

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// conversation is a git that answers questions one after the other.
type conversation struct {
	in   *os.File
	out  *bufio.Reader
	outw *io.PipeReader
	done chan error
}

// The questions go through a pipe of the kernel. With one of this process the
// wait for a git that was killed would also wait for a reader that nobody feeds.
func converse(ctx context.Context, g *git.Git, cmd git.Cmd) (*conversation, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, task.Errorf(task.CodeUnavailable, "source.git", "git cannot be asked: %v", err)
	}
	outR, outW := io.Pipe()
	cmd.Stdin, cmd.Stdout = inR, outW
	c := &conversation{in: inW, out: bufio.NewReaderSize(outR, 64<<10), outw: outR, done: make(chan error, 1)}
	go func() {
		_, err := g.Run(ctx, cmd)
		if err != nil {
			outW.CloseWithError(err)
		} else {
			outW.Close()
		}
		inR.Close()
		c.done <- err
	}()
	return c, nil
}

// exchange sends a question and lets read take the NUL-terminated fields of
// the answer. Question and answer flow at the same time: either may be larger
// than a pipe holds.
func (c *conversation) exchange(question []byte, read func(next func() (string, error)) error) error {
	sent := make(chan error, 1)
	go func() {
		_, err := c.in.Write(question)
		sent <- err
	}()
	err := read(func() (string, error) {
		s, err := c.out.ReadString(0)
		if err != nil {
			return "", err
		}
		return s[:len(s)-1], nil
	})
	if err != nil {
		c.outw.CloseWithError(err)
		c.in.Close()
	}
	if serr := <-sent; err == nil {
		err = serr
	}
	return err
}

// close ends the input, waits for git and returns how it ended.
func (c *conversation) close() error {
	c.in.Close()
	_, _ = io.Copy(io.Discard, c.out)
	return <-c.done
}
