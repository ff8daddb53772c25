package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("source.exportmade", "source.exporting", "source.exported")

// A folder that is being exported is made beside its target, as exportPrefix,
// the task's id and a digest of the target's name. It holds exportMark, whose
// text proves whose it is, and exportTree, which is renamed to the target.
const (
	exportPrefix = ".caisson-export-"
	exportMark   = "caisson"
	exportTree   = "tree"
)

func exportName(id task.ID, target string) string {
	h := sha256.Sum256([]byte(filepath.Base(target)))
	return exportPrefix + string(id) + "-" + hex.EncodeToString(h[:4])
}

// exportDir writes the whole tree of the result to a folder.
func (r *Result) exportDir(ctx context.Context, o ExportOptions, rep *task.ExportReport) error {
	target, mode, err := r.exportTarget(o)
	if err != nil {
		return err
	}
	names, err := r.treeEntries(ctx)
	if err != nil {
		return err
	}
	e := &exporting{r: r, target: target, mode: mode, work: filepath.Join(filepath.Dir(target), exportName(r.Task, target)), names: names, rep: rep}
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.end(ctx)
	if err := e.folds(); err != nil {
		return err
	}
	if err := e.write(ctx); err != nil {
		return err
	}
	if err := e.settle(); err != nil {
		return err
	}
	if err := sys.Fault("source.exporting"); err != nil {
		return err
	}
	// Onto an empty folder or onto nothing; never onto anything else. The
	// kernel's own call: os.Rename takes no folder that exists.
	if err := syscall.Rename(filepath.Join(e.work, exportTree), target); err != nil {
		return e.fail("it cannot take its place", err)
	}
	if err := syncFile(filepath.Dir(target)); err != nil {
		return e.fail("it cannot be made durable", err)
	}
	rep.To, rep.Files = target, len(names)
	return sys.Fault("source.exported")
}

// exportTarget checks where the folder is to be. mode is that of an empty folder
// that stands there, else that of a new one.
func (r *Result) exportTarget(o ExportOptions) (target string, mode fs.FileMode, err error) {
	refuse := func(code task.Code, hint, format string, args ...any) (string, fs.FileMode, error) {
		return "", 0, task.Errorf(code, "source.export", format, args...).WithHint("%s", hint)
	}
	if o.Dir == "" {
		return refuse(task.CodeUsage, "use --dir DIR", "no folder is named to export to")
	}
	abs, err := filepath.Abs(o.Dir)
	if err != nil {
		return refuse(task.CodeUsage, "name a new folder", "%s cannot be used: %v", quote(o.Dir), err)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return refuse(task.CodeNotFound, "make that folder first", "the folder that %s is to be in cannot be used: %v", quote(abs), err)
	}
	target = filepath.Join(parent, filepath.Base(abs))
	if abs == parent || filepath.Dir(target) == target {
		return refuse(task.CodeUsage, "name a new folder", "%s cannot be replaced", quote(abs))
	}
	for _, apart := range append([]string{r.ws.Dir, r.ws.Files}, o.Apart...) {
		if apart != "" && within(target, apart) {
			return refuse(task.CodeUnsafePath, "name a folder outside of it", "%s is inside %s, which is caisson's own or a task's", quote(target), quote(apart))
		}
	}
	for d := target; d != filepath.Dir(d); d = filepath.Dir(d) {
		if isDotGit(filepath.Base(d)) || looksBare(d) {
			return refuse(task.CodeUnsafePath, "name a folder outside of it", "%s is inside a git directory, %s", quote(target), quote(d))
		}
	}
	st, err := os.Lstat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return target, 0o755, nil
	case err != nil:
		return refuse(task.CodeUsage, "name a new folder", "%s cannot be used: %v", quote(target), err)
	case !st.IsDir():
		return refuse(task.CodeConflict, "name a new or an empty folder", "%s exists and is not a folder", quote(target))
	}
	entries, err := os.ReadDir(target)
	if err != nil {
		return refuse(task.CodeConflict, "name a new or an empty folder", "%s cannot be read: %v", quote(target), err)
	}
	if len(entries) > 0 {
		return refuse(task.CodeConflict, "name a new or an empty folder", "%s is not empty", quote(target))
	}
	if here, err := os.Stat("."); err == nil && os.SameFile(here, st) {
		return refuse(task.CodeConflict, "name a new folder", "%s is the working directory, which would be replaced under the shell's feet", quote(target))
	}
	return target, st.Mode().Perm(), nil
}

