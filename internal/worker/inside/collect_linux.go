package inside

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// collector is I's garbage collection, by hand.
//
// The runtime's own may begin at any moment, and begins by waiting for every
// thread that runs Go. One that is just starting a guardian counts as such until
// the guardian's exec, and until then a tool can stop it (kill -STOP -1). The
// collection would wait for it, all of I for the collection, and the reaper,
// which wakes stopped guardians, would wait with the rest: for ever.
type collector struct {
	mu    sync.Mutex // held while a child is started, and while collecting
	since int        // bytes that frames brought since the last time; of the reader alone
	timer *time.Timer
}

const (
	collectAt = 4 << 20 // guessed garbage
	// collectLimit is where the runtime begins by itself after all: rather that
	// risk than the boundary's memory.
	collectLimit = 64 << 20
)

// byHand switches the runtime's own timing off.
func (c *collector) byHand() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(collectLimit)
	c.timer = time.AfterFunc(time.Second, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		debug.FreeOSMemory()
	})
}

// rest is to be called after work; see resting.
func (c *collector) rest() { c.timer.Reset(time.Second) }

// took counts a frame.
func (c *collector) took(body int) {
	// What a decoded body and its call leave behind, generously.
	if c.since += 4*body + 8<<10; c.since < collectAt {
		return
	}
	c.since = 0
	c.collect()
}

// collect collects now.
func (c *collector) collect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	runtime.GC()
}
