package source

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/swap"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// ApplyOptions says where a result goes.
type ApplyOptions struct {
	// Source is what was recorded of the task's source: the target is the
	// checkout that it names, found anew.
	Source task.SourceRef
	// Journal is a folder of caisson's own, tasks/<id>/apply. It exists only
	// while an apply is under way, or was cut short. The folder it is in must be
	// caisson's own too.
	Journal string
	// Env is the user's environment, as in Options.
	Env []string
	// Progress tells what goes on when it takes long; may be nil.
	Progress func(string)
}

// ApplyPlan is what bringing a result into the checkout would do. Nothing was
// changed for it. Close it.
type ApplyPlan struct {
	Checkout string // the folder that is changed
	// Digest names exactly this change of exactly this checkout.
	Digest    string
	Changes   []task.FileChange // what is still to be done
	Already   int               // files that are as wanted before anything is done
	Conflicts []task.Conflict   // not empty: Apply refuses
	Notes     []string

	o       ApplyOptions
	g       *git.Git
	task    task.ID
	scratch *scratch
	dir     string // git directory that sees the checkout's objects and the result's
	work    string // files as they shall be
	t       *target
	format  string
	ours    string // tree that the checkout holds as committed
	wanted  string // tree that it shall hold
	dev     uint64
	ino     uint64
	changes []rawChange
	want    map[string]*wantedFile
	perms   struct{ file, exec, dir uint32 } // of what is new, under the user's umask
}

// wantedFile is one file or link as it shall be, converted as on a checkout.
type wantedFile struct {
	link bool
	exec bool
	to   string // of a link
	from string // of a file
	hash [sha256.Size]byte
}

// PlanApply works out what bringing the result into the checkout means. It has
// no effect on the checkout or the user's repository.
func (r *Result) PlanApply(ctx context.Context, o ApplyOptions) (_ *ApplyPlan, err error) {
	if o.Journal == "" {
		return nil, task.Errorf(task.CodeInternal, "source.apply", "where the journal goes is not set")
	}
	p := &ApplyPlan{o: o, g: r.g, task: r.Task, format: r.format, Checkout: o.Source.Repo}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.t, err = findTarget(ctx, r.g, o.Source, o.Env); err != nil {
		return nil, err
	}
	if p.t.repo != nil && p.t.repo.format != r.format {
		return nil, task.Errorf(task.CodeSource, "source.apply", "the result uses the object format %s, the repository %s", r.format, p.t.repo.format).
			WithHint("take the result with `caisson export --patch`")
	}
	if p.scratch, err = newScratch(ctx, filepath.Dir(o.Journal)); err != nil {
		return nil, err
	}
	from := []string{r.dir + "/objects"}
	spec := gitSpec{format: r.format, attributes: neutralMerge}
	p.ours = r.Start
	if p.t.repo != nil {
		from = append(from, stores(p.t.repo.objects)...)
		spec.settings = p.t.repo.settings
		if p.ours, err = p.t.headTree(ctx); err != nil {
			return nil, err
		}
	}
	spec.stores = from
	merger, err := p.scratch.makeGit("merge.git", spec)
	if err != nil {
		return nil, err
	}
	p.say("merging with the checkout")
	m, err := (&merging{g: r.g, dir: merger, start: r.Start, ours: p.ours, theirs: r.Tree}).run(ctx)
	if err != nil {
		return nil, err
	}
	spec.attributes, spec.stores = p.t.attrs, append([]string{merger + "/objects"}, from...)
	if p.dir, err = p.scratch.makeGit("files.git", spec); err != nil {
		return nil, err
	}
	if err := p.identify(); err != nil {
		return nil, err
	}
	for _, u := range r.Unfit {
		p.Notes = append(p.Notes, "not in the result, no tree can hold it: "+quote(u))
	}
	if o.Source.Start != "" && o.Source.Start != o.Source.Base {
		p.Notes = append(p.Notes, "the task began with uncommitted changes of the checkout: where it changed the same files, commit yours first, then apply")
	}
	p.wanted = m.tree
	if len(m.conflicts) > 0 {
		p.Conflicts = m.conflicts
		p.blameCarried(ctx, merger, r.Start)
		p.seal(r.Tree)
		return p, nil
	}
	if p.changes, err = diffTrees(ctx, p.g, p.dir, p.ours, p.wanted); err != nil {
		return nil, err
	}
	p.seal("")
	if p.refuseNames(); len(p.Conflicts) > 0 {
		return p, nil
	}
	if err := p.materialise(ctx); err != nil {
		return nil, err
	}
	p.seal("")
	root, err := p.openRoot()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s, err := p.survey(ctx, root)
	if err != nil {
		return nil, err
	}
	p.Already, p.Conflicts = s.already, s.conflicts
	for _, c := range p.changes {
		if !s.done[string(c.Path)] {
			p.Changes = append(p.Changes, fileChange(c))
		}
	}
	return p, nil
}

