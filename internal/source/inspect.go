package source

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Options says which repository and which part of it a task gets.
type Options struct {
	Dir     string       // a folder in the checkout; empty is the working directory
	Base    string       // a revision, as typed; empty is HEAD
	At      string       // the path inside; empty is the checkout's own
	History task.History // empty is full
	// Strategy is how the task gets its source; empty is clone.
	Strategy task.Strategy
	// Dirty says which uncommitted state of the checkout goes with it.
	Dirty task.Dirty
	// Env is the user's environment: HOME, XDG_CONFIG_HOME, GIT_CONFIG_*,
	// GIT_AUTHOR_NAME, GIT_AUTHOR_EMAIL and EMAIL count, nothing else.
	Env []string
}

// Ref is one ref that a task sees.
type Ref struct {
	Name   string
	Object string
	Symref string // target of a symbolic ref, such as refs/remotes/origin/HEAD
}

// Repo is a repository as Inspect found it. Nothing was changed for it.
type Repo struct {
	Ref      task.SourceRef
	Identity task.GitIdentity
	// Objects are the object stores to mount read-only, as 0, 1, …. Empty when
	// the task's clone is self-contained.
	Objects []string
	// Refs are what the task sees; Tips their distinct objects and the base.
	Refs []Ref
	Tips []string
	// Pinnable reports whether refs can be written into the repository.
	Pinnable bool

	git      *git.Git
	gitDir   string
	format   string // "sha1" or "sha256"
	shallow  []byte
	excludes []byte
	attrs    []byte
	settings [][2]string // carried into the task's configuration
	objects  string      // the user's object store
	fileMode bool        // the user's git looks at the executable bit
	sparse   bool        // the checkout is sparse
	archive  string      // of the copy strategy: the form of the archive; empty: a folder

	sparseIndex bool // and its index does not list what that leaves out
	partial     bool // objects may be missing: a partial clone fetches them when needed
	bare        bool // it has no checkout
	remotes     []string
	reopened    bool // of a task that is on record: its repository was not looked at
	told        atomic.Pointer[Told]
}

// knownExtensions are the repository format extensions that do not change what
// this package relies on.
var knownExtensions = map[string]bool{
	"noop": true, "preciousobjects": true, "objectformat": true, "worktreeconfig": true, "relativeworktrees": true,
}