// within reports whether p is dir or below it.
func within(p, dir string) bool {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// listed is one entry of a result's tree that is no folder.
type listed struct {
	path string
	mode uint32
}

// treeEntries lists the result's tree.
func (r *Result) treeEntries(ctx context.Context) ([]listed, error) {
	out, err := r.g.Run(ctx, git.Cmd{GitDir: r.dir, Args: []string{"ls-tree", "-r", "-z", "--full-tree", r.Tree}, Max: 1 << 30})
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.export", "the files of the result cannot be listed: %v", err)
	}
	return parseTree(out)
}

// parseTree reads `git ls-tree -r -z`.
func parseTree(out []byte) ([]listed, error) {
	recs, ok := git.SplitZ(out)
	entries := make([]listed, 0, len(recs))
	for _, rec := range recs {
		head, path, found := strings.Cut(rec, "\t")
		f := strings.Split(head, " ")
		if ok = ok && found && len(f) == 3 && git.IsOID(f[2]); !ok {
			break
		}
		mode, err := strconv.ParseUint(f[0], 8, 32)
		if ok = err == nil; !ok {
			break
		}
		for _, part := range strings.Split(path, "/") {
			if part == "" || part == "." || part == ".." || isDotGit(part) || strings.ContainsRune(part, 0) {
				return nil, badResult("the result has an entry that no checkout may have: %s", quote(path))
			}
		}
		entries = append(entries, listed{path: path, mode: uint32(mode)})
	}
	if !ok {
		return nil, task.Errorf(task.CodeInternal, "source.export", "git's list of files cannot be read")
	}
	// No file twice, and none where another has its folder: a link there would
	// lead the second one elsewhere.
	files := make(map[string]bool, len(entries))
	for _, e := range entries {
		if files[e.path] {
			return nil, badResult("the result has an entry twice: %s", quote(e.path))
		}
		files[e.path] = true
	}
	for _, e := range entries {
		for i := range e.path {
			if e.path[i] == '/' && files[e.path[:i]] {
				return nil, badResult("the result has a file and a folder of one name: %s", quote(e.path[:i]))
			}
		}
	}
	return entries, nil
}

// exporting is one folder on its way.
type exporting struct {
	r      *Result
	target string
	mode   fs.FileMode
	work   string // the folder of ours beside the target
	names  []listed
	rep    *task.ExportReport
	lock   *sys.FileLock
}

func (e *exporting) fail(what string, err error) error {
	return task.Errorf(task.CodeSource, "source.export", "the folder %s cannot be written: %s: %v", quote(e.target), what, err).
		WithHint("nothing was left there; name another folder, or use `caisson export %s --patch`", e.r.Task)
}

// begin makes the folder of ours. One that a killed export left is removed first.
func (e *exporting) begin(ctx context.Context) error {
	if err := removeExport(ctx, e.work, e.r.Task); err != nil {
		return err
	}
	if err := os.Mkdir(e.work, 0o700); err != nil {
		return e.fail("a folder beside it cannot be made", err)
	}
	if err := sys.Fault("source.exportmade"); err != nil {
		_ = os.Remove(e.work)
		return err
	}
	mark := filepath.Join(e.work, exportMark)
	l, err := sys.TryLock(mark)
	if err == nil {
		err = writeOver(mark, keepText(e.r.Task)+"\n")
	}
	if err != nil {
		_ = l.Unlock()
		_ = removeTreeOf(context.WithoutCancel(ctx), e.work)
		return e.fail("a folder beside it cannot be marked", err)
	}
	e.lock = l
	return nil
}

