//go:build linux

package source

import (
	"context"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/source/git"
)

// A git that was started ahead removes nothing before it is told to, whatever
// becomes of it meanwhile.
func TestUnpinAhead(t *testing.T) {
	l := basic(t)
	pins := func(o *opened) string {
		t.Helper()
		return l.git("for-each-ref", "--format=%(refname)", refPrefix(o.ws.Task)+"pin/")
	}
	gone := func(what string, o *opened) {
		t.Helper()
		if left := l.git("for-each-ref", "--format=%(refname)", refPrefix(o.ws.Task)); left != "" {
			t.Errorf("%s: left: %s", what, left)
		}
	}
	ctx := context.Background()

	o := l.open(Options{})
	before := pins(o)
	if before == "" {
		t.Fatal("the control: nothing is pinned")
	}
	u := Pins(o.r.Ref.CommonDir, o.ws.Task)
	u.Ahead(ctx)
	if u.input == nil {
		t.Fatal("git was not started")
	}
	if got := pins(o); got != before {
		t.Errorf("before it was told: %q", got)
	}
	u.Close() // whoever wanted to remove them failed at something else
	u.Close()
	if got := pins(o); got != before {
		t.Errorf("given up: %q", got)
	}
	if err := u.Finish(ctx); err != nil { // and may want it again
		t.Fatal(err)
	}
	gone("after that", o)

	o = l.open(Options{})
	u = Pins(o.r.Ref.CommonDir, o.ws.Task)
	u.Ahead(ctx)
	spawns := git.Spawns.Load()
	if err := u.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	if n := git.Spawns.Load() - spawns; n > 1 {
		t.Errorf("%d more gits were started", n)
	}
	gone("ahead", o)
	u.Close()
	if err := Pins(o.r.Ref.CommonDir, o.ws.Task).Finish(ctx); err != nil {
		t.Errorf("again: %v", err)
	}

	// It was killed while it waited.
	o = l.open(Options{})
	killed, kill := context.WithCancel(ctx)
	u = Pins(o.r.Ref.CommonDir, o.ws.Task)
	u.Ahead(killed)
	kill()
	err := <-u.done
	if err == nil {
		t.Fatal("the control: it was not killed")
	}
	u.done <- err
	if err := u.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	gone("after its death", o)

	// What came below the pins since it was started goes with them; what another
	// task has stays.
	other := l.open(Options{})
	o = l.open(Options{})
	u = Pins(o.r.Ref.CommonDir, o.ws.Task)
	u.Ahead(ctx)
	l.git("update-ref", refPrefix(o.ws.Task)+"pin/99", "HEAD")
	if err := u.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	gone("one more", o)
	if got := pins(other); !strings.Contains(got, string(other.ws.Task)) {
		t.Errorf("the pins of another task: %q", got)
	}
}
