package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// carried is the uncommitted state of the user's checkout, as names. The
// content is where it was; only what the index holds is in the shadow
// repository by now.
type carried struct {
	index   string       // tree of the index
	entries []indexEntry // of the index, with the user's flags
	staged  int          // entries that differ from the base
	pack    string       // in the shadow repository: what the index needs beyond the base; empty: nothing

	changed   []string // tracked, and in the checkout not as in the index
	deleted   []string // tracked, and not in the checkout
	untracked []string
	ignored   []string // top-most; a folder ends with "/"
	nested    []string // repositories below: not carried
	links     int      // submodules
}

// mayCarry refuses, before there is any effect, what cannot be carried.
func (r *Repo) mayCarry(ctx context.Context, o Options) error {
	switch o.Dirty {
	case task.DirtyNone:
		return nil
	case task.DirtyChanged, task.DirtyAll:
	default:
		return task.Errorf(task.CodeUsage, "source.carry", "--dirty does not know %q", o.Dirty).WithHint("use changed or all")
	}
	if o.Base != "" && o.Base != "HEAD" && o.Base != "@" {
		return task.Errorf(task.CodeUsage, "source.carry", "--dirty carries what differs from HEAD, so the task cannot start from %s", quote(o.Base)).
			WithHint("leave --base out, or leave --dirty out")
	}
	// Where the index is split, git marks the parts as read, and of a sparse index
	// it stores the folders that it writes out: then only the copy is looked at,
	// when the task is being made.
	if len(splitParts(r.gitDir)) == 0 && !r.sparseIndex {
		out, err := r.git.Run(ctx, git.Cmd{GitDir: r.gitDir, Args: []string{"ls-files", "--unmerged", "-z"}})
		if err != nil {
			return broken("run `git status` there", "the index of %s cannot be read: %v", quote(r.Ref.Repo), err)
		}
		if rec, _ := git.SplitZ(out); len(rec) > 0 {
			_, name, _ := strings.Cut(rec[0], "\t")
			return unresolved(name)
		}
	}
	for _, doing := range []struct{ file, what string }{
		{"MERGE_HEAD", "a merge"}, {"rebase-merge", "a rebase"}, {"rebase-apply", "a rebase"}, {"CHERRY_PICK_HEAD", "a cherry-pick"}, {"REVERT_HEAD", "a revert"},
	} {
		if exists(filepath.Join(r.gitDir, doing.file)) {
			r.note(doing.what + " is in progress in your checkout: the task has its files, and knows nothing of it")
		}
	}
	r.Ref.Dirty = o.Dirty
	return nil
}

func unresolved(name string) error {
	return task.Errorf(task.CodeConflict, "source.carry", "your checkout has conflicts that are not resolved, for example in %s", quote(name)).
		WithHint("resolve them and `git add` the files, or leave --dirty out to start from the commit")
}

// capture finds the uncommitted state of the user's checkout. git reads a copy
// of the user's index under the shadow repository, so that no filter, hook or
// monitor that is configured anywhere can run; in the checkout and its
// repository nothing is written. What the index holds becomes a tree in the
// shadow repository. It needs the shadow repository only.
func (ws Workspace) capture(ctx context.Context, r *Repo) (*carried, error) {
	c := &capturing{ctx: ctx, ws: ws, r: r, index: filepath.Join(ws.shadow(), "carry.index"), carried: &carried{}}
	defer c.clean()
	fail := func(err error) (*carried, error) {
		if code := task.CodeOf(err); code != task.CodeInternal {
			return nil, err
		}
		return nil, task.Errorf(task.CodeSource, "source.carry", "the uncommitted state of %s cannot be read: %v", quote(r.Ref.Repo), err).
			WithHint("check it with `git status`, or leave --dirty out to start from the commit")
	}
	for _, step := range []func() error{c.copyIndex, c.flags, c.compare, c.list, c.writeTree, c.largeFiles} {
		if err := step(); err != nil {
			return fail(err)
		}
	}
	return c.carried, nil
}

type capturing struct {
	*carried
	ctx    context.Context
	ws     Workspace
	r      *Repo
	index  string
	shared []string // copies of the parts of a split index
	raw    []rawChange
}

func (c *capturing) clean() {
	for _, p := range append(c.shared, c.index) {
		_ = os.Remove(p)
	}
}

