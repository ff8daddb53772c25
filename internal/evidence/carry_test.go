//go:build unix

package evidence

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// heir is what a log is in the program that this process would become: the
// descriptors survive, nothing else does.
func heir(t *testing.T, c Carried) Carried {
	t.Helper()
	for _, fd := range []*int{&c.File, &c.Lock} {
		n, err := syscall.Dup(*fd)
		if err != nil {
			t.Fatal(err)
		}
		*fd = n
	}
	return c
}

// TestCarry continues a record under the lock that was handed over, hides what was
// to be hidden and keeps others out.
func TestCarry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "evidence")
	hide := NewRedactor()
	hide.Add("hunter2-hunter2")
	old, err := Open(dir, testTask, hide)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Close() })
	add(t, old, 3)
	if _, err := old.AppendBulk(t.Context(), CallIntent, host, map[string]any{"n": "not flushed"}); err != nil {
		t.Fatal(err)
	}
	c, err := old.Carry()
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	go func() {
		_, err := old.Append(context.Background(), CallIntent, host, map[string]any{"n": "late"})
		late <- err
	}()
	select {
	case err := <-late:
		t.Errorf("recorded by the old one meanwhile: %v", err)
	case <-time.After(20 * time.Millisecond): // too short a wait can only hide the fault
	}
	if fi, err := os.Stat(filepath.Join(dir, FileName)); err != nil || c.Head.Seq != 4 || fi.Size() != c.Size {
		t.Fatalf("%+v, %v: not all is durable", c, err)
	}
	l, err := Take(dir, testTask, heir(t, c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if _, err := l.Append(t.Context(), CallIntent, host, map[string]any{"argv": []string{"echo", "hunter2-hunter2"}}); err != nil {
		t.Fatal(err)
	}
	events := readAll(t, dir)
	if n := len(events); n != 5 || strings.Contains(string(events[4].Body), "hunter2") {
		t.Errorf("%d events, the last %s", n, events[n-1].Body)
	}
	if h, err := Verify(dir, c.Head); err != nil || h != l.Head() {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := Open(dir, testTask, nil); err == nil {
		t.Error("another writer was let in")
	}
	old.Stay()
	if err := <-late; err != nil {
		t.Error(err)
	}
	// What was recorded since by somebody else is not continued.
	if l, err := Take(dir, testTask, heir(t, c)); err == nil {
		_ = l.Close()
		t.Error("a record that has grown was continued")
	}
	if l, err := Take(t.TempDir(), testTask, heir(t, c)); err == nil {
		_ = l.Close()
		t.Error("the record of another folder was continued")
	}
}
