package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// maxStaged bounds how much changed content one look at a task copies, in
// bytes.
const maxStaged = 16 << 30

// stage is a host-owned folder that holds copies of what a task changed, for
// git to read in place of the task's own files.
type stage struct {
	path    string
	root    *os.Root
	ignores map[string]bool
	put0    map[string]bool
	large   []string // of what was put, files of largeFile and more
	left    int64
}

// newStage makes an empty staging folder. The caller removes it.
func (ws Workspace) newStage() (*stage, error) {
	p, err := os.MkdirTemp(ws.shadow(), "stage-")
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "source.stage", "the staging folder cannot be made: %v", err)
	}
	r, err := os.OpenRoot(p)
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "source.stage", "the staging folder cannot be opened: %v", err)
	}
	return &stage{path: p, root: r, ignores: map[string]bool{}, put0: map[string]bool{}, left: maxStaged}, nil
}

// remove deletes the staging folder.
func (st *stage) remove(ctx context.Context) {
	st.root.Close()
	for _, p := range []string{st.path, st.path + ".git"} {
		_ = tree.Remove(context.WithoutCancel(ctx), p, path.Base(p)+".gone")
	}
}

func (st *stage) fail(p string, err error) error {
	if err == nil {
		return nil
	}
	return task.Errorf(task.CodeStateStore, "source.stage", "a copy of %s cannot be made: %v", quote(p), err)
}

func (st *stage) has(p string) bool { return st.put0[p] }

func (st *stage) mkdir(p string) error { return st.fail(p, st.root.MkdirAll(p, 0o700)) }

func (st *stage) parents(p string) error {
	if d := path.Dir(p); d != "." {
		return st.root.MkdirAll(d, 0o700)
	}
	return nil
}

// put writes a copy. A second one of the same path replaces the first.
func (st *stage) put(p string, r io.Reader, mode os.FileMode) error {
	if err := st.parents(p); err != nil {
		return st.fail(p, err)
	}
	f, err := st.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return st.fail(p, err)
	}
	n, err := sys.CopySparse(f, io.LimitReader(r, st.left+1))
	if err == nil {
		err = f.Chmod(mode)
	}
	info, serr := f.Stat()
	if err == nil {
		err = serr
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if st.left -= n; st.left < 0 {
		return st.full()
	}
	if st.put0[p] = true; err == nil && info.Size() >= largeFile {
		st.large = append(st.large, p)
	}
	return st.fail(p, err)
}

func (st *stage) full() error {
	return task.Errorf(task.CodeLimit, "source.stage", "the task changed more than %d GiB of files", maxStaged>>30).
		WithHint("remove or ignore large files inside")
}

// link writes a copy of a symbolic link. Nothing ever follows it.
func (st *stage) link(p, target string) error {
	if err := st.parents(p); err != nil {
		return st.fail(p, err)
	}
	err := st.root.Symlink(target, p)
	if errors.Is(err, fs.ErrExist) {
		if err = st.root.Remove(p); err == nil {
			err = st.root.Symlink(target, p)
		}
	}
	st.put0[p] = true
	return st.fail(p, err)
}

// treeOf makes the tree that the task's files are now and returns its name.
func (ws Workspace) treeOf(ctx context.Context, s *state, st *stage, f *found) (string, error) {
	if len(f.changed)+len(f.deleted)+len(f.untracked) == 0 {
		return "", nil // the base's own
	}
	g, err := findGit(ctx)
	if err != nil {
		return "", err
	}
	index := st.path + ".index"
	defer os.Remove(index)
	if err := copyOwnIndex(ws.shadow()+"/"+baseIndex, index); err != nil && (s.hasFiles() || !errors.Is(err, fs.ErrNotExist)) {
		return "", st.fail("the index", err)
	}
	return ws.recordFiles(ctx, g, recording{
		work: st.path, index: index, deleted: f.deleted, paths: append(append([]string(nil), f.changed...), f.untracked...),
		add: []string{"--add", "--replace"}, large: st.large,
		raw: func() (string, error) { return ws.rawGitDir(st) },
		fail: func(what string, err error) error {
			return task.Errorf(task.CodeSource, "source.snapshot", "%s: %v", what, err)
		},
	})
}

