//go:build linux

package conformance

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// onTerminal runs a program with a terminal of its own and returns what came
// out there.
func onTerminal(t *testing.T, cmd *exec.Cmd, uid int) string {
	t.Helper()
	master, slave, err := harness.OpenPTY(24, 80)
	if err != nil {
		t.Skipf("no pty on this machine: %v", err)
	}
	defer master.Close()
	defer slave.Close()
	_ = slave.Chown(uid, uid)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var out bytes.Buffer
	done := make(chan struct{})
	go func() { _, _ = io.Copy(&out, master); close(done) }()
	err = cmd.Wait()
	<-done
	if err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	var lines []string // the echo of pushed input stands before some
	for l := range strings.Lines(out.String()) {
		if i := strings.IndexByte(l, '{'); i >= 0 {
			lines = append(lines, l[i:])
		}
	}
	return strings.Join(lines, "")
}

// TestTerminal is P30: a program on a terminal cannot type into it, and the
// terminal is not the host's.
func TestTerminal(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		path, _ := attacker()
		task := id.Open(t, repo)
		ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
		defer cancel()
		in := jsonOf(config{Inside: true, Work: repo})
		inside := outcomes(t, onTerminal(t, id.Command(ctx, repo, harness.Bin(), "exec", task, "--", repo+"/attacker", "tty", in), id.UID))
		control := outcomes(t, onTerminal(t, id.Command(ctx, repo, path, "tty", jsonOf(config{})), id.UID))
		if _, ok := inside["PTS true"]; !ok {
			t.Error("the terminal inside is none of the boundary's own")
		}
		delete(inside, "PTS true")
		judge(t, id, inside, control)

		// Without a terminal there is none to open either.
		r := execAttacker(t, id, repo, task, "tty", in)
		for key, o := range outcomes(t, r.Stdout) {
			if o.Prop == "P30" && o.Errno == "" {
				t.Errorf("without a terminal: %s: POSSIBLE", key)
			}
		}
	})
}
