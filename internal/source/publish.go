package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// PublishSnapshot puts a snapshot at refs/caisson/<id>/worktree of the user's
// repository, or into a kept bundle where that cannot be written or the files do
// not pass git's own checks.
func PublishSnapshot(ctx context.Context, ws Workspace, snap *Snapshot) ([]task.ResultRef, error) {
	if !snap.Changed {
		return nil, nil
	}
	s, err := ws.loadState()
	if err != nil {
		return nil, err
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	rs := []result{{kind: "worktree", name: "worktree", object: snap.Commit}}
	out, err := ws.publish(ctx, g, s, rs)
	if task.CodeOf(err) == task.CodeBadResult {
		// The files hold something that must not get into a repository where
		// a plain git would act on it, for example a .gitmodules that runs a
		// command. They are not lost: a bundle is data until it is unpacked.
		return ws.keepBundle(ctx, g, s, rs, brief(err.Error()))
	}
	return out, err
}

// brief is the start of a message, on one line: git's can list every object.
func brief(s string) string {
	return cut(strings.Join(strings.Fields(s), " "), 300)
}

// publish brings objects and refs from the shadow into the user's repository.
func (ws Workspace) publish(ctx context.Context, g *git.Git, s *state, rs []result) ([]task.ResultRef, error) {
	if s.CommonDir == "" || !s.Pinned && !canPublish(s) {
		why := ""
		if s.CommonDir != "" {
			why = "when the task began, the repository could not be written"
		}
		return ws.keepBundle(ctx, g, s, rs, why)
	}
	var want []string
	for _, r := range rs {
		want = append(want, r.object)
	}
	d := &delivery{g: g, task: ws.Task, from: ws.shadow(), to: s.CommonDir}
	pack, n, err := d.pack(ctx, want, s.Tips)
	if err != nil {
		return nil, err
	}
	defer os.Remove(pack)
	if n > 0 {
		keep, err := d.store(ctx, pack)
		if keep != "" {
			defer os.Remove(keep)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := sys.Fault("source.stored"); err != nil {
		return nil, err
	}
	var tx strings.Builder
	tx.WriteString("start\n")
	for _, r := range rs {
		fmt.Fprintf(&tx, "update %s%s %s\n", refPrefix(ws.Task), r.name, r.object)
	}
	tx.WriteString("prepare\ncommit\n")
	_, err = g.Run(ctx, git.Cmd{GitDir: s.CommonDir, Stdin: strings.NewReader(tx.String()), Args: []string{"update-ref", "--no-deref", "--stdin"}})
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.publish", "the task's results cannot be recorded in %s: %v", quote(s.CommonDir), err)
	}
	if err := sys.Fault("source.published"); err != nil {
		return nil, err
	}
	out := make([]task.ResultRef, len(rs))
	for i, r := range rs {
		out[i] = task.ResultRef{Kind: r.kind, Name: refPrefix(ws.Task) + r.name, Object: r.object, Count: ws.count(ctx, g, r, i)}
	}
	return out, nil
}

// store verifies a pack and puts it into the user's repository. keep is the
// .keep file that holds its objects against a concurrent `git gc --prune=now`
// until a ref does; the caller removes it. git indexes the pack in our own
// folder: killed there, it leaves nothing in the user's.
func (d *delivery) store(ctx context.Context, pack string) (keep string, err error) {
	base := strings.TrimSuffix(pack, ".pack")
	defer removeIndex(base)
	hash, err := d.index(ctx, pack)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(d.to, "objects", "pack")
	to := filepath.Join(dir, "pack-"+hash)
	fail := func(err error) (string, error) {
		return keep, task.Errorf(task.CodeSource, "source.publish", "the task's commits cannot be stored in %s: %w", quote(d.to), err).
			WithHint("the task's files are still there")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as git makes it
		return fail(err)
	}
	if f, err := os.OpenFile(to+".keep", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		keep = to + ".keep"
		_, err = f.WriteString(keepText(d.task) + "\n")
		if cerr := f.Close(); err != nil || cerr != nil {
			return fail(errors.Join(err, cerr))
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return fail(err)
	}
	for _, ext := range packParts {
		if !exists(base+ext) || exists(to+ext) {
			continue
		}
		tmp := filepath.Join(dir, tempPrefix(d.task)+ext[1:])
		_ = os.Remove(tmp)
		err := copyFile(base+ext, tmp, 0o444)
		if err == nil {
			err = syncFile(tmp)
		}
		if err == nil {
			err = os.Rename(tmp, to+ext)
		}
		if err != nil {
			_ = os.Remove(tmp)
			return fail(err)
		}
	}
	if err := syncFile(dir); err != nil {
		return fail(err)
	}
	return keep, nil
}

// index makes the index of a pack of ours, with the checks that git makes of
// what it receives, and returns the pack's name.
func (d *delivery) index(ctx context.Context, pack string) (hash string, err error) {
	out, err := d.g.Run(ctx, git.Cmd{GitDir: d.from, Args: []string{"index-pack", "--strict", pack}})
	hash = strings.TrimSpace(string(out))
	if err == nil && !git.IsOID(hash) {
		err = errors.New("git index-pack did not name the pack")
	}
	if err != nil {
		return "", task.Errorf(task.CodeBadResult, "source.publish", "the task's commits do not pass verification: %v", err).
			WithHint("the task's files are still there")
	}
	return hash, nil
}

// verify checks a pack of ours and leaves nothing beside it.
func (d *delivery) verify(ctx context.Context, pack string) error {
	defer removeIndex(strings.TrimSuffix(pack, ".pack"))
	_, err := d.index(ctx, pack)
	return err
}

func removeIndex(base string) {
	for _, ext := range []string{".idx", ".rev"} {
		_ = os.Remove(base + ext)
	}
}

// tempPrefix begins the name of a file of ours that is being copied into a
// user's repository. git removes such names too when it collects garbage.
func tempPrefix(id task.ID) string { return "tmp_caisson_" + string(id) + "_" }

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// canPublish reports whether refs can be written after all: a repository
// without a commit had nothing to pin.
func canPublish(s *state) bool {
	return len(s.Tips) == 0 && ownerOf(s.CommonDir) == os.Geteuid() && mayWrite(s.CommonDir) && mayWrite(filepath.Join(s.CommonDir, "refs"))
}

// count counts the commits of a result, for the first few.
func (ws Workspace) count(ctx context.Context, g *git.Git, r result, i int) int {
	if i >= 16 {
		return 0
	}
	out, err := g.Run(ctx, ws.shadowCmd("rev-list", "--count", r.object, "--not", "--all"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	return n
}

// keepBundle writes results to a bundle file in the task's kept folder. why is why
// no repository took them; empty: there is none.
func (ws Workspace) keepBundle(ctx context.Context, g *git.Git, s *state, rs []result, why string) ([]task.ResultRef, error) {
	fail := func(err error) ([]task.ResultRef, error) {
		return nil, task.Errorf(task.CodeSource, "source.publish", "the task's results cannot be kept as a bundle: %v", err)
	}
	if err := os.MkdirAll(ws.kept(), 0o700); err != nil {
		return fail(err)
	}
	var tx strings.Builder
	for _, r := range rs {
		fmt.Fprintf(&tx, "update %s%s %s\n", refPrefix(ws.Task), r.name, r.object)
	}
	cmd := ws.shadowCmd("update-ref", "--no-deref", "--stdin")
	cmd.Stdin = strings.NewReader(tx.String())
	if _, err := g.Run(ctx, cmd); err != nil {
		return fail(err)
	}
	path := filepath.Join(ws.kept(), "work.bundle")
	args := []string{"bundle", "create", "--quiet", path + ".new", "--glob=" + refPrefix(ws.Task) + "*", "--not", "--glob=refs/tips/*"}
	if _, err := g.Run(ctx, ws.shadowCmd(args...)); err != nil {
		return fail(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fail(err)
	}
	return []task.ResultRef{{Kind: "bundle", Name: path, Count: len(rs), Why: why}}, nil
}

// keepText is what the .keep file of a task's pack says: the proof of whose it is.
func keepText(id task.ID) string { return "caisson " + string(id) }

// dropKeeps removes .keep files and half-copied packs that a process left which
// was killed before a ref led to what it stored.
func dropKeeps(commonDir string, id task.ID) error {
	dir := filepath.Join(commonDir, "objects", "pack")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return task.Errorf(task.CodeStuck, "source.unpin", "the packs of %s cannot be listed: %v", quote(commonDir), err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Type().IsRegular() && strings.HasPrefix(e.Name(), tempPrefix(id)) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return task.Errorf(task.CodeStuck, "source.unpin", "%s cannot be removed: %v", quote(path), err)
			}
			continue
		}
		if !strings.HasSuffix(e.Name(), ".keep") || !e.Type().IsRegular() {
			continue
		}
		if i, err := e.Info(); err != nil || i.Size() > 64 {
			continue
		}
		if b, err := os.ReadFile(path); err != nil || strings.TrimSuffix(string(b), "\n") != keepText(id) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return task.Errorf(task.CodeStuck, "source.unpin", "%s cannot be removed: %v", quote(path), err)
		}
	}
	return nil
}

// dropNamespace removes the folders of a task's refs that git leaves behind
// empty. One that holds something stays, and git makes them anew at need.
func dropNamespace(commonDir string, id task.ID) {
	for _, d := range []string{refPrefix(id) + "pin", refPrefix(id), "refs/caisson"} {
		_ = os.Remove(filepath.Join(commonDir, filepath.FromSlash(d)))
	}
}

// Unpin removes what Prepare pinned for a task, and nothing else: results
// stay. It can be repeated, and does nothing where nothing is pinned.
func Unpin(ctx context.Context, commonDir string, id task.ID) error {
	return unpin(ctx, commonDir, id, func(g *git.Git, tx string) error {
		_, err := g.Run(ctx, git.Cmd{GitDir: commonDir, Stdin: strings.NewReader(tx), Args: unpinArgs})
		return err
	})
}

var unpinArgs = []string{"update-ref", "--no-deref", "--stdin"}

// unpin has run give a transaction to git.
func unpin(ctx context.Context, commonDir string, id task.ID, run func(g *git.Git, tx string) error) error {
	if _, ok := task.ParseID(string(id)); !ok {
		return task.Errorf(task.CodeInternal, "source.unpin", "not a task id: %q", id)
	}
	if commonDir == "" || !exists(filepath.Join(commonDir, "objects")) {
		return nil // there is none, or the whole repository is gone
	}
	if err := dropKeeps(commonDir, id); err != nil {
		return err
	}
	g, err := findGit(ctx)
	if err != nil {
		return err
	}
	refs, err := listUserRefs(ctx, g, commonDir, refPrefix(id)+"pin/", false)
	if err != nil {
		return err
	}
	defer dropNamespace(commonDir, id)
	if len(refs) == 0 {
		return nil
	}
	var tx strings.Builder
	tx.WriteString("start\n")
	for _, r := range refs {
		fmt.Fprintf(&tx, "delete %s %s\n", r.Name, r.Object)
	}
	tx.WriteString("prepare\ncommit\n")
	if err := run(g, tx.String()); err != nil {
		return task.Errorf(task.CodeStuck, "source.unpin", "the pins of %s cannot be removed: %v", id, err)
	}
	return sys.Fault("source.unpinned")
}

// Unpinning is an Unpin of which git can be started ahead, to wait for its input:
// starting it takes longer than what it does then. Nothing is removed before Finish.
type Unpinning struct {
	dir   string
	id    task.ID
	input *os.File // nil: git was not started, or had its input
	done  chan error
}

// Pins are those of a task in the repository at commonDir. The caller calls Close.
func Pins(commonDir string, id task.ID) *Unpinning { return &Unpinning{dir: commonDir, id: id} }

// Ahead starts git where there are pins.
func (u *Unpinning) Ahead(ctx context.Context) {
	if u.dir == "" || !exists(filepath.Join(u.dir, filepath.FromSlash(refPrefix(u.id)+"pin"))) {
		return
	}
	g, err := findGit(ctx)
	if err != nil {
		return // Finish says so
	}
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	u.input, u.done = w, make(chan error, 1)
	go func() {
		_, err := g.Run(ctx, git.Cmd{GitDir: u.dir, Stdin: r, Args: unpinArgs})
		u.done <- errors.Join(err, r.Close())
	}()
}

// Finish is Unpin.
func (u *Unpinning) Finish(ctx context.Context) error {
	if u.input == nil {
		return Unpin(ctx, u.dir, u.id)
	}
	return unpin(ctx, u.dir, u.id, func(g *git.Git, tx string) error {
		_, err := u.input.WriteString(tx)
		if err = errors.Join(u.give(), err); err != nil { // it did not live to this, perhaps
			_, err = g.Run(ctx, git.Cmd{GitDir: u.dir, Stdin: strings.NewReader(tx), Args: unpinArgs})
		}
		return err
	})
}

// Close ends a git that had no input.
func (u *Unpinning) Close() {
	if u.input != nil {
		_ = u.give() // it was asked nothing
	}
}

// give ends git's input and waits for git.
func (u *Unpinning) give() error {
	err := u.input.Close()
	u.input = nil
	return errors.Join(<-u.done, err)
}
