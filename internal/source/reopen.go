package source

import (
	"os"

	"github.com/caisson-dev/caisson/internal/task"
)

// Reopen returns what a new boundary needs to know about files that a task
// left: what Inspect once found and Prepare wrote down. ref and objects are
// what is on record. It refuses when something of it is gone.
func Reopen(ws Workspace, ref task.SourceRef, objects []string) (*Repo, error) {
	s, err := ws.loadState()
	if err != nil {
		return nil, err
	}
	if i, err := os.Lstat(ws.source()); err != nil || !i.IsDir() {
		return nil, task.Errorf(task.CodeState, "source.reopen", "the files of task %s are gone", ws.Task).
			WithHint("`caisson show %s` lists its results; `caisson open` starts a new task", ws.Task)
	}
	for _, o := range objects {
		if i, err := os.Stat(o); err != nil || !i.IsDir() {
			return nil, task.Errorf(task.CodeSource, "source.reopen", "the object store %s, which the task's repository needs, is gone", quote(o)).
				WithHint("put the repository back to where it was; `caisson diff %s` needs it too", ws.Task)
		}
	}
	r := &Repo{Ref: ref, Identity: s.Identity, Objects: objects, Tips: s.Tips, Pinnable: s.Pinned, reopened: true}
	return r, ws.recallTold(s, r)
}
