package boundary

import (
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/task"
)

// goneOut is what crossed all the ways out of a task since it was opened, also
// before it was resumed: its numbers go on, and what it moved stays moved.
type goneOut struct {
	crossings atomic.Uint64
	bytes     atomic.Int64
	used      map[string]int // credentials, by handle
}

// goneOut returns it, read from the record the first time.
func (l *live) goneOut() (*goneOut, error) {
	l.mu.Lock()
	g := l.gone
	l.mu.Unlock()
	if g != nil {
		return g, nil
	}
	g, err := readGone(filepath.Join(l.dir, "evidence"))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone == nil {
		l.gone = g
	}
	return l.gone, nil
}

// readGone adds up a record.
func readGone(dir string) (*goneOut, error) {
	g := &goneOut{used: map[string]int{}}
	for e, err := range evidence.Read(dir, 1) {
		if err != nil {
			return nil, task.Errorf(task.CodeEvidence, "way", "what left the task so far cannot be read from its record: %w", err)
		}
		if e.Type == evidence.CredentialUsed {
			f := e.Fields()
			if h, ok := f["handle"].(string); ok {
				g.used[h] = max(g.used[h], int(number(f["uses"])))
			}
		}
		if e.Type != evidence.EgressDecided && e.Type != evidence.EgressEnded {
			continue
		}
		f := e.Fields()
		if n := uint64(number(f["crossing"])); n > g.crossings.Load() {
			g.crossings.Store(n)
		}
		if e.Type == evidence.EgressEnded {
			g.bytes.Add(number(f["up"]) + number(f["down"]))
		}
	}
	return g, nil
}

// number is a count in a record; 0 is none.
func number(v any) int64 {
	switch n := v.(type) {
	case float64:
		return int64(n)
	case interface{ Int64() (int64, error) }:
		i, _ := n.Int64()
		return i
	case string:
		i, _ := strconv.ParseInt(n, 10, 64)
		return i
	}
	return 0
}

// burst is how many connections may begin at once with a rate: of two seconds; 0
// leaves the default.
func burst(rate int64) int { return int(2 * rate) }