// run calls git on the copy of the index, with the user's checkout as its work
// tree.
func (c *capturing) run(stdin string, args ...string) ([]byte, error) {
	return c.r.git.Run(c.ctx, git.Cmd{
		GitDir: c.ws.shadow(), WorkTree: c.r.Ref.Repo, Args: args, Stdin: strings.NewReader(stdin), Max: 256 << 20,
		Env:    []string{"GIT_INDEX_FILE=" + c.index, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + c.r.objects, "GIT_LITERAL_PATHSPECS=1"},
		Config: []string{"core.bare=false", "index.version=2", "core.splitIndex=false", "core.safecrlf=false", "core.fileMode=" + strconv.FormatBool(c.r.fileMode)},
	})
}

// copyIndex copies the user's index in a form that parseIndex reads: without
// what a split, sparse or compressed one refers to.
func (c *capturing) copyIndex() error {
	from := filepath.Join(c.r.gitDir, "index")
	if st, err := os.Stat(from); err == nil && st.Size() > maxIndex {
		return task.Errorf(task.CodeLimit, "source.carry", "the index of your checkout has more than %d MiB", maxIndex>>20).WithHint("leave --dirty out")
	}
	var err error
	if c.shared, err = copySplit(c.r.gitDir, c.ws.shadow()); err != nil {
		return err
	}
	ok, err := copyIndex(from, c.index)
	if err != nil || !ok {
		return err // none: nothing was ever staged
	}
	if _, err := c.run("", "update-index", "--index-version", "2"); err != nil {
		return err
	}
	b, err := os.ReadFile(c.index)
	if err != nil {
		return err
	}
	if c.entries, err = parseIndex(b, c.r.format); err != nil {
		return err
	}
	for i := range c.entries {
		if c.entries[i].flags&stageBits != 0 {
			return unresolved(c.entries[i].path)
		}
		if c.entries[i].mode == gitlink {
			c.links++
		}
	}
	return nil
}

// flags writes the copy anew with every file to be looked at: one that the user
// told git not to look at may have another content all the same. A file that
// a sparse checkout leaves out stays left out of the comparison. The time stays
// what it was (see copyIndex).
func (c *capturing) flags() error {
	if len(c.entries) == 0 {
		return nil
	}
	top, err := tree.OpenUser(c.r.Ref.Repo)
	if err != nil {
		return err
	}
	defer top.Close()
	look := make([]indexEntry, len(c.entries))
	copy(look, c.entries)
	for i := range look {
		e := &look[i]
		e.flags &^= assumedValid
		if e.more&skipWorktree != 0 {
			if _, err := top.Stat(e.path); err == nil {
				e.more &^= skipWorktree
			}
		}
	}
	younger := c.index + ".flags"
	if err := os.WriteFile(younger, writeIndex(look, c.r.format), 0o600); err != nil {
		return err
	}
	if err := sameTime(c.index, younger); err != nil {
		return err
	}
	return os.Rename(younger, c.index)
}

