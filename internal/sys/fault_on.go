//go:build faults

package sys

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ErrFault is what an injected failure returns.
var ErrFault = errors.New("injected fault")

var faults = struct {
	mu    sync.Mutex
	known map[string]bool
	hits  map[string]int
}{known: map[string]bool{}, hits: map[string]int{}}

// RegisterFaults names fault points at package level: var _ = RegisterFaults(…).
func RegisterFaults(names ...string) struct{} {
	faults.mu.Lock()
	defer faults.mu.Unlock()
	for _, n := range names {
		if faults.known[n] {
			panic("fault point registered twice: " + n)
		}
		faults.known[n] = true
	}
	return struct{}{}
}

// FaultPoints lists the registered points, sorted.
func FaultPoints() []string {
	faults.mu.Lock()
	defer faults.mu.Unlock()
	return slices.Sorted(maps.Keys(faults.known))
}

// Fault acts on CAISSON_FAULT, a comma-separated list of NAME:ACTION[:N].
// At the Nth time (every time when absent) that the process passes NAME it
// dies of SIGKILL (kill), gets an error that matches ErrFault (error), or
// stops itself with SIGSTOP until it is continued (pause).
func Fault(name string) error {
	faults.mu.Lock()
	if !faults.known[name] {
		faults.mu.Unlock()
		panic("fault point is not registered: " + name)
	}
	faults.hits[name]++
	hit := faults.hits[name]
	faults.mu.Unlock()
	for spec := range strings.SplitSeq(os.Getenv("CAISSON_FAULT"), ",") {
		f := strings.Split(spec, ":")
		if len(f) < 2 || f[0] != name {
			continue
		}
		if len(f) > 2 {
			at, err := strconv.Atoi(f[2])
			if err != nil {
				panic("CAISSON_FAULT: " + spec)
			}
			if hit != at {
				continue
			}
		}
		switch f[1] {
		case "kill":
			killSelf()
		case "pause":
			stopSelf()
		case "error":
			return fmt.Errorf("%s: %w", name, ErrFault)
		default:
			panic("CAISSON_FAULT: " + spec)
		}
	}
	return nil
}
