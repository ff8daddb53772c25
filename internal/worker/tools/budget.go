//go:build linux

package tools

import (
	"context"
	"sync"
)

// budget is the memory that all calls together may hold for whole files, so
// that many edits of large files at once wait for each other instead of growing.
var budget = &pool{left: 96 << 20, most: 96 << 20}

// pool is a number of bytes that is lent.
type pool struct {
	mu    sync.Mutex
	left  int64
	most  int64
	freed chan struct{} // closed and replaced when something came back
}

// take waits until n bytes are free, or ctx ends: then the call goes on and sees
// that itself before it does anything. More than all there is counts as all. The
// returned function gives them back.
func (p *pool) take(ctx context.Context, n int64) func() {
	if n = min(n, p.most); n < 1<<20 {
		return func() {} // small files do not count
	}
	for {
		p.mu.Lock()
		if p.left >= n {
			p.left -= n
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				p.left += n
				if p.freed != nil {
					close(p.freed)
					p.freed = nil
				}
				p.mu.Unlock()
			}
		}
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return func() {}
		}
	}
}
