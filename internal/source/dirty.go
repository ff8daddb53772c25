package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// maxIndex bounds the index that is copied for a look at the user's checkout;
// a larger one is not looked at.
const maxIndex = 512 << 20

// noteTime bounds each question of that look, for which the start of a task
// waits: a FIFO that is called .gitignore would keep git for ever.
var noteTime = 30 * time.Second

// Uncommitted says in one line what of the user's checkout a task at HEAD does
// not have: changed and untracked files. Empty when there is nothing, or when
// it cannot be told cheaply. It needs the shadow repository that Prepare made:
// git reads a copy of the user's index under caisson's own git directory, so
// that nothing the user's repository configures can run, and writes nothing.
func Uncommitted(ctx context.Context, r *Repo, ws Workspace) (string, error) {
	if r.Ref.Strategy == task.StrategyCheckout || r.Ref.Dirty != task.DirtyNone || r.Ref.Base == "" || r.Ref.BaseRev != "" && r.Ref.BaseRev != "HEAD" {
		return "", nil // another revision was asked for: the checkout is not meant
	}
	index := filepath.Join(ws.shadow(), "look.index") // goes with it, should this process be killed
	defer os.Remove(index)
	if ok, err := copyIndex(filepath.Join(r.gitDir, "index"), index); err != nil || !ok {
		return "", err
	}
	run := func(args ...string) ([]string, error) {
		out, err := r.git.Run(ctx, git.Cmd{GitDir: ws.shadow(), WorkTree: r.Ref.Repo, Max: 4 << 20, Timeout: noteTime,
			Env: []string{"GIT_INDEX_FILE=" + index, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + r.objects}, Args: args})
		if err != nil {
			return nil, err
		}
		names, _ := git.SplitZ(out)
		return names, nil
	}
	var changed, untracked []string
	var e1, e2 error
	var wg sync.WaitGroup
	wg.Go(func() {
		diff := []string{"diff-index", "--name-only", "-z", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=all", r.Ref.Base, "--"}
		if changed, e1 = run(diff...); e1 != nil || len(changed) == 0 {
			return
		}
		// What only looks changed, by its times, is compared now. The status
		// says that something really is, not that the call failed.
		_, _ = run("update-index", "-q", "--ignore-submodules", "--refresh")
		changed, e1 = run(diff...)
	})
	wg.Go(func() {
		untracked, e2 = run("ls-files", "-z", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
	})
	wg.Wait()
	if err := errors.Join(e1, e2); err != nil {
		return "", err
	}
	all := append(changed, untracked...)
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 {
		return "", nil
	}
	const show = 3
	var names []string
	for i, n := range all {
		if i == show {
			names = append(names, "…")
			break
		}
		names = append(names, quote(n))
	}
	what := "1 uncommitted file of your checkout is"
	if len(all) > 1 {
		what = fmt.Sprintf("%d uncommitted files of your checkout are", len(all))
	}
	return fmt.Sprintf("%s not in the task, which starts from the commit: %s", what, strings.Join(names, ", ")), nil
}

// copyIndex copies the user's index; false when there is none to look at. The
// copy keeps the time of the original: git takes an entry for unchanged by its
// times alone only when its file was last written before the index was, and of a
// copy that looks younger it would miss what was changed right after `git add`.
func copyIndex(from, to string) (bool, error) {
	in, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxIndex {
		return false, err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(out, io.LimitReader(in, st.Size()))
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chtimes(to, st.ModTime(), st.ModTime())
	}
	return err == nil, err
}

// sameTime gives a copy of an index the time of the original (see copyIndex).
func sameTime(from, to string) error {
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	return os.Chtimes(to, st.ModTime(), st.ModTime())
}

// copyOwnIndex copies an index of ours, with its time (see copyIndex).
func copyOwnIndex(from, to string) error {
	if err := copyFile(from, to, 0o600); err != nil {
		return err
	}
	return sameTime(from, to)
}

// splitParts lists the files in which a split index has its other part.
func splitParts(gitDir string) []string {
	parts, _ := filepath.Glob(globEscape(gitDir) + "/sharedindex.*")
	return parts
}

// copySplit copies them to dir and names the copies, also when it fails.
func copySplit(gitDir, dir string) (made []string, err error) {
	for _, p := range splitParts(gitDir) {
		to := filepath.Join(dir, filepath.Base(p))
		_ = os.Remove(to)
		made = append(made, to)
		if ok, err := copyIndex(p, to); err != nil || !ok {
			return made, errors.Join(err, fmt.Errorf("%s cannot be copied", quote(p)))
		}
	}
	return made, nil
}
