package swap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// syncEach is up to how many files are written to disk one by one; above it,
// the whole file system is, which is then faster.
const syncEach = 100

// Run does all steps or none. An error that is an *Undone says what could not
// be taken back; any other one means that nothing was changed.
func Run(ctx context.Context, job Job, steps []Step) error {
	if len(steps) == 0 {
		return nil
	}
	for _, s := range steps {
		if !Valid(s.Path) || s.Old == nil && s.New == nil {
			return fmt.Errorf("%s: %w", strconv.QuoteToGraphic(s.Path), fs.ErrInvalid)
		}
	}
	if exists(filepath.Join(job.Journal, journalFile)) {
		return fmt.Errorf("%s holds a journal that was not recovered", job.Journal)
	}
	r, err := begin(job)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.stage(ctx, order(steps)); err != nil {
		return errors.Join(err, r.remove())
	}
	if err := r.forward(ctx); err != nil {
		left, uerr := r.back()
		if uerr != nil {
			// The journal stays for Recover.
			return &Undone{Err: fmt.Errorf("%w (and what was done could not be taken back yet: %v)", err, uerr), Left: left}
		}
		return &Undone{Err: err, Left: left}
	}
	// The mark decides. What cannot be cleaned up now, Recover does later.
	if err := sys.Fault("swap.committed"); err == nil {
		_ = r.remove()
	}
	return nil
}

// order puts steps so that what must be away is away and what must be there is
// there: deletions, emptied folders from below, new folders from above, files.
func order(steps []Step) []Step {
	rank := func(s Step) int {
		switch {
		case s.New == nil && s.Old.Kind != Dir:
			return 0
		case s.New == nil:
			return 1
		case s.New.Kind == Dir:
			return 2
		}
		return 3
	}
	out := slices.Clone(steps)
	slices.SortStableFunc(out, func(a, b Step) int {
		if ra, rb := rank(a), rank(b); ra != rb {
			return ra - rb
		}
		if rank(a) == 1 {
			return strings.Compare(b.Path, a.Path)
		}
		return strings.Compare(a.Path, b.Path)
	})
	return out
}

// runner is one job under way, or one that is being recovered.
type runner struct {
	job   Job
	j     *journal
	root  int
	slots *os.File // the staging folder
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// begin records and makes the staging folder.
func begin(job Job) (*runner, error) {
	root := int(job.Root.Fd())
	dev, mount, ino, err := place(root, "")
	if err != nil {
		return nil, err
	}
	var where string
	for _, d := range job.Stages {
		sd, sm, _, err := place(unix.AT_FDCWD, d)
		if err == nil && sd == dev && sm == mount && unix.Access(d, unix.W_OK|unix.X_OK) == nil {
			where = d
			break
		}
	}
	if err := unix.Faccessat(root, ".", unix.W_OK, 0); where == "" && errors.Is(err, unix.EROFS) {
		return nil, fmt.Errorf("nothing can be written there: %w", err)
	}
	if where == "" {
		return nil, fmt.Errorf("%w: no folder on the same file system can hold the new files", ErrUnsupported)
	}
	var tag [8]byte
	_, _ = rand.Read(tag[:])
	r := &runner{job: job, root: root}
	r.j = &journal{Version: 1, Root: job.RootPath, RootDev: dev, RootIno: ino, Stage: filepath.Join(where, job.Name+"-"+hex.EncodeToString(tag[:]))}
	if err := os.MkdirAll(job.Journal, 0o700); err != nil {
		return nil, err
	}
	dropTemp(job.Journal)
	if err := r.j.write(job.Journal); err != nil {
		return nil, err
	}
	if err := sys.Fault("swap.begun"); err != nil {
		return nil, errors.Join(err, drop(job.Journal))
	}
	if err := os.Mkdir(r.j.Stage, 0o700); err != nil {
		return nil, errors.Join(err, drop(job.Journal))
	}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, os.Remove(r.j.Stage), drop(job.Journal))
	}
	return r, nil
}

// place tells the file system, the mount and the inode of a folder.
func place(dir int, path string) (dev, mount, ino uint64, err error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dir, path, flags, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &st); err != nil {
		return 0, 0, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, 0, 0, unix.ENOTDIR
	}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		mount = st.Mnt_id
	}
	return unix.Mkdev(st.Dev_major, st.Dev_minor), mount, st.Ino, nil
}

