// Package source is everything that runs git or touches the user's checkout:
// it finds the repository and its base, gives a task its private clone, and
// brings back what the task made of it, verified.
//
// Its limit: it runs no project code, trusts no configuration that a checkout
// or a boundary wrote, changes nothing of the user's but refs below
// refs/caisson/<task>/ and the objects they need, and never opens a task's own
// git directory with git.
package source

import (
	"context"
	"os"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// Workspace names the folder of one task. Everything else a call needs was
// written into it by Prepare, so any process can do it later.
type Workspace struct {
	Task task.ID
	// Dir is the task's folder, absolute and without links. Prepare makes
	// source and shadow.git in it; kept is made when something is kept.
	Dir   string
	Token string
	// Files is where the task's files are, when they are not in Dir/source: the
	// user's own checkout, with the strategy of that name.
	Files string
	// Progress tells what goes on when it takes long; may be nil. It may be
	// called from another goroutine than the caller's.
	Progress func(string)
}

func (ws Workspace) source() string {
	if ws.Files != "" {
		return ws.Files
	}
	return ws.Dir + "/source"
}

func (ws Workspace) shadow() string { return ws.Dir + "/shadow.git" }
func (ws Workspace) kept() string   { return ws.Dir + "/kept" }

// say passes a progress line on.
func (ws Workspace) say(s string) {
	if ws.Progress != nil {
		ws.Progress(s)
	}
}

// refPrefix is where everything of a task lives in the user's repository.
func refPrefix(id task.ID) string { return "refs/caisson/" + string(id) + "/" }

// RememberIn has kept in dir, a private folder, what else every process would start
// git once more to ask for: its version, and which files Named found.
func RememberIn(dir string) {
	git.RememberIn(dir)
	rememberNamedIn(dir)
}

// findGit returns the host's git.
func findGit(ctx context.Context) (*git.Git, error) { return git.Find(ctx, os.Getenv("PATH")) }

// quote shows a path in a message.
func quote(path string) string { return task.QuotePath(path) }