// Hindrance says why Apply will be refused although nothing collides: the
// checkout lies where the kernel cannot exchange two files in one step, as it
// cannot with any file system of another machine. Empty: no reason is known.
// Nothing is tried, as that would change the checkout.
func (p *ApplyPlan) Hindrance() string {
	name, network, err := sys.IsNetworkFS(p.Checkout)
	if err != nil || !network || len(p.Changes) == 0 {
		return ""
	}
	return fmt.Sprintf("the checkout lies on %s, where files cannot be exchanged in one step: an apply will be refused; take the result with `caisson branch %s` or `caisson export --patch %s`", name, p.task, p.task)
}

// Close gives back what the plan holds. The zero value can be closed.
func (p *ApplyPlan) Close() {
	if p.scratch != nil {
		p.scratch.remove()
		p.scratch = nil
	}
}

func (p *ApplyPlan) say(s string) {
	if p.o.Progress != nil {
		p.o.Progress(s)
	}
}

// blameCarried names the real reason of a conflict over a file that the task
// began with as the user had it, uncommitted: the checkout's commit, which the
// merge saw, does not know that file so.
func (p *ApplyPlan) blameCarried(ctx context.Context, dir, start string) {
	s := p.o.Source
	if s.Start == "" || s.Start == s.Base {
		return
	}
	began, err := diffTrees(ctx, p.g, dir, s.Base, start)
	if err != nil {
		return // the merge's own words are true, only less plain
	}
	since, err := diffTrees(ctx, p.g, dir, s.Base, p.ours)
	if err != nil {
		return
	}
	carried := map[string]bool{}
	for _, c := range began {
		carried[quote(string(c.Path))] = true
	}
	for _, c := range since {
		delete(carried, quote(string(c.Path))) // committed since: a conflict like any other
	}
	for i := range p.Conflicts {
		if c := &p.Conflicts[i]; carried[c.Path] {
			c.Why, c.Hunks = "it had uncommitted changes when the task began, and they are not committed yet: commit yours first", ""
		}
	}
}

// identify remembers which folder the checkout is.
func (p *ApplyPlan) identify() error {
	root, err := os.Open(p.Checkout)
	if err != nil {
		return task.Errorf(task.CodeSource, "source.apply", "the checkout %s cannot be opened: %v", quote(p.Checkout), err)
	}
	defer root.Close()
	p.dev, p.ino, err = identity(root)
	return err
}

// openRoot opens the checkout, which must be the same folder still.
func (p *ApplyPlan) openRoot() (*os.File, error) {
	root, err := os.Open(p.Checkout)
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.apply", "the checkout %s cannot be opened: %v", quote(p.Checkout), err)
	}
	if err := p.sameRoot(root); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

func (p *ApplyPlan) sameRoot(root *os.File) error {
	dev, ino, err := identity(root)
	if err == nil && (dev != p.dev || ino != p.ino) {
		err = task.Errorf(task.CodeConflict, "source.apply", "the folder %s was replaced meanwhile", quote(p.Checkout)).
			WithHint("look at it, then apply again")
	}
	return err
}