// open pins the staging folder.
func (r *runner) open() error {
	fd, err := unix.Open(r.j.Stage, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	r.slots = os.NewFile(uintptr(fd), r.j.Stage)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if r.j.StageIno != 0 && (r.j.StageDev != st.Dev || r.j.StageIno != st.Ino) {
		return fmt.Errorf("%w: %s", ErrMoved, r.j.Stage)
	}
	r.j.StageDev, r.j.StageIno = st.Dev, st.Ino
	return nil
}

func (r *runner) close() {
	if r.slots != nil {
		r.slots.Close()
		r.slots = nil
	}
}

func (r *runner) slot() int { return int(r.slots.Fd()) }

// stage makes the new contents and records every step.
func (r *runner) stage(ctx context.Context, steps []Step) error {
	files := 0
	for _, s := range steps {
		if s.New != nil && s.New.Kind == File {
			files++
		}
	}
	for i, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		js := step{Path: []byte(s.Path), Old: s.Old, Optional: s.Optional}
		if s.New != nil {
			if err := r.fill(strconv.Itoa(i), s.New, files <= syncEach); err != nil {
				return fmt.Errorf("the new content of %s cannot be made: %w", strconv.QuoteToGraphic(s.Path), err)
			}
			seen, f, err := look(r.slot(), strconv.Itoa(i), true)
			if f != nil {
				f.Close()
			}
			if err != nil || seen == nil {
				return fmt.Errorf("the new content of %s is gone: %w", strconv.QuoteToGraphic(s.Path), err)
			}
			js.New = seen
		}
		r.j.Steps = append(r.j.Steps, js)
	}
	if files > syncEach {
		if err := unix.Syncfs(r.slot()); err != nil {
			return err
		}
	}
	if err := r.slots.Sync(); err != nil {
		return err
	}
	if err := sys.Fault("swap.staged"); err != nil {
		return err
	}
	r.j.Ready = true
	if err := r.j.write(r.job.Journal); err != nil {
		return err
	}
	return sys.Fault("swap.journaled")
}

// fill makes one entry of the staging folder.
func (r *runner) fill(name string, c *Content, syncIt bool) error {
	path := filepath.Join(r.j.Stage, name)
	switch c.Kind {
	case Link:
		if err := os.Symlink(c.To, path); err != nil {
			return err
		}
	case Dir:
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
	case File:
		if err := copyTo(c.From, path, syncIt); err != nil {
			return err
		}
	default:
		return fs.ErrInvalid
	}
	if c.UID >= 0 || c.GID >= 0 {
		// Only root can give a file away; for others it is theirs already.
		if err := os.Lchown(path, c.UID, c.GID); err != nil && os.Geteuid() == 0 {
			return err
		}
	}
	if c.Kind == Link {
		return nil
	}
	return unix.Fchmodat(r.slot(), name, c.Perm, 0)
}

// largeFile is the size from which it is worth to look for holes, in bytes.
const largeFile = 1 << 20

