package source

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// savedChange makes the commit that saves what a task without a repository
// changed: its tree has the changed files as they are, its parent's tree has
// them as they were. What did not change is where it came from and would only
// make the bundle as large as the folder.
func (ws Workspace) savedChange(ctx context.Context, v view) (string, error) {
	s := v.s
	fail := func(err error) (string, error) {
		return "", task.Errorf(task.CodeSource, "source.snapshot", "the changes cannot be committed: %v", err)
	}
	g, err := findGit(ctx)
	if err != nil {
		return "", err
	}
	var was, is strings.Builder
	for _, c := range v.changes {
		if c.OldMode != 0 {
			fmt.Fprintf(&was, "%o %s\t%s\x00", c.OldMode, c.oldOID, c.Path)
		}
		if c.NewMode != 0 {
			fmt.Fprintf(&is, "%o %s\t%s\x00", c.NewMode, c.newOID, c.Path)
		}
	}
	parent := ""
	for _, part := range []struct{ what, entries string }{{"as they were", was.String()}, {"as caisson task " + string(ws.Task) + " left them", is.String()}} {
		tree, err := ws.treeFrom(ctx, g, part.entries)
		if err != nil {
			return fail(err)
		}
		parent, err = commitTree(ctx, g, commitSpec{
			dir: ws.shadow(), tree: tree, parent: parent, who: s.Identity, when: time.Now().Unix(),
			message: "changed files of " + strings.ReplaceAll(s.Repo, "\n", " ") + " " + part.what + "\n",
		})
		if err != nil {
			return "", err
		}
	}
	return parent, nil
}

// treeFrom makes a tree of entries as `git update-index --index-info` reads them.
func (ws Workspace) treeFrom(ctx context.Context, g *git.Git, entries string) (string, error) {
	f, err := os.CreateTemp(ws.shadow(), "part-*.index")
	if err != nil {
		return "", err
	}
	index := f.Name()
	f.Close()
	defer os.Remove(index)
	if err := os.Remove(index); err != nil { // git takes an empty file for a broken index
		return "", err
	}
	cmd := func(stdin string, args ...string) git.Cmd {
		cmd := ws.shadowCmd(args...)
		cmd.Stdin, cmd.Env = strings.NewReader(stdin), []string{"GIT_INDEX_FILE=" + index}
		return cmd
	}
	if _, err := g.Run(ctx, cmd(entries, "update-index", "-z", "--add", "--index-info")); err != nil {
		return "", err
	}
	return oneLine(ctx, g, cmd("", "write-tree"))
}
