package search

import (
	"time"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// tellEvery is how long a search waits before it tells of more.
const tellEvery = 50 * time.Millisecond

// teller tells what was found while a search goes on.
type teller struct {
	found func(any) // nil: nobody listens
	every time.Duration
	last  time.Time

	files, searched int // told
}

func newTeller(p *Place) teller {
	t := teller{found: p.Found, every: p.FoundEvery, last: time.Now()}
	if t.every <= 0 {
		t.every = tellEvery
	}
	return t
}

// due reports whether it is time to tell that there are so many files.
func (t *teller) due(files int) bool {
	if t.found == nil || files <= t.files {
		return false
	}
	now := time.Now()
	if now.Sub(t.last) < t.every {
		return false
	}
	t.last = now
	return true
}

func (t *teller) grep(r *contract.GrepResult) {
	if !t.due(len(r.Files)) {
		return
	}
	part := &contract.GrepResult{Files: r.Files[t.files:len(r.Files):len(r.Files)], Searched: r.Searched - t.searched}
	for _, f := range part.Files {
		part.Matches += f.Count
	}
	t.files, t.searched = len(r.Files), r.Searched
	t.found(part)
}

func (t *teller) glob(r *contract.GlobResult) {
	if !t.due(len(r.Files)) {
		return
	}
	part := &contract.GlobResult{Files: r.Files[t.files:len(r.Files):len(r.Files)]}
	t.files = len(r.Files)
	t.found(part)
}
