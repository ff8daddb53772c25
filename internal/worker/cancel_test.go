//go:build linux

package worker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/test/harness"
)

// spawn runs a shell line that prints "up" once everything it starts exists.
func spawn(t *testing.T, b *box, line string) *running {
	t.Helper()
	r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", line}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func count(b *box, pattern string) string {
	_, out, _ := b.sh("pgrep -fc '^" + pattern + "$'")
	return out
}

// The control: signalling the program's group misses what left the group.
// Cancel does not.
func TestCancelEndsDaemons(t *testing.T) {
	b := start(t)
	const line = `(setsid sh -c '(setsid sleep 7777 &)' &) ; setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 7778; done' & sleep 7779`
	r := spawn(t, b, line)
	all := func() bool { return count(b, "sleep 777[789]") == "3\n" }
	harness.Eventually(t, "daemons up", all)
	if err := r.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(deadline(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if n := count(b, "sleep 777[78]"); n != "2\n" {
		t.Fatalf("control: %s daemons live after a signal to the group, want 2", n)
	}
	if err := b.client.KillAll(deadline(t, 20*time.Second), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if n := count(b, "sleep 777[789]"); n != "0\n" {
		t.Fatalf("%s left after kill all", n)
	}

	r = spawn(t, b, line)
	harness.Eventually(t, "daemons up again", all)
	if err := r.Cancel(context.Background(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if n := count(b, "sleep 777[789]"); n != "0\n" {
		t.Errorf("%s left after cancel", n)
	}
	if o, err := r.Wait(deadline(t, 20*time.Second)); err != nil || o.Exit != 143 {
		t.Errorf("%+v %v", o, err)
	}
	if err := r.Cancel(context.Background(), 0); err != nil {
		t.Errorf("a second cancel: %v", err)
	}
}

func TestCancelGivesGrace(t *testing.T) {
	b := start(t)
	r := spawn(t, b, `trap 'echo bye; exit 11' TERM; echo up >&2; while :; do sleep 0.01; done`)
	harness.Eventually(t, "trap set", func() bool { return count(b, "sleep 0.01") != "0\n" })
	if err := r.Cancel(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if o, err := r.Wait(deadline(t, 20*time.Second)); err != nil || o.Exit != 11 {
		t.Errorf("%+v %v", o, err)
	}
	// One that never yields is shortened by a second cancel.
	r = spawn(t, b, `trap '' TERM; while :; do sleep 0.01; done`)
	harness.Eventually(t, "trap set", func() bool { return count(b, "sleep 0.01") != "0\n" })
	first := make(chan error, 1)
	go func() { first <- r.Cancel(context.Background(), time.Hour) }()
	if err := r.Cancel(context.Background(), 0); err != nil {
		t.Error(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if o, err := r.Wait(deadline(t, 20*time.Second)); err != nil || o.Exit != 137 {
		t.Errorf("%+v %v", o, err)
	}
}

// A call that ended by itself left its server on purpose: cancel says so
// without an error and touches nothing.
func TestCancelAfterTheEnd(t *testing.T) {
	b := start(t)
	r := spawn(t, b, "setsid sleep 6543 & exit 0")
	if _, err := r.Wait(deadline(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	// It may still be on its way from fork to exec, and the worker's word of the
	// end on its way to us: until then a cancel is one of a running call.
	lives := func() bool { return count(b, "sleep 6543") == "1\n" }
	harness.Eventually(t, "its server lives", lives)
	if err := r.Cancel(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if !lives() {
		t.Error("a cancel after the end killed its server")
	}
}

func TestCancelBeatsForkBomb(t *testing.T) {
	uid := os.Getuid()
	if uid == 0 {
		uid = 165432 // the kernel does not count processes of its uid 0
	}
	b := startAs(t, uid)
	r, err := b.exec(worker.Command{Argv: []string{ownProgram(t, 0o755), roleBomb}, Rlimits: rlimits(unix.RLIMIT_NPROC, 300)})
	if err != nil {
		t.Fatal(err)
	}
	inside := func() int {

		ps, _ := exec.Command("ps", "-eo", "uid=").Output()
		return strings.Count(string(ps), fmt.Sprintf("%d\n", uid))
	}
	if uid != os.Getuid() {
		harness.Eventually(t, "the bomb has used its processes up", func() bool { return inside() > 250 })
	}
	err = r.Cancel(context.Background(), 0)
	if err != nil {
		// Allowed, and then the boundary must go; but the rest must still work.
		t.Logf("not confirmed: %v", err)
		if task.CodeOf(err) != task.CodeStuck {
			t.Error(err)
		}
		if err := b.client.KillAll(deadline(t, 60*time.Second), 30*time.Second); err != nil {
			t.Error(err)
		}
	}
	_, out, _ := b.sh("ls -d /proc/[0-9]* | wc -l")
	if len(out) > 2 {
		t.Errorf("%s processes left", out)
	}
}

// An exec whose answer is not awaited is unknown, and is killed all the same.
func TestAbandonedExec(t *testing.T) {
	b := start(t)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	r := &running{}
	fs := devNull(t)
	_, err := b.client.Exec(ctx, worker.Command{Argv: []string{"sleep", "8888"}}, fs)
	if task.CodeOf(err) != task.CodeOutcomeUnknown {
		t.Fatal(err)
	}
	_ = r
	harness.Eventually(t, "the abandoned call is gone", func() bool { return count(b, "sleep 8888") == "0\n" })
	if err := b.client.Ping(deadline(t, 20*time.Second)); err != nil {
		t.Errorf("its late reply spoiled the channel: %v", err)
	}
}
