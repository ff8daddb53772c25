package source

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// inspectCopy finds the folder or archive whose files a task gets, without git.
func inspectCopy(_ context.Context, o Options) (*Repo, error) {
	switch {
	case o.Base != "":
		return nil, task.Errorf(task.CodeUsage, "source.inspect", "--source copy takes files as they are and has no revision %s", quote(o.Base)).
			WithHint("leave --base out, or use the clone strategy")
	case o.Dirty != task.DirtyNone:
		return nil, task.Errorf(task.CodeUsage, "source.inspect", "--source copy has every file of the folder, committed or not: --dirty adds nothing").
			WithHint("leave --dirty out")
	}
	dir := o.Dir
	if dir == "" {
		dir = "."
	}
	top, err := filepath.Abs(dir)
	if err == nil {
		top, err = filepath.EvalSymlinks(top)
	}
	if err != nil {
		return nil, broken("name a folder or an archive with --repo", "%s cannot be used: %v", quote(dir), err)
	}
	st, err := os.Stat(top)
	if err != nil {
		return nil, broken("check its permissions", "%s cannot be read: %v", quote(top), err)
	}
	if strings.ContainsAny(top, "\n\x00") || !utf8.ValidString(top) {
		return nil, unsupported("rename it", "the path %s contains a line break or is not UTF-8", quote(top))
	}
	r := &Repo{format: "sha1", Identity: (&config{}).identity(o.Env)}
	r.Ref = task.SourceRef{Repo: top, Strategy: task.StrategyCopy, History: task.HistoryNone, Target: o.At}
	if r.Ref.Target == "" {
		r.Ref.Target = top
	}
	switch {
	case st.IsDir():
	case st.Mode().IsRegular():
		form, err := archiveForm(top)
		if err != nil {
			return nil, err
		}
		r.archive = form
		if o.At == "" {
			r.Ref.Target = withoutExtension(top)
		}
	default:
		return nil, broken("name a folder or an archive with --repo", "%s is neither a folder nor a file", quote(top))
	}
	if err := cleanTarget(r.Ref.Target); err != nil {
		return nil, err
	}
	return r, nil
}

// Archive reports whether the source is an archive and not a folder.
func (r *Repo) Archive() bool { return r.archive != "" }

// prepareCopy copies a folder or unpacks an archive into ws.Dir/source, and
// records in ws.Dir/shadow.git what that was. Nothing of git is started.
func prepareCopy(ctx context.Context, r *Repo, ws Workspace, in Inside) (*Prepared, error) {
	p := &preparation{r: r, ws: ws, in: in}
	if err := p.frame(); err != nil {
		return nil, err
	}
	if in.Framed != nil {
		in.Framed()
	}
	c, err := newCopier(ws, in.Disk)
	if err != nil {
		return nil, p.fail("the files cannot be copied", err)
	}
	defer c.close()
	if r.archive != "" {
		ws.say("unpacking " + filepath.Base(r.Ref.Repo))
		err = c.unpack(ctx, r.Ref.Repo, r.archive)
	} else {
		ws.say("copying files")
		err = c.folder(ctx, r.Ref.Repo)
	}
	if err != nil {
		return nil, copyError(r.Ref.Repo, err)
	}
	s := state{
		Version: 1, Task: ws.Task, Repo: r.Ref.Repo, Format: r.format, Strategy: r.Ref.Strategy, History: r.Ref.History, Identity: r.Identity,
	}
	if s.StartTree, err = c.record(); err != nil {
		return nil, p.fail("the record of the files cannot be written", err)
	}
	if s.StartTree == "" {
		s.StartTree = s.emptyTree()
	}
	if err := ws.cutOff(&s, c.last); err != nil {
		return nil, p.fail("the time cannot be read", err)
	}
	if err := ws.keepTold(&s, r); err != nil {
		return nil, p.fail("what the folder says of itself cannot be kept", err)
	}
	if err := ws.saveState(&s); err != nil {
		return nil, p.fail("the record cannot be written", err)
	}
	out := &Prepared{Ref: r.Ref, Source: ws.source(), Shadow: ws.shadow()}
	out.Ref.Notes = append(append([]string(nil), r.Ref.Notes...), c.notes()...)
	return out, nil
}

// frame makes the task's folder and the host's own repository beside it.
func (p *preparation) frame() error {
	if err := p.tops(); err != nil {
		return err
	}
	for _, d := range []string{"objects/pack", "refs"} {
		if err := os.MkdirAll(p.ws.shadow()+"/"+d, 0o700); err != nil {
			return p.fail("the task's repository cannot be made", err)
		}
	}
	return p.write(p.ws.shadow(), map[string]string{
		"HEAD":   "ref: refs/heads/none\n",
		"config": p.config(true),
		// Files without git are bytes: what a .gitattributes among them says is
		// not meant for them.
		"info/attributes": rawAttributes,
	})
}

// rawAttributes switches every conversion off.
const rawAttributes = "* -text -eol -ident -working-tree-encoding -filter\n"