// inspectRepo finds the repository around o.Dir, for the strategies that need
// one.
func inspectRepo(ctx context.Context, o Options) (*Repo, error) {
	dir := o.Dir
	if dir == "" {
		dir = "."
	}
	l, err := discover(dir)
	if err != nil {
		return nil, err
	}
	r := &Repo{gitDir: l.gitDir, format: "sha1"}
	r.Ref = task.SourceRef{Repo: l.top, CommonDir: l.common, BaseRev: o.Base, Strategy: o.Strategy, History: o.History, Target: o.At}
	if r.Ref.BaseRev == "" {
		r.Ref.BaseRev = "HEAD"
	}
	switch o.History {
	case "":
		r.Ref.History = task.HistoryFull
	case task.HistoryFull, task.HistoryBase, task.HistoryNone:
	default:
		return nil, task.Errorf(task.CodeUsage, "source.inspect", "unknown history %q", o.History).WithHint("use full, base or none")
	}
	if r.Ref.Target == "" {
		r.Ref.Target = l.top
	}
	if err := cleanTarget(r.Ref.Target); err != nil {
		return nil, err
	}
	if r.git, err = findGit(ctx); err != nil {
		return nil, err
	}
	if r.objects, err = filepath.EvalSymlinks(filepath.Join(l.common, "objects")); err != nil {
		return nil, broken("run `git fsck`", "the object store cannot be used: %v", err)
	}

	// Three independent questions at once.
	var (
		wg            sync.WaitGroup
		conf          *config
		refs          []Ref
		base          string
		e1, e2, e3    error
		askedRevision = r.Ref.BaseRev
	)
	wg.Add(3)
	// The others read the configuration as well, and would wait as long as it
	// does not come: an include may name a FIFO.
	qctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer wg.Done()
		if conf, e1 = readConfig(ctx, r.git, l.gitDir, o.Env); e1 != nil {
			stop()
		}
	}()
	go func() { defer wg.Done(); refs, e2 = listUserRefs(qctx, r.git, l.gitDir, "refs/", l.linked) }()
	go func() { defer wg.Done(); base, e3 = r.resolve(qctx, askedRevision) }()
	wg.Wait()
	if e1 != nil || e2 != nil {
		return nil, r.explain(ctx, e1, e2)
	}
	if err := r.judge(l, conf, o.Env); err != nil {
		return nil, err
	}
	if e3 != nil {
		if err := r.unknownFormat(ctx); err != nil {
			return nil, err
		}
		if askedRevision == "HEAD" && task.CodeOf(e3) == task.CodeNotFound {
			return nil, broken("check it with `git status` and `git fsck`", "git cannot use the repository %s: %v", quote(r.Ref.Repo), e3)
		}
		return nil, e3
	}
	if err := r.setBase(base, o.Base, refs); err != nil {
		return nil, err
	}
	if err := r.complete(ctx); err != nil {
		return nil, err
	}
	r.chooseRefs(refs)
	mode, set := conf.last["core.filemode"]
	r.fileMode, r.sparse = !set || truth(mode), truth(conf.last["core.sparsecheckout"])
	r.sparseIndex = truth(conf.last["index.sparse"])
	if r.bare {
		if o.Dirty != task.DirtyNone {
			return nil, task.Errorf(task.CodeUsage, "source.carry", "%s is a bare repository, which has no files that are not committed", quote(r.Ref.Repo)).WithHint("leave --dirty out")
		}
		r.note("bare repository: results leave as branch, refs or export")
	}
	if err := r.mayCarry(ctx, o); err != nil {
		return nil, err
	}
	r.Identity = conf.identity(o.Env)
	r.excludes = conf.excludes(l.common, o.Env)
	r.attrs, _ = readWithin(l.common, "info/attributes", 1<<20)
	r.settings = conf.conversions()
	r.remotes = conf.remotes()
	return r, nil
}

// explain turns a git that refuses the repository into a reason.
func (r *Repo) explain(ctx context.Context, errs ...error) error {
	var first error
	for _, e := range errs {
		if e != nil && first == nil {
			first = e
		}
	}
	if git.Status(first) < 0 {
		return first
	}
	if err := r.unknownFormat(ctx); err != nil {
		return err
	}
	return broken("check it with `git status` and `git fsck`", "git cannot use the repository %s: %v", quote(r.Ref.Repo), first)
}

// unknownFormat refuses a repository whose configuration git itself does not
// take, because of its format.
func (r *Repo) unknownFormat(ctx context.Context) error {
	out, err := r.git.Run(ctx, git.Cmd{Args: []string{"config", "-z", "--list", "-f", filepath.Join(r.Ref.CommonDir, "config")}, Max: 8 << 20})
	if err != nil {
		return nil // no word about its format
	}
	recs, _ := git.SplitZ(out)
	c := &config{last: map[string]string{}}
	for _, kv := range recs {
		k, v, _ := strings.Cut(kv, "\n")
		c.last[k] = v
	}
	if err := c.extensions(); err != nil {
		return err
	}
	if truth(c.last["extensions.relativeworktrees"]) && !r.git.AtLeast(2, 48, 0) {
		return unsupported("install git 2.48 or newer, or set worktree.useRelativePaths=false and run `git worktree repair` with the git that made it",
			"the repository uses the format extension relativeworktrees, which git %s does not know", r.git.Version())
	}
	return nil
}

// extensions refuses repository formats that this version does not know.
func (c *config) extensions() error {
	for k, v := range c.last {
		ext, ok := strings.CutPrefix(k, "extensions.")
		switch {
		case !ok || knownExtensions[ext]:
		case ext == "partialclone": // judge looks at those
		case ext == "refstorage" && strings.EqualFold(v, "files"):
		case ext == "refstorage":
			return unsupported("convert it with `git refs migrate --ref-format=files`, or clone it with --ref-format=files",
				"the repository stores its refs as %s", quote(v))
		default:
			return unsupported("use a clone without that extension", "the repository uses the unknown format extension %s", quote(ext))
		}
	}
	return nil
}

