package source

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// maxExcluded bounds how many shared objects a bundle command names as known.
// A bundle that leaves out fewer is larger, never wrong.
const maxExcluded = 400

// NeedsBundle reports whether the task has commits that its files do not show:
// refs, HEAD or stashes that differ from what Prepare made. It is cheap, and
// reads the task's git directory without git.
func NeedsBundle(ctx context.Context, ws Workspace) (bool, error) {
	s, err := ws.loadState()
	if err != nil {
		return false, err
	}
	if s.Strategy == task.StrategyWorktree {
		return false, nil // see HostCommits
	}
	c, err := ws.changedRefs(ctx, s)
	if err != nil {
		return false, err
	}
	return c.any(), nil
}

// BundleCommand returns the program to run inside a throwaway boundary whose
// working directory is the task's source, read-only. Its standard output goes
// to Import, whatever its exit status is: git ends with 128 and prints nothing
// when there is no new object. env is added to the boundary's environment.
func BundleCommand(ctx context.Context, ws Workspace) (argv, env []string, err error) {
	s, err := ws.loadState()
	if err != nil {
		return nil, nil, err
	}
	c, err := ws.changedRefs(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if err := ws.mayRead(ctx); err != nil {
		return nil, nil, err
	}
	argv = append(neutralInside(), "bundle", "create", "--quiet", "-")
	if c.unknown != "" {
		argv = append(argv, "--all", "HEAD")
	}
	for _, r := range c.changed {
		argv = append(argv, r.Name)
	}
	for _, r := range c.extra {
		argv = append(argv, r.Object)
	}
	if len(s.Tips) > 0 {
		argv = append(argv, "--not")
		argv = append(argv, s.Tips[:min(len(s.Tips), maxExcluded)]...)
	}
	return argv, insideEnv(), nil
}

// bundleOpens are the files, beside refs, that git opens in a git directory
// whatever it is to bundle.
var bundleOpens = []string{"HEAD", "config", "commondir", "packed-refs", "shallow", "info/grafts", "objects/info/alternates",
	"objects/info/commit-graph", "objects/info/commit-graphs/commit-graph-chain", "objects/pack/multi-pack-index"}

// mayRead refuses a task's git directory in which git would open what is no
// file: at a FIFO it would wait until its time is over.
func (ws Workspace) mayRead(ctx context.Context) error {
	root, err := tree.OpenRoot(ws.source())
	if err != nil {
		return nil // whoever reads it next says so
	}
	defer root.Close()
	dir, err := root.OpenDir(".git")
	if err != nil {
		return nil
	}
	defer dir.Close()
	no := func(name string) error {
		return badResult("commits cannot be taken out: %s in the task's git directory is a FIFO, a socket or a device, at which git would wait", quote(name))
	}
	for _, n := range bundleOpens {
		if in, err := dir.Stat(n); err == nil && in.Kind == tree.Special {
			return no(n)
		}
	}
	refs, err := dir.OpenDir("refs")
	if err != nil {
		return nil
	}
	defer refs.Close()
	var found error
	_ = refs.Walk(ctx, func(_ string, entries []*tree.Entry) error {
		for _, e := range entries {
			e.Descend = e.Info.Kind == tree.Dir
			if e.Info.Kind == tree.Special && found == nil {
				found = no("refs/" + e.Path)
			}
		}
		return nil
	})
	return found
}

// neutralInside begins a git command in a throwaway boundary.
func neutralInside() []string {
	return []string{
		"git", "--no-pager", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.alternateRefsCommand=:",
		"-c", "protocol.allow=never", "-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "uploadpack.packObjectsHook=",
		"-c", "core.warnAmbiguousRefs=false",
	}
}

// insideEnv is added to the environment of such a command.
func insideEnv() []string {
	return []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "LC_ALL=C",
	}
}

// bundleHeader is the text before the pack in a bundle.
type bundleHeader struct {
	format string // object format
	need   []string
	refs   []Ref
}

// Limits on a bundle's header.
const (
	maxBundleLine = 4096
	maxBundleRefs = 100_000
)

// errNothing is a header that ends before the first ref: git writes one before
// it finds that there is nothing to bundle.
var errNothing = errors.New("no ref in it")

// parseBundle reads a bundle's header and leaves r at the pack. It refuses
// everything that `git bundle create` does not write.
func parseBundle(r *bufio.Reader) (*bundleHeader, error) {
	h := &bundleHeader{format: "sha1"}
	line := func() (string, error) {
		b, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(b) == 0 && len(h.refs) == 0 {
			return "", errNothing
		}
		if err != nil {
			return "", errors.New("header was cut, or a line is too long")
		}
		return string(b[:len(b)-1]), nil
	}
	first, err := line()
	if err != nil {
		return nil, err
	}
	v3 := false
	switch first {
	case "# v2 git bundle":
	case "# v3 git bundle":
		v3 = true
	default:
		return nil, errors.New("not a bundle of version 2 or 3")
	}
	seen := map[string]bool{}
	stage := 0 // capabilities, prerequisites, refs
	for {
		l, err := line()
		switch {
		case err != nil:
			return nil, err
		case l == "":
			return h, nil
		case l[0] == '@':
			f, ok := strings.CutPrefix(l, "@object-format=")
			if !v3 || stage > 0 || !ok || f != "sha1" && f != "sha256" {
				return nil, errors.New("unknown capability")
			}
			h.format = f
		case l[0] == '-':
			oid, _, _ := strings.Cut(l[1:], " ")
			if stage > 1 || !git.IsOID(oid) {
				return nil, errors.New("malformed prerequisite")
			}
			stage = 1
			h.need = append(h.need, oid)
		default:
			oid, name, ok := strings.Cut(l, " ")
			if !ok || !git.IsOID(oid) {
				return nil, errors.New("malformed ref line")
			}
			if name != "HEAD" && !git.ValidRef(name) {
				return nil, errors.New("invalid ref name " + quote(name))
			}
			if seen[name] {
				return nil, errors.New("ref named twice: " + quote(name))
			}
			seen[name] = true
			stage = 2
			h.refs = append(h.refs, Ref{Name: name, Object: oid})
		}
		if len(h.refs)+len(h.need) > maxBundleRefs {
			return nil, errors.New("too many refs")
		}
	}
}

// badResult refuses what came out of a boundary.
func badResult(format string, args ...any) *task.Error {
	return task.Errorf(task.CodeBadResult, "source.import", format, args...).
		WithHint("nothing was taken over; the task's files are still there, look at them before removing it")
}

// bounded copies at most max bytes from r to w; more is an error.
func bounded(w io.Writer, r io.Reader, max int64) (int64, error) {
	n, err := io.Copy(w, io.LimitReader(r, max+1))
	if err == nil && n > max {
		return n, task.Errorf(task.CodeLimit, "source.import", "the bundle is larger than %d MiB", max>>20).
			WithHint("the task's files are still there; raise the limit or remove large files from its commits")
	}
	return n, err
}
