package egress

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bound what one task may do. A zero takes the default.
type Limits struct {
	Conns     int     // at a time; 1024
	PerSecond float64 // new ones, refused ones among them; 500. Who is faster waits.
	Burst     int     // new ones at once; 1000
	// Bytes is the most in both directions together; 0 is no limit. It is looked
	// at once per chunk, so each open connection may go over it by one of those.
	Bytes int64
	// Moved is where bytes are counted, for several gates of one task; nil: each
	// gate begins with none.
	Moved *atomic.Int64
}

type limiter struct {
	Limits
	conns chan struct{} // holds one for each open connection
	bytes *atomic.Int64

	mu    sync.Mutex
	level float64 // how many may begin now; below zero: already promised
	at    time.Time
}

func newLimiter(l Limits) *limiter {
	if l.Conns <= 0 {
		l.Conns = 1024
	}
	if l.PerSecond <= 0 {
		l.PerSecond = 500
	}
	if l.Burst <= 0 {
		l.Burst = 1000
	}
	if l.Moved == nil {
		l.Moved = new(atomic.Int64)
	}
	return &limiter{Limits: l, bytes: l.Moved, conns: make(chan struct{}, l.Conns), level: float64(l.Burst), at: time.Now()}
}

// maxWait is how long one waits that comes too soon.
const maxWait = 20 * time.Second

// pace waits until one more may begin.
func (l *limiter) pace(ctx context.Context) error {
	l.mu.Lock()
	now := time.Now()
	l.level = min(float64(l.Burst), l.level+now.Sub(l.at).Seconds()*l.PerSecond)
	l.at = now
	wait := time.Duration((1 - l.level) / l.PerSecond * float64(time.Second))
	if wait > maxWait {
		l.mu.Unlock()
		return refuse(ReasonLimit, "the task begins more than %g connections a second", l.PerSecond)
	}
	l.level--
	l.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return refuse(ReasonClosed, "%v", context.Cause(ctx))
	}
}

// admit lets one connection in; leave lets it out again.
func (l *limiter) admit(ctx context.Context) error {
	if err := l.pace(ctx); err != nil {
		return err
	}
	if l.left() <= 0 {
		return refuse(ReasonLimit, "the task has moved the %d bytes that it may", l.Bytes)
	}
	select {
	case l.conns <- struct{}{}:
		return nil
	default:
		return refuse(ReasonLimit, "the task has %d connections open, which is all it may", l.Conns)
	}
}

func (l *limiter) leave() { <-l.conns }

// moved counts n bytes.
func (l *limiter) moved(n int64) { l.bytes.Add(n) }

// left is how many more may be moved.
func (l *limiter) left() int64 {
	if l.Bytes <= 0 {
		return 1 << 62
	}
	return l.Bytes - l.bytes.Load()
}
