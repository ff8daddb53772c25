package wire

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"
)

// A supervisor sleeps nearly all the time, and there is one for each open task:
// what it holds while it sleeps counts. restEvery is how often it looks.
const restEvery = 10 * time.Second

// dbRestAfter is how long a resident that does not use the inventory keeps it open.
const dbRestAfter = time.Second

// restAfter is how many bytes of work are worth a collection.
const restAfter = 1 << 20

// rest gives back to the kernel, until ctx ends, what the work of a moment left
// in memory.
func rest(ctx context.Context) {
	t := time.NewTimer(time.Second) // soon after the task is ready
	defer t.Stop()
	var worked uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.TotalAlloc-worked > restAfter {
			worked = m.TotalAlloc
			debug.FreeOSMemory()
		}
		t.Reset(restEvery)
	}
}