// recording says which files go into an index, to be a tree then.
type recording struct {
	work, index    string
	deleted, paths []string
	add            []string // flags of update-index for paths
	config         []string // beyond what every recording has
	large          []string // of paths, those that are looked up before they are stored
	// raw makes a git directory without conversions, for files that cannot be
	// converted.
	raw  func() (string, error)
	fail func(what string, err error) error
}

// recordFiles brings files into the index as git converts them and returns the
// tree of it. No filter runs: the shadow repository has none.
func (ws Workspace) recordFiles(ctx context.Context, g *git.Git, r recording) (oid string, err error) {
	dir := ws.shadow()
	cmd := func(stdin string, args ...string) git.Cmd {
		return git.Cmd{
			GitDir: dir, WorkTree: r.work, Stdin: strings.NewReader(stdin), Args: args,
			Env:    []string{"GIT_INDEX_FILE=" + r.index, "GIT_OBJECT_DIRECTORY=" + ws.shadow() + "/objects"},
			Config: append([]string{"core.bare=false", "index.version=2", "core.safecrlf=false", "core.bigFileThreshold=64m"}, r.config...),
		}
	}
	if len(r.deleted) > 0 {
		if _, err := g.Run(ctx, cmd(joinZ(r.deleted), "update-index", "-z", "--force-remove", "--stdin")); err != nil {
			return "", r.fail("the deleted files cannot be recorded", err)
		}
	}
	add := append(append([]string{"update-index"}, r.add...), "-z", "--stdin")
	tries := maxRecords
	var record func(paths []string) error
	record = func(paths []string) error {
		_, err := g.Run(ctx, cmd(joinZ(paths), add...))
		tries--
		if git.Status(err) <= 0 {
			return err
		}
		// Attributes chosen inside can make a conversion fail, for example an
		// encoding that the content is not in. The bytes of that file count then;
		// every other one is converted as ever.
		if len(paths) > 1 && tries > 0 {
			if err := record(paths[:len(paths)/2]); err != nil {
				return err
			}
			return record(paths[len(paths)/2:])
		}
		converting := dir
		if dir, err = r.raw(); err == nil {
			_, err = g.Run(ctx, cmd(joinZ(paths), add...))
		}
		dir = converting
		if err != nil {
			return r.fail("the changed files cannot be recorded", err)
		}
		return nil
	}
	var fresh []string // objects of large files that are stored now
	if len(r.large) > 0 {
		r.config = append(r.config, largeStore...)
		var has map[string]string
		has, fresh, err = ws.known(ctx, g, dir, r)
		if err != nil {
			return "", r.fail("the changed files cannot be looked up", err)
		}
		if len(has) > 0 {
			var info strings.Builder
			for p, what := range has {
				info.WriteString(what + "\t" + p + "\x00")
			}
			_, err := g.Run(ctx, cmd(info.String(), append(append([]string{"update-index"}, r.add...), "-z", "--index-info")...))
			switch {
			case err == nil:
				r.paths = slices.DeleteFunc(r.paths, func(p string) bool { return has[p] != "" })
			case git.Status(err) <= 0:
				return "", r.fail("the changed files cannot be recorded", err)
			} // else it takes a name ill that it passes over below
		}
	}
	if len(r.paths) > 0 {
		if err := record(r.paths); err != nil {
			return "", err
		}
	}
	if oid, err = oneLine(ctx, g, cmd("", "write-tree")); err != nil {
		return "", r.fail("the tree cannot be written", err)
	}
	if len(fresh) > 0 {
		ws.stored(fresh)
	}
	return oid, nil
}

// maxRecords bounds how often git is started to find the files that cannot be
// converted. Beyond it the bytes count of all that are left together.
const maxRecords = 100

// rawGitDir makes a git directory beside the stage that shares the shadow's
// objects but switches every conversion off. It is used once; the shadow's own
// attributes stay as they are for whoever looks at the same time.
func (ws Workspace) rawGitDir(st *stage) (string, error) {
	dir := st.path + ".git"
	for _, d := range []string{"info", "refs", "objects"} {
		if err := os.MkdirAll(dir+"/"+d, 0o700); err != nil {
			return "", err
		}
	}
	for _, f := range []string{"HEAD", "config"} {
		if err := copyFile(ws.shadow()+"/"+f, dir+"/"+f, 0o600); err != nil {
			return "", err
		}
	}
	return dir, os.WriteFile(dir+"/info/attributes", []byte(rawAttributes), 0o600)
}

func joinZ(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return strings.Join(paths, "\x00") + "\x00"
}
