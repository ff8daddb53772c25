//go:build linux

package calls

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestSilentSupervisor stops the process of one task: what waits in another is
// listed and answered all the same.
func TestSilentSupervisor(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "silent", os.Getuid())
	c := newCaller(t, id, "--ask", "shell", "--name", "asker")
	mute := newCaller(t, id, "--ask", "shell")
	p := asks(c, contract.Shell, contract.ShellArgs{Command: "true"})
	v := harness.Decode[task.View](t, id.OK(t, c.repo, "show", mute.task, "--json"))
	if err := syscall.Kill(v.Supervisor.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(v.Supervisor.PID, syscall.SIGCONT) }()
	// Far below the two minutes that an operation that changes files is waited for.
	r := id.Within(t, time.Minute, c.repo, "approve")
	if r.Exit != 0 || !strings.Contains(r.Stdout, p.q.ID) || !strings.Contains(r.Stdout, "asker ("+c.task+")") || !strings.Contains(r.Stdout, "caisson deny "+p.q.ID) || !strings.Contains(r.Stderr, mute.task) {
		t.Errorf("the list: %v", r)
	}
	if r := id.Within(t, time.Minute, c.repo, "approve", mute.task+".abcdef"); r.Exit == 0 || !strings.Contains(r.Stderr, "does not answer") {
		t.Errorf("a question of the silent one: %v", r)
	}
	if r := id.Within(t, time.Minute, c.repo, "approve", p.q.ID); r.Exit != 0 || r.Stdout != p.q.ID+": allowed, this once\n" || strings.Contains(r.Stderr, mute.task) {
		t.Errorf("an answer: %v", r)
	}
	p.is("allowed", <-p.done, "")
	p = asks(c, contract.Shell, contract.ShellArgs{Command: "true"})
	if r := id.Within(t, time.Minute, c.repo, "deny", "asker"); r.Exit != 0 || r.Stdout != p.q.ID+": denied\n" {
		t.Errorf("by the task's name: %v", r)
	}
	p.is("denied", <-p.done, "denied")
	if r := id.Within(t, time.Minute, c.repo, "approve", "asker"); r.Exit == 0 || !strings.Contains(r.Stderr, "nothing in task") {
		t.Errorf("nothing waits: %v", r)
	}
}
