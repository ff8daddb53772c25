package source

import (
	"context"
	"encoding/binary"
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

// maxPlainIndex bounds one that is read here; git reads a larger one.
const maxPlainIndex = 64 << 20

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
	run := r.lookWith(ctx, ws, index)
	all, plain, err := uncommittedPlain(r, ws, index, run)
	if !plain {
		all, err = uncommittedAny(r, run)
	}
	if err != nil {
		return "", err
	}
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

// lookWith returns what runs git under caisson's own git directory with that index
// and the user's checkout, and splits its answer.
func (r *Repo) lookWith(ctx context.Context, ws Workspace, index string) func(args ...string) ([]string, error) {
	return func(args ...string) ([]string, error) {
		out, err := r.git.Run(ctx, git.Cmd{GitDir: ws.shadow(), WorkTree: r.Ref.Repo, Max: 4 << 20, Timeout: noteTime,
			Env: []string{"GIT_INDEX_FILE=" + index, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + r.objects}, Args: args})
		if err != nil {
			return nil, err
		}
		names, _ := git.SplitZ(out)
		return names, nil
	}
}

// uncommittedPlain finds with one start of git what is not as in the base: what is
// staged are the differences of two indexes that we read ourselves, as long as the
// user's is one that says nothing but which files there are. plain is false where it
// is another.
func uncommittedPlain(r *Repo, ws Workspace, index string, run func(...string) ([]string, error)) (names []string, plain bool, err error) {
	was, ok := readPlainIndex(filepath.Join(ws.shadow(), baseIndex), r.format)
	if !ok {
		return nil, false, nil
	}
	is, ok := readPlainIndex(index, r.format)
	if !ok {
		return nil, false, nil
	}
	for len(was) > 0 || len(is) > 0 { // both are sorted by path
		switch {
		case len(is) == 0 || len(was) > 0 && was[0].path < is[0].path:
			names, was = append(names, was[0].path), was[1:]
		case len(was) == 0 || is[0].path < was[0].path:
			names, is = append(names, is[0].path), is[1:]
		default:
			if was[0].oid != is[0].oid || was[0].mode != is[0].mode {
				names = append(names, is[0].path)
			}
			was, is = was[1:], is[1:]
		}
	}
	// What only looks changed, by its times, is compared with the object.
	more, err := run("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--directory", "--no-empty-directory")
	return append(names, more...), true, err
}

// readPlainIndex reads an index that has files only: no conflict, no submodule, no
// part in another file, no folder instead of its files, and nothing that git is told
// not to look at.
func readPlainIndex(path, format string) ([]indexEntry, bool) {
	raw, err := readLimited(path, maxPlainIndex)
	if err != nil {
		return nil, false
	}
	entries, err := parseIndex(raw, format)
	if err != nil {
		return nil, false
	}
	sum, at := 20, 12
	if format == "sha256" {
		sum = 32
	}
	for i := range entries {
		e := &entries[i]
		if e.flags != 0 || e.more != 0 || e.mode == gitlink || i > 0 && entries[i-1].path >= e.path {
			return nil, false
		}
		at = e.at + (40+sum+2+len(e.path)+8)&^7
	}
	for end := len(raw) - sum; at < end; {
		// An extension that git need not understand has a capital letter.
		if at+8 > end || raw[at] < 'A' || raw[at] > 'Z' {
			return nil, false
		}
		at += 8 + int(binary.BigEndian.Uint32(raw[at+4:]))
	}
	return entries, true
}

// uncommittedAny finds what is not as in the base, whatever is in the index.
func uncommittedAny(r *Repo, run func(...string) ([]string, error)) ([]string, error) {
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
	return append(changed, untracked...), errors.Join(e1, e2)
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
