//go:build linux

package evidence

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// The test program plays a writer when its first argument says so: it appends
// for ever and prints each sequence number once it is durable.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "role-writer" {
		l, err := Open(os.Args[2], task.ID(os.Args[3]), nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for {
			if _, err := l.AppendBulk(context.Background(), CallOutcome, host, map[string]any{"tail": string(make([]byte, 3000))}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			seq, err := l.Append(context.Background(), CallIntent, host, nil)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println(seq)
		}
	}
	if len(os.Args) == 3 && os.Args[1] == "role-full" {
		if err := fillDisk(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A writer is killed at random moments: every event it reported durable stays,
// the chain holds across the deaths, and the next writer goes on at once.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "evidence")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var acked uint64
	for range 10 {
		cmd := exec.Command(exe, "role-writer", dir, string(testTask))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := rand.IntN(20)
		sc := bufio.NewScanner(out)
		for n := 0; sc.Scan(); n++ {
			seq, err := strconv.ParseUint(sc.Text(), 10, 64)
			if err != nil || seq <= acked {
				t.Fatalf("event %q after %d", sc.Text(), acked)
			}
			acked = seq
			if n == after {
				for range rand.IntN(300_000) { // into the next write
					_ = n
				}
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		if h, err := Verify(dir, Head{}); err != nil && !errors.Is(err, ErrTorn) || h.Seq < acked {
			t.Fatalf("head %d, reported %d: %v", h.Seq, acked, err)
		}
	}
	l := reopen(t, dir)
	if h, err := Verify(dir, l.Head()); err != nil || h.Seq < acked {
		t.Fatalf("%v %v", h, err)
	}
}

// Whatever the file holds, reading ends, says what is wrong with a typed error,
// and a log that verifies is exactly what Read yields.
func FuzzRead(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "evidence")
	l, err := Open(dir, testTask, nil)
	if err != nil {
		f.Fatal(err)
	}
	for range 3 {
		if _, err := l.Append(f.Context(), CallIntent, host, map[string]any{"a": "b"}); err != nil {
			f.Fatal(err)
		}
	}
	_ = l.Close()
	path := filepath.Join(dir, FileName)
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add(append(bytes.Clone(good), "\x00\n{}\n"...))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, FileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		var rerr error
		for e, err := range Read(dir, 0) {
			if err != nil {
				rerr = err
				break
			}
			n++
			_ = e.Fields()
		}
		h, verr := Verify(dir, Head{})
		for _, err := range []error{rerr, verr} {
			if err != nil && task.CodeOf(err) != task.CodeEvidence {
				t.Fatalf("untyped: %v", err)
			}
		}
		if verr == nil && (rerr != nil || h.Seq != n) {
			t.Fatalf("verified %d, read %d: %v", h.Seq, n, rerr)
		}
		// A writer refuses it or leaves a log that is no worse.
		l, err := Open(dir, testTask, nil)
		if err != nil {
			return
		}
		defer l.Close()
		if _, err := l.Append(t.Context(), CallIntent, host, nil); err != nil {
			t.Fatal(err)
		}
		if verr == nil || errors.Is(verr, ErrTorn) && h.Seq == n && rerr == nil {
			if got, err := Verify(dir, l.Head()); err != nil || got.Seq <= n {
				t.Fatalf("after an append: %v %v", got, err)
			}
		}
	})
}