// compare lists what differs between index and checkout.
func (c *capturing) compare() error {
	if len(c.entries) == 0 {
		return nil
	}
	// What only looks changed, by its times, is compared now. The status says
	// that something really is, not that the call failed.
	if _, err := c.run("", "update-index", "-q", "--ignore-submodules", "--refresh"); err != nil && git.Status(err) != 1 {
		return err
	}
	out, err := c.run("", "diff-files", "-z", "--raw", "--no-abbrev", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=all")
	if err != nil {
		return err
	}
	if c.raw, err = parseRaw(out); err != nil {
		return err
	}
	for _, d := range c.raw {
		switch {
		case d.OldMode == gitlink || d.NewMode == gitlink: // counted with the submodules
		case d.Status == 'D':
			c.deleted = append(c.deleted, string(d.Path))
		default:
			c.changed = append(c.changed, string(d.Path))
		}
	}
	return nil
}

// list finds what is not in the index. A repository below is named by git, and
// not looked into.
func (c *capturing) list() error {
	others := []string{"ls-files", "-z", "--others", "--exclude-standard"}
	out, err := c.run("", others...)
	if err != nil {
		return err
	}
	names, ok := git.SplitZ(out)
	if !ok {
		return errors.New("git's list of untracked files was cut")
	}
	for _, n := range names {
		switch {
		case strings.HasSuffix(n, "/"):
			c.nested = append(c.nested, n)
		case !reservedPath(n):
			c.untracked = append(c.untracked, n)
		}
	}
	if c.r.Ref.Dirty != task.DirtyAll {
		return nil
	}
	if out, err = c.run("", append(others, "--ignored", "--directory")...); err != nil {
		return err
	}
	if c.ignored, ok = git.SplitZ(out); !ok {
		return errors.New("git's list of ignored files was cut")
	}
	return nil
}

// reservedPath reports whether a component of p is one that git keeps for itself.
func reservedPath(p string) bool {
	for _, c := range strings.Split(p, "/") {
		if isDotGit(c) {
			return true
		}
	}
	return false
}

// writeTree makes the tree of the index and takes the objects of the user's
// store that it needs beyond the base: they may be gone there at any time.
func (c *capturing) writeTree() error {
	out, err := c.run("", "write-tree")
	if err != nil {
		return err
	}
	if c.carried.index = strings.TrimSpace(string(out)); !git.IsOID(c.carried.index) {
		return fmt.Errorf("git write-tree answered %q", out)
	}
	base := c.r.Ref.Base
	want := c.carried.index + "\n"
	if base != "" {
		want += "^" + base + "\n"
		if out, err = c.run("", "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", base, c.carried.index, "--"); err != nil {
			return err
		}
		raw, err := parseRaw(out)
		if err != nil {
			return err
		}
		c.staged = len(raw)
	} else {
		for _, e := range c.entries {
			if e.more&intentToAdd == 0 {
				c.staged++
			}
		}
	}
	if c.staged == 0 {
		return nil
	}
	tmp := c.ws.shadow() + "/" + carriedPack
	if out, err = c.run(want, "pack-objects", "--revs", "--delta-base-offset", "-q", tmp); err != nil {
		return err
	}
	hash := strings.TrimSpace(string(out))
	if !git.IsOID(hash) {
		return fmt.Errorf("git pack-objects answered %q", out)
	}
	c.pack = "pack-" + hash
	for _, ext := range packParts {
		from := tmp + "-" + hash + ext
		if ext == ".rev" && !exists(from) {
			continue
		}
		if err := os.Rename(from, c.ws.shadow()+"/objects/pack/"+c.pack+ext); err != nil {
			return err
		}
	}
	return nil
}

// carriedPack begins the name of the pack that is made of what the user staged.
const carriedPack = "carried"

// packParts are the files of a pack; git looks for the last.
var packParts = []string{".pack", ".rev", ".idx"}

// A Git LFS pointer begins with pointerStart and has at most maxPointer bytes.
const (
	pointerStart = "version https://git-lfs.github.com/spec/"
	maxPointer   = 1024
)

// largeFiles takes those off the list whose content is in Git LFS just as the
// index says: the user's own git sees no change there, by a filter that never
// runs here.
func (c *capturing) largeFiles() error {
	var asked []rawChange
	var q strings.Builder
	for _, d := range c.raw {
		if d.Status == 'M' && d.OldMode&0o170000 == 0o100000 && d.OldMode == d.NewMode {
			asked = append(asked, d)
			q.WriteString(d.oldOID + "\n")
		}
	}
	lfs := bytes.Contains(c.r.attrs, []byte("filter=lfs"))
	for i := range c.entries {
		lfs = lfs || path.Base(c.entries[i].path) == ".gitattributes"
	}
	if len(asked) == 0 || !lfs {
		return nil
	}
	out, err := c.run(q.String(), "cat-file", "--batch-check=%(objectsize)")
	if err != nil {
		return err
	}
	sizes := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(sizes) != len(asked) {
		return errors.New("git cat-file answered another number of questions")
	}
	top, err := tree.OpenUser(c.r.Ref.Repo)
	if err != nil {
		return err
	}
	defer top.Close()
	same := map[string]bool{}
	for i, d := range asked {
		if n, err := strconv.Atoi(sizes[i]); err != nil || n > maxPointer {
			continue
		}
		b, err := c.run("", "cat-file", "blob", d.oldOID)
		if err != nil {
			return err
		}
		oid, ok := pointer(b)
		if !ok {
			continue
		}
		f, _, err := top.Open(string(d.Path))
		if err != nil {
			continue // told when it is copied
		}
		h := sha256.New()
		_, err = io.Copy(h, cancelable{c.ctx, f})
		f.Close()
		same[string(d.Path)] = err == nil && hex.EncodeToString(h.Sum(nil)) == oid
	}
	var changed []string
	for _, p := range c.changed {
		if !same[p] {
			changed = append(changed, p)
		}
	}
	c.changed = changed
	return nil
}

// pointer reads the name of the content that a Git LFS pointer stands for.
func pointer(b []byte) (oid string, ok bool) {
	if !bytes.HasPrefix(b, []byte(pointerStart)) {
		return "", false
	}
	for _, line := range strings.Split(string(b), "\n") {
		if oid, ok := strings.CutPrefix(line, "oid sha256:"); ok && len(oid) == 64 {
			return oid, true
		}
	}
	return "", false
}