// seal makes the digest: what a person agrees to. other is mixed in where
// there is no tree to be wanted.
func (p *ApplyPlan) seal(other string) {
	h := sha256.New()
	fmt.Fprintf(h, "caisson.apply/1\n%s\n%q\n%d %d\n%s\n%s%s\n", p.task, p.Checkout, p.dev, p.ino, p.ours, p.wanted, other)
	for _, c := range p.changes {
		fmt.Fprintf(h, "%c %06o %06o %s %s %q\n", c.Status, c.OldMode, c.NewMode, c.oldOID, c.newOID, c.Path)
		// The bytes as well: attributes and settings of the repository, which
		// are in no tree, decide how an object is written to a checkout.
		if w := p.want[string(c.Path)]; w != nil {
			fmt.Fprintf(h, "%x\n", w.hash)
		}
	}
	p.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func fileChange(c rawChange) task.FileChange {
	f := task.FileChange{
		Status: string(c.Status), Path: strings.ToValidUTF8(string(c.Path), "\ufffd"),
		OldMode: fmt.Sprintf("%06o", c.OldMode), NewMode: fmt.Sprintf("%06o", c.NewMode),
	}
	if !utf8.Valid(c.Path) {
		f.Bytes = base64.StdEncoding.EncodeToString(c.Path)
	}
	return f
}

// refuseNames finds what must never be put into a checkout, before git is asked
// to write any of it.
func (p *ApplyPlan) refuseNames() {
	refuse := func(path, why string) {
		p.Conflicts = append(p.Conflicts, task.Conflict{Path: quote(path), Why: why})
	}
	for _, c := range p.changes {
		path := string(c.Path)
		switch {
		case c.OldMode == gitlink || c.NewMode == gitlink:
			refuse(path, "it is a submodule, which apply does not change: use `caisson branch`, or `git submodule` yourself")
		case len(path) > maxPath || !swap.Valid(path):
			refuse(path, "no file can have this name")
		case c.NewMode == 0:
		case c.NewMode != 0o100644 && c.NewMode != 0o100755 && c.NewMode != modeLink:
			refuse(path, fmt.Sprintf("it has the mode %06o, which no file of a checkout has", c.NewMode))
		case c.NewMode == modeLink && isDotGitmodules(path[strings.LastIndexByte(path, '/')+1:]):
			refuse(path, "git must not find a link under this name")
		default:
			for _, part := range strings.Split(path, "/") {
				if isDotGit(part) {
					refuse(path, "its name is one that git, or git on another file system, takes for its own folder")
					break
				}
			}
		}
	}
}

// materialise writes every wanted file into the scratch folder, as git would on
// a checkout: line ends, $Id$ and encodings as the wanted tree's own attributes
// and the user's settings say. There is no filter in our git directory, so none
// runs, and a pointer of LFS stays one.
func (p *ApplyPlan) materialise(ctx context.Context) error {
	fail := func(err error) error {
		return task.Errorf(task.CodeSource, "source.apply", "the files of the result cannot be written: %v", err)
	}
	p.want = map[string]*wantedFile{}
	p.work = filepath.Join(p.scratch.dir, "files")
	if err := os.Mkdir(p.work, 0o700); err != nil {
		return fail(err)
	}
	if err := p.askUmask(); err != nil {
		return fail(err)
	}
	var paths []string
	for _, c := range p.changes {
		if c.NewMode != 0 {
			paths = append(paths, string(c.Path))
		}
	}
	if len(paths) == 0 {
		return nil
	}
	p.say("writing " + plural(len(paths), "file"))
	cmd := func(stdin string, args ...string) git.Cmd {
		return git.Cmd{
			GitDir: p.dir, WorkTree: p.work, Stdin: strings.NewReader(stdin), Args: args,
			Env:    []string{"GIT_INDEX_FILE=" + filepath.Join(p.dir, "wanted.index")},
			Config: []string{"core.bare=false", "core.symlinks=true", "index.version=2", "checkout.workers=1", "core.bigFileThreshold=64m"},
		}
	}
	if _, err := p.g.Run(ctx, cmd("", "read-tree", p.wanted)); err != nil {
		return fail(err)
	}
	if _, err := p.g.Run(ctx, cmd(joinZ(paths), "checkout-index", "-z", "--stdin", "-f")); err != nil {
		return fail(err)
	}
	root, err := os.Open(p.work)
	if err != nil {
		return fail(err)
	}
	defer root.Close()
	lfs := false
	for _, c := range p.changes {
		if c.NewMode == 0 {
			continue
		}
		path := string(c.Path)
		seen, err := swap.Look(root, path, true)
		if err != nil {
			return fail(err)
		}
		w := &wantedFile{link: c.NewMode == modeLink, exec: c.NewMode == 0o100755, from: filepath.Join(p.work, path)}
		switch {
		case seen == nil, w.link != (seen.Kind == swap.Link), !w.link && seen.Kind != swap.File:
			return fail(fmt.Errorf("git did not write %s", quote(path)))
		case w.link:
			if w.to, err = swap.Readlink(root, path); err != nil {
				return fail(err)
			}
		case !lfs && seen.Size < 1024:
			lfs = isPointer(w.from)
		}
		w.hash = seen.Hash
		p.want[path] = w
	}
	if lfs {
		p.Notes = append(p.Notes, "Git LFS files are pointers: `git lfs pull` or `git lfs checkout` fetches their content")
	}
	return nil
}

// isPointer reports whether a small file of ours is a pointer of Git LFS.
func isPointer(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 64)
	n, _ := io.ReadFull(f, head)
	return strings.HasPrefix(string(head[:n]), pointerStart)
}

// askUmask finds the modes that new files and folders get.
func (p *ApplyPlan) askUmask() error {
	probe := filepath.Join(p.scratch.dir, "probe")
	f, err := os.OpenFile(probe, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o777) //nolint:gosec // in a private folder
	if err != nil {
		return err
	}
	defer os.Remove(probe)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	m := uint32(st.Mode().Perm())
	p.perms.dir, p.perms.exec, p.perms.file = m, m, m&0o666
	return nil
}
