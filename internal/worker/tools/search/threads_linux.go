package search

import (
	"runtime"
	"sync"
)

// Helpers is how many goroutines of this package, besides one per call, may be
// in a system call at once, all calls together. The worker makes as many threads
// while it can still have them.
const Helpers = 3

// crew lends helpers, and processors for them: the worker rests on one.
var crew struct {
	mu   sync.Mutex
	lent int
	rest int // processors while none is lent
}

// helpers takes as many as there are processors for, perhaps none. They go
// back to dismiss.
func helpers() int {
	want := min(runtime.NumCPU()-1, Helpers)
	crew.mu.Lock()
	defer crew.mu.Unlock()
	n := min(want, Helpers-crew.lent)
	if n <= 0 {
		return 0
	}
	if crew.lent == 0 {
		crew.rest = runtime.GOMAXPROCS(0)
	}
	crew.lent += n
	if procs := max(crew.rest, min(crew.lent+1, runtime.NumCPU())); procs != runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(procs)
	}
	return n
}

func dismiss(n int) {
	if n == 0 {
		return
	}
	crew.mu.Lock()
	defer crew.mu.Unlock()
	if crew.lent -= n; crew.lent == 0 && runtime.GOMAXPROCS(0) != crew.rest {
		runtime.GOMAXPROCS(crew.rest)
	}
}
