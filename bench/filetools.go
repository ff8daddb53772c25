//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/backend/linux"
	"github.com/caisson-dev/caisson/internal/worker"
)

// standInside makes one boundary around a folder and returns the channel into
// it. The caller ends it.
func (b *bench) standInside(ctx context.Context, source string) (client *worker.Client, end func() error, err error) {
	prog, err := b.workerProgram(ctx)
	if err != nil {
		return nil, nil, err
	}
	spec, err := b.spec(prog)
	if err != nil {
		return nil, nil, err
	}
	spec.Source.Source = source
	inst, err := linux.New(linux.Config{Worker: func() (string, error) { return prog, nil }}).Create(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	gone := func() error { return inst.Destroy(context.WithoutCancel(ctx)) }
	conn, err := inst.Dial(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, gone())
	}
	seen, err := inst.Observe(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close(), gone())
	}
	if client, err = worker.Start(ctx, conn, worker.Options{WorkerPID: seen.WorkerPID}); err != nil {
		return nil, nil, errors.Join(err, gone())
	}
	return client, func() error { return errors.Join(client.Close(), gone()) }, nil
}

const largeFile = 100_000_000 // bytes

// fileTools measures the tools that the worker itself does, from the host's
// request to the host's having the result.
func (b *bench) fileTools(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp(b.dir, "tools-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, size := range map[string]int{"small": 1000, "middle": 100_000, "large": largeFile} {
		line := []byte("a line of forty bytes, as in a program\n")
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat(line, 1+size/len(line))[:size], 0o666); err != nil {
			return err
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	client, end, err := b.standInside(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	call := func(tool string, args map[string]any) (worker.ToolReply, error) {
		raw, err := json.Marshal(args)
		if err != nil {
			return worker.ToolReply{}, err
		}
		r, err := client.Tool(ctx, tool, raw, nil)
		if err == nil && r.Failure != nil {
			err = fmt.Errorf("%s: %s: %s", tool, r.Failure.Code, r.Failure.Message)
		}
		return r, err
	}
	one := func(tool string, args map[string]any) func(int) error {
		return func(int) error {
			r, err := call(tool, args)
			r.Close()
			return err
		}
	}
	edit := func(n int) error {
		words := []string{"forty", "sixty"}
		return one("edit_file", map[string]any{"path": "edited", "edits": []map[string]any{{"old": words[n%2] + " bytes", "new": words[(n+1)%2] + " bytes", "occurrence": 1}}})(n)
	}
	if err := one("write_file", map[string]any{"path": "edited", "content": string(bytes.Repeat([]byte("a line of forty bytes\n"), 45))})(0); err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	large := func(int) error {
		r, err := call("read_file", map[string]any{"path": "large", "limit": 1})
		if err != nil {
			return err
		}
		defer r.Close()
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r.File}, buf)
		if err == nil && n != largeFile {
			err = fmt.Errorf("%d bytes of %d came", n, largeFile)
		}
		return err
	}
	many := func(int) error {
		var wg sync.WaitGroup
		errs := make([]error, 64)
		for i := range errs {
			wg.Go(func() { errs[i] = one("read_file", map[string]any{"path": "small"})(0) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	few := b.few()
	quick := 100 * few
	t := table{title: "File tools", head: []string{"call", "p50 µs", "min µs", "p99 µs", "n"},
		note: "From the host's request to its having the result, over the channel of a boundary that stands; nothing is recorded and nobody is asked. Warm caches."}
	for _, m := range []struct {
		key, what string
		n         int
		do        func(int) error
	}{
		{"ping", "ping of the tool space", quick, func(int) error { return client.Ping(ctx) }},
		{"read", "read_file of 1 kB", quick, one("read_file", map[string]any{"path": "small"})},
		{"middle", "read_file of 100 kB", quick, one("read_file", map[string]any{"path": "middle", "limit": 1 << 20})},
		{"bare", "the same file by a program of the host", quick, func(int) error { _, err := os.ReadFile(filepath.Join(dir, "middle")); return err }},
		{"write", "write_file of 1 kB", quick, one("write_file", map[string]any{"path": "written", "content": string(bytes.Repeat([]byte("0123456789abcde\n"), 64))})},
		{"edit", "edit_file of 1 kB", quick, edit},
		{"list", "list_dir of five names", quick, one("list_dir", map[string]any{})},
		{"many", "64 read_file of 1 kB at once, all of them", 10 * few, many},
		{"large", "read_file of 100 MB, all of it read by the host", few, large},
	} {
		var took []time.Duration
		began := time.Now()
		for i := range m.n + 1 {
			if i > 1 && time.Since(began) > b.o.limit {
				break
			}
			at := time.Now()
			if err := m.do(i); err != nil {
				return fmt.Errorf("%s: %w", m.what, err)
			}
			if i > 0 {
				took = append(took, time.Since(at))
			}
		}
		us := func(p int) string { return fmt.Sprintf("%.1f", float64(percentile(took, p))/1e3) }
		t.row(m.what, us(50), us(0), us(99), fmt.Sprint(len(took)))
		b.figures["tools/"+m.key+"/p50"], b.figures["tools/"+m.key+"/p99"] = float64(percentile(took, 50))/1e3, float64(percentile(took, 99))/1e3
	}
	b.tables = append(b.tables, t)
	return nil
}
