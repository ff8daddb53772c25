package source

import (
	"bufio"
	"context"
	"io"

	"github.com/caisson-dev/caisson/internal/source/git"
)

// conversation is a git that answers questions one after the other.
type conversation struct {
	in   *io.PipeWriter
	out  *bufio.Reader
	outw *io.PipeReader
	done chan error
}

func converse(ctx context.Context, g *git.Git, cmd git.Cmd) *conversation {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	cmd.Stdin, cmd.Stdout = inR, outW
	c := &conversation{in: inW, out: bufio.NewReaderSize(outR, 64<<10), outw: outR, done: make(chan error, 1)}
	go func() {
		_, err := g.Run(ctx, cmd)
		if err != nil {
			outW.CloseWithError(err)
			inR.CloseWithError(err)
		} else {
			outW.Close()
			inR.Close()
		}
		c.done <- err
	}()
	return c
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
		c.in.CloseWithError(err)
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