// copyError explains why a folder or archive could not be copied.
func copyError(top string, err error) error {
	if code := task.CodeOf(err); code != task.CodeInternal {
		return err
	}
	return (&task.Error{Code: task.CodeSource, Op: "source.copy", Msg: "the files of " + quote(top) + " cannot be copied", Err: err}).
		WithHint("nothing was started; check the folder and the space on the disk")
}

// copier fills the folder of a task and remembers what it put there.
type copier struct {
	ws      Workspace
	root    *os.Root
	look    *tree.Root // the same folder, for what os cannot tell
	pack    *packer    // nil until there is something to pack
	entries []indexEntry
	dirs    []settled
	left    int64 // bytes that may still be written
	limit   int64
	last    tree.Info // the newest that was written
	buf     []byte
	reports map[string]*leftOut
}

// settled is a folder whose mode is set when everything is in it.
type settled struct {
	path string
	mode os.FileMode
}

// leftOut counts what was not copied, or not as it is, for one reason.
type leftOut struct {
	n     int
	names []string
}

func newCopier(ws Workspace, limit int64) (*copier, error) {
	if limit <= 0 {
		limit = maxUsage
	}
	c := &copier{ws: ws, left: limit, limit: limit, reports: map[string]*leftOut{}}
	var err error
	if c.root, err = os.OpenRoot(ws.source()); err != nil {
		return nil, err
	}
	if c.look, err = tree.OpenRoot(ws.source()); err != nil {
		c.root.Close()
	}
	return c, err
}

func (c *copier) close() {
	c.root.Close()
	c.look.Close()
	if c.pack != nil {
		c.pack.drop()
	}
}

// packer is there from the first file on: an empty folder needs none.
func (c *copier) packer() (p *packer, err error) {
	if c.pack == nil {
		c.pack, err = newPacker(c.ws.shadow())
	}
	return c.pack, err
}

// take counts the space that a file of size takes, as Usage will.
func (c *copier) take(path string, size int64) error {
	if size > c.left || size < 0 {
		return c.full(path)
	}
	if c.left -= max(1, (size+blockSize-1)/blockSize) * blockSize; c.left < 0 {
		return c.full(path)
	}
	return nil
}

func (c *copier) full(path string) error {
	return task.Errorf(task.CodeLimit, "source.copy", "the files take more than the %d MiB that the task may have on disk, at %s", c.limit>>20, quote(path)).
		WithHint("raise --disk, or name a smaller folder with --repo")
}

// add remembers what was written at path.
func (c *copier) add(path, oid string, i tree.Info) {
	c.entries = append(c.entries, entryOf(path, oid, i))
	c.newest(i)
}

// newest remembers the last changing time that something of ours got.
func (c *copier) newest(i tree.Info) {
	if i.CtimeS > c.last.CtimeS || i.CtimeS == c.last.CtimeS && i.CtimeN > c.last.CtimeN {
		c.last = i
	}
}

// link makes a symbolic link. Nothing follows it here.
func (c *copier) link(path, target string) error {
	if err := c.root.Symlink(target, path); err != nil {
		return err
	}
	i, err := c.look.Stat(path)
	if err != nil {
		return err
	}
	p, err := c.packer()
	if err != nil {
		return err
	}
	oid, err := p.put(packBlob, []byte(target))
	if err != nil {
		return err
	}
	c.add(path, oid, i)
	return nil
}

// record settles the folders and writes what was copied as a tree and a stat
// cache. The tree is empty when there is no file.
func (c *copier) record() (string, error) {
	for _, d := range slices.Backward(c.dirs) {
		if err := c.root.Chmod(d.path, d.mode); err != nil {
			return "", err
		}
	}
	if len(c.entries) == 0 {
		return "", nil
	}
	slices.SortFunc(c.entries, func(a, b indexEntry) int { return strings.Compare(a.path, b.path) })
	top, err := c.pack.tree(c.entries)
	if err != nil {
		return "", err
	}
	p := c.pack
	c.pack = nil
	if err := p.close(); err != nil {
		return "", err
	}
	return top, os.WriteFile(c.ws.shadow()+"/"+baseIndex, writeIndex(c.entries, "sha1"), 0o600)
}

// report counts something that the task does not have as the user has it.
func (c *copier) report(why, path string) {
	l := c.reports[why]
	if l == nil {
		l = &leftOut{}
		c.reports[why] = l
	}
	l.n++
	if len(l.names) < maxNamed {
		l.names = append(l.names, quote(path))
	}
}

// maxNamed is how many names a note lists.
const maxNamed = 3

// notes renders the reports.
func (c *copier) notes() []string {
	var out []string
	for why, l := range c.reports {
		out = append(out, withNames(why, l.n, l.names))
	}
	slices.Sort(out)
	return out
}

// withNames renders "why: n (a, b, …)".
func withNames(why string, n int, names []string) string {
	if n > len(names) {
		names = append(names[:len(names):len(names)], "…")
	}
	return why + ": " + itoa(n) + " (" + strings.Join(names, ", ") + ")"
}
