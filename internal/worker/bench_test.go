//go:build linux

package worker_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/worker"
)

// BenchmarkExec is one call from request to observed exit, against a bare
// start of the same program. The roles are played by the test program, which
// is larger than the worker; p50 is reported beside the mean.
func BenchmarkExec(b *testing.B) {
	for _, prog := range []string{"/bin/true"} {
		b.Run("inside", func(b *testing.B) {
			bx := start(b)
			fs := devNull(b)
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				c, err := bx.client.Exec(context.Background(), worker.Command{Argv: []string{prog}}, fs)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Wait(context.Background()); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(at))
			}
			report(b, took)
			b.Log(memory(bx))
		})
		b.Run("bare", func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				if err := exec.Command(prog).Run(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(at))
			}
			report(b, took)
		})
	}
	b.Run("ping", func(b *testing.B) {
		bx := start(b)
		var took []time.Duration
		for b.Loop() {
			at := time.Now()
			if err := bx.client.Ping(context.Background()); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(at))
		}
		report(b, took)
	})
}

func report(b *testing.B, took []time.Duration) {
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	b.ReportMetric(float64(took[0].Microseconds()), "min-µs")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// memory says what W and I use, as the kernel shares it out.
func memory(bx *box) string {
	pid := bx.cmd.Process.Pid
	var out []string
	for _, p := range []string{fmt.Sprint(pid), fmt.Sprint(bx.space())} {
		roll, _ := os.ReadFile("/proc/" + p + "/smaps_rollup")
		for line := range strings.Lines(string(roll)) {
			f := strings.Fields(line)
			if len(f) == 3 && (f[0] == "Pss:" || f[0] == "Private_Dirty:") {
				out = append(out, f[0]+f[1])
			}
		}
	}
	return strings.Join(out, " ")
}
