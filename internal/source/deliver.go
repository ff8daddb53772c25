package source

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// delivery brings objects from a git directory of the host's own into a
// repository of the user's.
type delivery struct {
	g    *git.Git
	task task.ID
	from string // the host's own git directory; its folder also takes the pack
	to   string // the user's common git directory
}

// pack writes the objects that want reaches and not does not, into a file of
// ours. n is how many there are. The caller removes the file.
func (d *delivery) pack(ctx context.Context, want, not []string) (path string, n uint32, err error) {
	f, err := os.CreateTemp(d.from, "out-*.pack")
	if err != nil {
		return "", 0, task.Errorf(task.CodeStateStore, "source.publish", "the pack cannot be made: %v", err)
	}
	defer f.Close()
	if err := packTo(ctx, packing{g: d.g, dir: d.from, want: want, not: not}, f); err != nil {
		os.Remove(f.Name())
		return "", 0, err
	}
	var head [12]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		os.Remove(f.Name())
		return "", 0, task.Errorf(task.CodeStateStore, "source.publish", "the pack cannot be read: %v", err)
	}
	return f.Name(), binary.BigEndian.Uint32(head[8:]), nil
}

// packing says which objects make a pack.
type packing struct {
	g         *git.Git
	dir       string
	want, not []string
}

// packTo writes a pack without references to objects outside of it.
func packTo(ctx context.Context, p packing, w io.Writer) error {
	in := strings.Join(p.want, "\n") + "\n"
	if len(p.not) > 0 {
		in += "--not\n" + strings.Join(p.not, "\n") + "\n"
	}
	_, err := p.g.Run(ctx, git.Cmd{
		GitDir: p.dir, Args: []string{"pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"},
		Stdin: strings.NewReader(in), Stdout: w,
	})
	if err != nil && (git.Status(err) >= 0 || task.CodeOf(err) == task.CodeInternal) {
		return task.Errorf(task.CodeSource, "source.publish", "the task's commits cannot be packed: %v", err)
	}
	return err
}

// complete reports whether a commit is in the user's repository with all that
// it leads to. No object below a ref of the repository's own is looked at again.
func (d *delivery) complete(ctx context.Context, commit string) (bool, error) {
	out, err := d.g.Run(ctx, git.Cmd{
		GitDir: d.to, Args: []string{"cat-file", "--batch-check=%(objecttype)"}, Stdin: strings.NewReader(commit + "\n"),
	})
	if err != nil {
		return false, broken("run `git fsck` there", "the objects of %s cannot be read: %v", quote(d.to), err)
	}
	if strings.TrimSpace(string(out)) != "commit" {
		return false, nil
	}
	// A ref of the user's may name an object that is gone.
	_, err = d.g.Run(ctx, git.Cmd{
		GitDir: d.to, Stdout: io.Discard,
		Args: []string{"rev-list", "--objects", "--quiet", "--ignore-missing", commit, "--not", "--branches", "--tags", "--remotes", "--glob=refs/caisson/*"},
	})
	if git.Status(err) > 0 {
		return false, nil
	}
	return err == nil, err
}