func copyTo(from, to string, syncIt bool) error {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return errors.Join(err, fs.ErrInvalid)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if st.Size() < largeFile {
		_, err = io.Copy(out, in)
	} else {
		_, err = sys.CopySparse(out, in)
	}
	if err == nil && syncIt {
		err = out.Sync()
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// forward does every step, makes sure that nothing was lost, and sets the mark.
func (r *runner) forward(ctx context.Context) error {
	for i := range r.j.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.do(i); err != nil {
			return err
		}
		if err := sys.Fault("swap.stepped"); err != nil {
			return err
		}
	}
	if err := sys.Fault("swap.exchanged"); err != nil {
		return err
	}
	// What came out is out of everybody's reach now, so this is the last word:
	// a program that had opened it before would still be seen here.
	for i, s := range r.j.Steps {
		if s.Old == nil || s.Old.Kind == Dir {
			continue
		}
		ok, err := settled(r.slot(), strconv.Itoa(i), s.Old)
		if err != nil {
			return err
		}
		if !ok {
			return &Changed{string(s.Path), "a program wrote to it, or has it open for writing"}
		}
	}
	if r.job.Check != nil {
		if err := r.job.Check(); err != nil {
			return err
		}
	}
	if err := r.sync(); err != nil {
		return err
	}
	if err := sys.Fault("swap.durable"); err != nil {
		return err
	}
	if err := sys.WriteFile(filepath.Join(r.job.Journal, commitFile), nil, 0o600); err != nil {
		// Whether the mark is on disk is not known; without it in the folder
		// nobody will take it for set.
		if rerr := os.Remove(filepath.Join(r.job.Journal, commitFile)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			return errors.Join(err, rerr)
		}
		return err
	}
	return nil
}

// sync brings the renames to disk.
func (r *runner) sync() error {
	done := map[string]bool{}
	if len(r.j.Steps) > syncEach {
		return unix.Syncfs(r.root)
	}
	for _, s := range r.j.Steps {
		dir := "."
		if i := strings.LastIndexByte(string(s.Path), '/'); i >= 0 {
			dir = string(s.Path[:i])
		}
		if done[dir] {
			continue
		}
		done[dir] = true
		fd, err := openat2(r.root, dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, ErrUnsafe) {
			continue // emptied and gone, or a link now; its parent is in the list
		}
		if err != nil {
			return err
		}
		err = unix.Fsync(fd)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return r.slots.Sync()
}

// do does one step.
func (r *runner) do(i int) error {
	s, slot := &r.j.Steps[i], strconv.Itoa(i)
	path := string(s.Path)
	dir, name, err := parent(r.root, path)
	if err != nil {
		return fmt.Errorf("the folder of %s cannot be opened: %w", strconv.QuoteToGraphic(path), err)
	}
	defer unix.Close(dir)
	now, _, err := look(dir, name, false)
	if err != nil {
		return fmt.Errorf("%s cannot be looked at: %w", strconv.QuoteToGraphic(path), err)
	}
	switch {
	case s.Old == nil && now != nil:
		return &Changed{path, "it was made meanwhile"}
	case now == nil && s.Optional:
		return nil
	case s.Old != nil && now == nil:
		return &Changed{path, "it was removed meanwhile"}
	case s.Old != nil && s.Old.Kind == Dir:
		if !now.is(s.Old) || now.Kind != Dir {
			return &Changed{path, "it was replaced meanwhile"}
		}
	case s.Old != nil && !now.same(s.Old, true):
		return &Changed{path, "it was changed meanwhile"}
	}
	switch {
	case s.New == nil && s.Old.Kind == Dir:
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if s.Optional && (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY)) {
			return nil
		}
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return &Changed{path, "the folder is not empty"}
		}
	case s.New == nil:
		err = unix.Renameat2(dir, name, r.slot(), slot, unix.RENAME_NOREPLACE)
	case s.Old == nil:
		err = unix.Renameat2(r.slot(), slot, dir, name, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			return &Changed{path, "it was made meanwhile, or its name differs from another one in case only"}
		}
	default:
		err = unix.Renameat2(dir, name, r.slot(), slot, unix.RENAME_EXCHANGE)
	}
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%w: %s: %v", ErrUnsupported, strconv.QuoteToGraphic(path), err)
	case err != nil:
		return fmt.Errorf("%s cannot be replaced: %w", strconv.QuoteToGraphic(path), err)
	}
	if s.Old != nil && s.Old.Kind != Dir {
		out, _, err := look(r.slot(), slot, false)
		if err != nil {
			return err
		}
		if out == nil || !out.same(s.Old, false) {
			return &Changed{path, "it was changed in the same moment"}
		}
	}
	// The folder may have been moved away while we were in it.
	again, _, err := parent(r.root, path)
	if err == nil {
		defer unix.Close(again)
		var a, b unix.Stat_t
		if err := errors.Join(unix.Fstat(dir, &a), unix.Fstat(again, &b)); err != nil {
			return err
		}
		if a.Dev == b.Dev && a.Ino == b.Ino {
			return nil
		}
	}
	// Taken back here, where it was done: by its path it cannot be found.
	if _, err := r.undo(i, dir, name); err != nil {
		return err
	}
	return &Changed{path, "its folder was moved meanwhile"}
}

// remove deletes the staging folder of a job whose steps are all done or all
// undone, and ends the record.
func (r *runner) remove() error {
	r.close()
	if err := os.RemoveAll(r.j.Stage); err != nil {
		return fmt.Errorf("the staging folder %s cannot be removed: %w", r.j.Stage, err)
	}
	if err := sys.Fault("swap.removed"); err != nil {
		return err
	}
	return drop(r.job.Journal)
}
