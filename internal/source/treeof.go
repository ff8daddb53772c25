package source

import "context"

// TreeNow returns the name of the tree that a task's files are now, without the
// ignored ones. It has no lasting effect.
func TreeNow(ctx context.Context, ws Workspace) (string, error) {
	_, _, tree, err := ws.lookAt(ctx)
	return tree, err
}