func writeOver(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// end removes what is left of ours, done or not.
func (e *exporting) end(ctx context.Context) {
	err := removeTreeOf(context.WithoutCancel(ctx), e.work)
	_ = e.lock.Unlock()
	if err != nil {
		// On NFS and FUSE a file that is open keeps a name, so its folder stays
		// until the lock is closed.
		_ = removeTreeOf(context.WithoutCancel(ctx), e.work)
	}
}

// removeExport removes a folder that an export of this task left unfinished.
// What does not prove to be ours stays.
func removeExport(ctx context.Context, work string, id task.ID) error {
	st, err := os.Lstat(work)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	refuse := func(why string) error {
		return task.Errorf(task.CodeConflict, "source.export", "%s is in the way: %s", quote(work), why).
			WithHint("look at it and remove it, or name a folder elsewhere")
	}
	if err != nil || !st.IsDir() {
		return refuse("it is not a folder of caisson's")
	}
	names, err := os.ReadDir(work)
	if err != nil {
		return refuse("it cannot be read")
	}
	if len(names) > 0 {
		mark := filepath.Join(work, exportMark)
		b, err := readBelow(work, exportMark, 64)
		if err != nil || len(b) > 0 && strings.TrimSuffix(string(b), "\n") != keepText(id) || len(b) == 0 && len(names) > 1 {
			return refuse("it does not say that it is this task's")
		}
		l, err := sys.TryLock(mark)
		if errors.Is(err, sys.ErrLocked) {
			return task.Errorf(task.CodeConflict, "source.export", "the same export is being written by another process").
				WithHint("wait for it, or name another folder")
		}
		if err != nil {
			return refuse("its mark cannot be locked")
		}
		defer func() { _ = l.Unlock() }()
	}
	if err := removeTreeOf(ctx, work); err != nil {
		return task.Errorf(task.CodeStuck, "source.export", "%s, which an earlier export left, cannot be removed: %v", quote(work), err)
	}
	return nil
}

func removeTreeOf(ctx context.Context, dir string) error {
	return tree.Remove(ctx, dir, filepath.Base(dir)+".gone")
}

// folds refuses names that the target's file system would take for one another.
func (e *exporting) folds() error {
	folds, err := foldsNames(e.work)
	if err != nil {
		return e.fail("a folder in it cannot be made", err)
	}
	if !folds {
		return nil
	}
	if a, b := foldClash(e.names); a != "" {
		return task.Errorf(task.CodeConflict, "source.export", "%s and %s are one name on the file system of %s", quote(a), quote(b), quote(e.target)).
			WithHint("name a folder on a file system that tells case and accents apart, or use `caisson export %s --patch`", e.r.Task)
	}
	return nil
}

// write lets git check the tree out into the folder of ours, where nobody else
// can make entries. The git directory is caisson's own: conversions happen as in
// a checkout, no filter and no hook exists.
func (e *exporting) write(ctx context.Context) error {
	dir := filepath.Join(e.work, exportTree)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the folder above is private
		return e.fail("a folder in it cannot be made", err)
	}
	index, err := os.CreateTemp(e.r.dir, "export-*.index")
	if err != nil {
		return e.fail("its index cannot be made", err)
	}
	index.Close()
	_ = os.Remove(index.Name())
	defer os.Remove(index.Name())
	_, err = e.r.g.Run(ctx, git.Cmd{
		GitDir: e.r.dir, WorkTree: dir, Progress: e.r.ws.Progress,
		Env:    []string{"GIT_INDEX_FILE=" + index.Name()},
		Config: []string{"core.bare=false", "core.symlinks=true", "core.fileMode=true", "core.bigFileThreshold=64m", "checkout.workers=1"},
		Args:   []string{"read-tree", "--reset", "-u", e.r.Tree},
	})
	if err != nil {
		return e.fail("the files cannot be checked out", err)
	}
	return nil
}

// settle gives every file its mode, counts, compares with the tree and makes
// all of it durable.
func (e *exporting) settle() error {
	root, err := os.OpenRoot(filepath.Join(e.work, exportTree))
	if err != nil {
		return e.fail("it cannot be read again", err)
	}
	defer root.Close()
	links := 0
	for _, n := range e.names {
		st, err := root.Lstat(n.path)
		if err != nil {
			return e.fail("a file is missing", err)
		}
		ok := false
		switch n.mode {
		case 0o120000:
			ok = st.Mode().Type() == fs.ModeSymlink
		case gitlink:
			ok = st.IsDir()
			links++
		case 0o100644, 0o100755:
			if ok = st.Mode().IsRegular(); ok {
				e.rep.Bytes += st.Size()
				err = settleFile(root, n.path, fs.FileMode(n.mode&0o777))
			}
		}
		if err != nil {
			return e.fail("a file cannot be made durable", err)
		}
		if !ok {
			return e.fail("a file is not what the result has", errors.New(quote(n.path)))
		}
	}
	if links > 0 {
		e.rep.Notes = append(e.rep.Notes, plural(links, "submodule folder")+" "+isAre(links)+" empty: their content is not in the result")
	}
	return e.folders(root)
}

func settleFile(root *os.Root, name string, mode fs.FileMode) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Sync(), f.Close())
}

// folders gives every folder its mode and makes its entries durable.
func (e *exporting) folders(root *os.Root) error {
	dirs := map[string]bool{".": true}
	for _, n := range e.names {
		p := n.path
		if n.mode == gitlink {
			dirs[p] = true
		}
		for d := filepath.Dir(p); !dirs[d]; d = filepath.Dir(d) {
			dirs[d] = true
		}
	}
	for d := range dirs {
		mode := fs.FileMode(0o755)
		if d == "." {
			mode = e.mode
		}
		if err := settleFile(root, d, mode); err != nil {
			return e.fail("a folder cannot be made durable", err)
		}
	}
	return nil
}
