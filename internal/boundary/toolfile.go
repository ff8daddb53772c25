package boundary

import (
	"context"
	"encoding/json"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
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
	var found func(json.RawMessage)
	if k.tells() {
		found = func(part json.RawMessage) { k.o.Output(door.FoundStream, part) }
	}
	r, err := wk.ToolFound(tctx, k.tool, k.canonical, nil, found)
	if err != nil {
		return err
	}
	k.file = r.File
	res.Claimed.Result, res.Claimed.Failure = r.Result, r.Failure
	if tctx.Err() != nil && r.Failure != nil {
		res.Observed.Reason = whyEnded(tctx)
		if ctx.Err() != nil {
			return task.Errorf(task.CodeCanceled, "tool", "canceled: %w", context.Cause(ctx))
		}
	}
	return nil
}

// tells reports whether the caller hears of what a search finds before it ends.
func (k *toolCall) tells() bool {
	return k.o.Output != nil && (k.tool == contract.Grep || k.tool == contract.Glob)
}
