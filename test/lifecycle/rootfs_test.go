//go:build linux

package lifecycle

import (
	"os"
	"os/exec"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestRootKilled kills caisson while it unpacks the archive that is a task's root.
func TestRootKilled(t *testing.T) {
	t.Parallel()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no static busybox here to make a root of")
	}
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		data, err := os.ReadFile(busybox)
		if err != nil {
			t.Fatal(err)
		}
		id.Write(t, id.Tmp+"/root/bin/busybox", string(data), 0o755)
		archive := id.Tmp + "/root.tar"
		if r := harness.Run(t, id.Command(t.Context(), id.Tmp, "tar", "-C", id.Tmp+"/root", "-cf", archive, ".")); r.Exit != 0 {
			t.Fatal(r)
		}
		argv := []string{"run", "--rootfs", archive, "--", "/bin/busybox", "true"}
		for i, target := range []string{"root.unpacking", "root.unpacked"} {
			cmd := w.start([]string{"CAISSON_FAULT=" + target + ":kill"}, argv...)
			if _ = cmd.Wait(); !killed(cmd) {
				t.Errorf("%s: was not killed", target)
			}
			w.settle(target, i)
		}
		w.ok(argv...)
	})
}
