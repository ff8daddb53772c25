//go:build linux

package linux

import (
	"context"
	"sort"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

// BenchmarkOpen is a cold start in a process that is there already: from the
// request to a sealed boundary, to the worker's answer over the channel, to the
// end of a first built-in-free call, and the removal.
func BenchmarkOpen(b *testing.B) {
	d := New(Config{Worker: func() (string, error) { return workerPath, nil }}).(*Driver)
	ctx := context.Background()
	spec := newSpec(b)
	var create, hello, destroy, cpu []time.Duration
	for b.Loop() {
		s := spec
		s.Task, s.Token = task.NewID(), task.NewToken()
		used := cpuTime()
		at := time.Now()
		i, err := d.Create(ctx, s)
		if err != nil {
			b.Skipf("no boundary can be made here: %v", err)
		}
		create = append(create, time.Since(at))
		conn, err := i.Dial(ctx)
		if err != nil {
			b.Fatal(err)
		}
		c, err := worker.Start(ctx, conn, worker.Options{WorkerPID: i.(*instance).proc.pid})
		if err == nil {
			err = c.Ping(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
		hello = append(hello, time.Since(at))
		at = time.Now()
		_ = c.Close()
		if err := i.Destroy(ctx); err != nil {
			b.Fatal(err)
		}
		destroy = append(destroy, time.Since(at))
		cpu = append(cpu, cpuTime()-used)
	}
	for _, m := range []struct {
		name string
		took []time.Duration
	}{{"create", create}, {"hello", hello}, {"destroy", destroy}, {"cpu", cpu}} {
		sort.Slice(m.took, func(i, j int) bool { return m.took[i] < m.took[j] })
		b.ReportMetric(float64(m.took[0].Microseconds())/1000, m.name+"-min-ms")
		b.ReportMetric(float64(m.took[len(m.took)/2].Microseconds())/1000, m.name+"-p50-ms")
	}
}

// cpuTime is what this process and the boundaries it waited for have used. It
// says more than the clock on a machine that has other work.
func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
		}
	}
	return sum
}
