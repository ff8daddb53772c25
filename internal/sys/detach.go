package sys

import (
	"context"
	"errors"
	"time"
)

// ErrDeadline is the cause of a detached context that ran out of time.
var ErrDeadline = errors.New("the time for this step ran out")

// Detach returns a context that keeps ctx's values, is not cancelled with it
// and ends after d. Cleanup runs on it: the cancellation that makes cleanup
// necessary must not stop it.
func Detach(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), d, ErrDeadline)
}
