//go:build linux

package worker_test

import (
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

func TestFirstCall(t *testing.T) {
	b := start(t)
	exit, out, _ := b.sh("echo hello; ls /proc/self/fd | wc -l; exit 7")
	if exit != 7 || out != "hello\n4\n" { // 0, 1, 2 and ls's own
		t.Fatalf("exit %d, out %q", exit, out)
	}
}

func TestNotStarted(t *testing.T) {
	b := start(t)
	dir := t.TempDir()
	for _, c := range []struct {
		cmd  worker.Command
		code task.Code
	}{
		{worker.Command{Argv: []string{"no-such-program"}}, task.CodeNoCommand},
		{worker.Command{Argv: []string{"/no/such/program"}}, task.CodeNoCommand},
		{worker.Command{Argv: []string{""}}, task.CodeNoCommand},
		{worker.Command{Argv: []string{"/etc/passwd"}}, task.CodeNotExecutable},
		{worker.Command{Argv: []string{"/etc"}}, task.CodeNotExecutable},
		{worker.Command{Argv: []string{"true"}, Dir: dir + "/absent"}, task.CodeNotFound},
		{worker.Command{}, task.CodeUsage},
	} {
		r, err := b.exec(c.cmd)
		if task.CodeOf(err) != c.code {
			t.Errorf("%+v: %v (%s), want %s", c.cmd, err, task.CodeOf(err), c.code)
		}
		_ = r
	}
	if exit, _, _ := b.sh("exit 0"); exit != 0 {
		t.Error("a refused start spoiled the channel")
	}
}
