package boundary

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

// errFileTime is the cause of a file tool that took too long.
var errFileTime = task.Errorf(task.CodeLimit, "tool", "timeout: the call's time of %s is over", fileTime)

// fileTool has the worker do a file tool. What it answers is a claim.
func (m *Manager) fileTool(ctx context.Context, l *live, k *toolCall, res *task.ToolResult) error {
	_, wk := l.standing()
	tctx, stop := context.WithTimeoutCause(ctx, fileTime, errFileTime)
	defer stop()
	// The end of the task ends it too.
	tctx, cancel := context.WithCancelCause(tctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	r, err := wk.Tool(tctx, k.tool, k.canonical, nil)
	if err != nil {
		return err
	}
	r.Close() // the whole of a file that was cut: whoever wants it reads on
	res.Claimed.Result, res.Claimed.Failure = r.Result, r.Failure
	if tctx.Err() != nil && r.Failure != nil {
		res.Observed.Reason = whyEnded(tctx)
		if ctx.Err() != nil {
			return task.Errorf(task.CodeCanceled, "tool", "canceled: %w", context.Cause(ctx))
		}
	}
	return nil
}
