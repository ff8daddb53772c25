//go:build faults

package swap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestKilled kills a process at every fault point and at every step, and
// recovers: all is old or all is new.
func TestKilled(t *testing.T) {
	if os.Getenv("SWAP_TEST_ROOT") != "" {
		f := &field{t, os.Getenv("SWAP_TEST_ROOT"), os.Getenv("SWAP_TEST_SIDE")}
		if os.Getenv("SWAP_TEST_RECOVER") != "" {
			_, left, err := f.recover()
			if err != nil || len(left) > 0 {
				t.Fatal(err, left)
			}
			return
		}
		_ = f.run(f.every()...)
		return
	}
	again := func(f *field, fault string, more ...string) bool {
		c := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		c.Env = append(os.Environ(), append(more, "SWAP_TEST_ROOT="+f.root, "SWAP_TEST_SIDE="+f.side, "CAISSON_FAULT="+fault)...)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		err := c.Run()
		var ee *exec.ExitError
		if errors.As(err, &ee) && ee.Sys().(syscall.WaitStatus).Signaled() {
			return true
		}
		if err != nil && !strings.Contains(fault, "error") {
			t.Fatalf("%v: %s", err, out.String())
		}
		return false
	}
	// What it looks like before and after.
	f := newField(t)
	f.every()
	old := f.picture()
	f = newField(t)
	again(f, "")
	all := f.picture()
	if old == all {
		t.Fatal("nothing was done")
	}
	var points []string
	for _, p := range []string{"swap.begun", "swap.staged", "swap.journaled", "swap.exchanged", "swap.durable", "swap.committed", "swap.removed", "sys.write.temp:kill:1", "sys.write.temp:kill:2", "sys.write.temp:kill:3", "sys.write.rename:kill:1", "sys.write.rename:kill:2", "sys.write.rename:kill:3"} {
		if !strings.Contains(p, ":") {
			p += ":kill"
		}
		points = append(points, p)
	}
	for i := range len(f.steps()) {
		points = append(points, fmt.Sprint("swap.stepped:kill:", i+1))
	}
	// Killed while taking back what an error ended.
	for i := range len(f.steps()) {
		points = append(points, fmt.Sprint("swap.exchanged:error,swap.undone:kill:", i+1))
	}
	for n, p := range points {
		f := newField(t)
		if !again(f, p) {
			t.Errorf("%s: was not killed", p)
		}
		// A recovery that is killed too, now and then.
		if n%3 == 0 {
			again(f, "swap.undone:kill:4", "SWAP_TEST_RECOVER=1")
		}
		if n%5 == 0 {
			again(f, "swap.removed:kill", "SWAP_TEST_RECOVER=1")
		}
		again(f, "", "SWAP_TEST_RECOVER=1")
		got := f.picture()
		committed := strings.HasPrefix(p, "swap.committed") || strings.HasPrefix(p, "swap.removed") || p == "sys.write.rename:kill:3"
		if committed && got != all || !committed && got != old {
			t.Errorf("%s: neither old nor new as it should be:\n%s", p, got)
		}
		if p != "sys.write.temp:kill:1" { // before there is a record that names a folder to lock
			f.clean()
		}
		if did, _, err := f.recover(); did || err != nil {
			t.Errorf("%s: recovered twice: %v %v", p, did, err)
		}
	}
}

func (f *field) steps() []int { return make([]int, 17) }