// judge decides from ownership and configuration whether the repository can be
// used, and how.
func (r *Repo) judge(l layout, c *config, env []string) error {
	if err := c.extensions(); err != nil {
		return err
	}
	r.partial = c.partial()
	bare := truth(c.last["core.bare"]) && c.local["core.bare"] && !l.linked
	switch {
	case l.bare && (c.local["core.bare"] && !bare || c.local["core.worktree"]):
		return insideGit(l.top) // of a checkout elsewhere
	case bare && !l.bare && exists(filepath.Join(l.gitDir, "index")):
		return unsupported("unset core.bare there", "%s says that it is a bare repository, and has a checkout", quote(l.common))
	}
	r.bare = bare || l.bare
	r.Ref.Bare = r.bare
	if w := c.last["core.worktree"]; c.local["core.worktree"] && !l.linked {
		if !filepath.IsAbs(w) {
			w = filepath.Join(l.gitDir, w)
		}
		if real, err := filepath.EvalSymlinks(w); err != nil || real != l.top {
			return broken("start in "+quote(w), "the repository of %s names another folder as its work tree: %s", quote(l.top), quote(w))
		}
	}
	if f := c.last["extensions.objectformat"]; f != "" {
		if f != "sha1" && f != "sha256" {
			return unsupported("use a clone with sha1 or sha256", "the repository uses the object format %s", quote(f))
		}
		r.format = f
	}
	me := os.Geteuid()
	foreign := false
	for _, p := range []string{l.top, filepath.Join(l.top, ".git"), l.gitDir, l.common} {
		if l.bare && p != l.top {
			continue // one folder is all of it
		}
		if o := ownerOf(p); o != me {
			foreign = true
			sudo := me == 0 && o >= 0 && envValue(env, "SUDO_UID") == itoa(o)
			if !sudo && !c.trusts(l.top, envValue(env, "HOME")) {
				return broken("if you trust it: git config --global --add safe.directory "+task.ShellWord(l.top),
					"%s belongs to another user (uid %d)", quote(p), o)
			}
		}
	}
	r.Pinnable = !foreign && mayWrite(l.common) && mayWrite(filepath.Join(l.common, "refs"))
	alts := alternates(r.objects)
	for _, a := range append([]string{r.objects}, alts...) {
		if strings.ContainsAny(a, "\n\"") {
			return unsupported("rename that folder", "the object store's path %s contains a quote or line break", quote(a))
		}
	}
	// A store that is a link is not shown as a whole: it may lead anywhere.
	linked := r.objects != filepath.Join(l.common, "objects")
	// Root's boundary is another user, whom such a file system does not answer.
	hidden := me == 0 && sys.OwnerOnly(r.objects)
	r.Ref.Shared = r.Ref.History == task.HistoryFull && r.Pinnable && len(alts) == 0 && !linked && !hidden
	if r.Ref.Shared {
		r.Objects = []string{r.objects}
	} else if r.Ref.History == task.HistoryFull {
		why := "refs cannot be written into the repository"
		switch {
		case r.Pinnable && hidden:
			why = "the repository's file system answers nobody but root (FUSE without allow_other)"
		case r.Pinnable && linked:
			why = "the repository's object store is a link to another folder"
		case r.Pinnable:
			why = "the repository itself borrows objects from another one"
		}
		r.note("self-contained clone: " + why)
	}
	if b, err := readWithin(l.common, "shallow", 16<<20); err == nil && len(b) > 0 {
		r.shallow = b
		r.note("shallow repository: the task's history ends where yours does")
	}
	if truth(c.last["core.sparsecheckout"]) && r.Ref.Strategy != task.StrategyCheckout {
		r.note("sparse checkout is not carried over: the task has every file of the base")
	}
	return nil
}

func (r *Repo) note(s string) { r.Ref.Notes = append(r.Ref.Notes, s) }
