package source

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Import verifies the bundle that BundleCommand wrote and publishes what it
// holds below refs/caisson/<id>/ of the user's repository, in one transaction:
// heads/<name>, tags/<name>, HEAD (when detached), stash/<n>, other/<name>
// (reflog/<n> is ImportPack's).
// Where that repository cannot be written, a bundle file is kept instead.
//
// Which refs there are is read from the task's files by the host; the bundle
// only supplies objects. r yields at most max bytes. Nothing of a bundle that
// fails any check is kept.
func Import(ctx context.Context, ws Workspace, r io.Reader, max int64) ([]task.ResultRef, error) {
	im, want, err := ws.take(ctx, r, max)
	if err != nil || len(want) == 0 {
		return nil, err
	}
	if err := sys.Fault("source.imported"); err != nil {
		return nil, err
	}
	return ws.publish(ctx, im.g, im.s, resultNames(want))
}

// take verifies a bundle in a quarantine and moves its objects into the shadow
// repository. want are the task's refs that they belong to.
func (ws Workspace) take(ctx context.Context, r io.Reader, max int64) (im *importing, want []Ref, err error) {
	s, err := ws.loadState()
	if err != nil {
		return nil, nil, err
	}
	c, err := ws.changedRefs(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if im, err = ws.importing(ctx, s); err != nil {
		return nil, nil, err
	}
	defer im.end(ctx)
	header, err := im.receive(ctx, r, max)
	if err != nil {
		return nil, nil, err
	}
	want = append(append([]Ref(nil), c.changed...), c.extra...)
	if c.unknown != "" {
		if header == nil {
			return nil, nil, badResult("the task's refs cannot be read (%s) and no bundle came", c.unknown)
		}
		known := map[string]bool{}
		for _, t := range s.Tips {
			known[t] = true
		}
		for _, ref := range header.refs {
			if !known[ref.Object] {
				want = append(want, ref)
			}
		}
	}
	if len(want) == 0 {
		return im, nil, nil
	}
	if err := im.verify(ctx, want); err != nil {
		return nil, nil, err
	}
	return im, want, im.release()
}

// importMemory bounds the git that reads a bundle, in bytes: only blobs can be
// streamed, a tree or commit of any claimed size is held in memory.
const importMemory = 4 << 30

type importing struct {
	ws      Workspace
	s       *state
	g       *git.Git
	q       string // quarantine folder
	objects string // quarantine object store
}

// importing makes the quarantine; the caller ends it.
func (ws Workspace) importing(ctx context.Context, s *state) (*importing, error) {
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	q, err := os.MkdirTemp(ws.shadow(), "import-")
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "source.import", "the quarantine cannot be made: %v", err)
	}
	return &importing{ws: ws, s: s, g: g, q: q, objects: q + "/objects"}, nil
}

// end removes the quarantine.
func (im *importing) end(ctx context.Context) {
	_ = tree.Remove(context.WithoutCancel(ctx), im.q, filepath.Base(im.q)+".gone")
}

// cmd is a call on the shadow repository that also sees the quarantine.
func (im *importing) cmd(args ...string) git.Cmd {
	c := im.ws.shadowCmd(args...)
	c.Env = []string{"GIT_OBJECT_DIRECTORY=" + im.objects}
	// Large objects are streamed instead of held in memory.
	c.Config = []string{"core.bigFileThreshold=32m", "core.packedGitLimit=512m", "core.packedGitWindowSize=32m", "pack.threads=1"}
	c.MemoryMax = importMemory
	return c
}

// receive stores the bundle and unpacks it into the quarantine. A stream
// without a ref is the answer "nothing new": then header is nil.
func (im *importing) receive(ctx context.Context, r io.Reader, max int64) (*bundleHeader, error) {
	f, err := im.hold(r, max)
	if err != nil || f == nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, maxBundleLine)
	h, err := parseBundle(in)
	if errors.Is(err, errNothing) || err == nil && len(h.refs) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, badResult("the task's bundle is malformed: %v", err)
	}
	if h.format != im.s.Format {
		return nil, badResult("the task's bundle uses the object format %s, the repository %s", h.format, im.s.Format)
	}
	return h, im.index(ctx, in, max)
}

// hold stores what came in the quarantine and opens it at its beginning; the
// caller closes it. nil: nothing came.
func (im *importing) hold(r io.Reader, max int64) (*os.File, error) {
	for _, d := range []string{"/info", "/pack"} {
		if err := os.MkdirAll(im.objects+d, 0o700); err != nil {
			return nil, task.Errorf(task.CodeStateStore, "source.import", "the quarantine cannot be made: %v", err)
		}
	}
	if err := os.WriteFile(im.objects+"/info/alternates", []byte(im.ws.shadow()+"/objects\n"), 0o600); err != nil {
		return nil, task.Errorf(task.CodeStateStore, "source.import", "the quarantine cannot be made: %v", err)
	}
	f, err := os.OpenFile(im.q+"/bundle", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "source.import", "the bundle cannot be stored: %v", err)
	}
	n, err := bounded(f, r, max)
	if err != nil || n == 0 {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, task.Errorf(task.CodeStateStore, "source.import", "the bundle cannot be read: %v", err)
	}
	return f, nil
}

// index unpacks a pack into the quarantine. --strict: every object is checked
// as by fsck, warnings count as errors, and every link must lead to an object
// that is there.
func (im *importing) index(ctx context.Context, pack io.Reader, max int64) error {
	cmd := im.cmd("index-pack", "--stdin", "--fix-thin", "--strict", "--max-input-size="+strconv.FormatInt(max, 10))
	cmd.Stdin = pack
	out, err := im.g.Run(ctx, cmd)
	if err != nil {
		if git.Status(err) < 0 && task.CodeOf(err) != task.CodeInternal {
			return err
		}
		return badResult("the task's commits do not pass verification: %v", err)
	}
	// What follows the pack, git copies to its output.
	if hash, ok := strings.CutPrefix(strings.TrimSuffix(string(out), "\n"), "pack\t"); !ok || !git.IsOID(hash) {
		return badResult("the task's commits came with more than a pack")
	}
	return nil
}

// verify checks that every wanted object is there with all it leads to.
func (im *importing) verify(ctx context.Context, want []Ref) error {
	var in strings.Builder
	for _, r := range want {
		in.WriteString(r.Object + "\n")
	}
	cmd := im.cmd("cat-file", "--batch-check=%(objectname) %(objecttype)")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := im.g.Run(ctx, cmd)
	if err != nil {
		return badResult("the task's commits cannot be looked at: %v", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(want) {
		return badResult("the task's commits cannot be looked at")
	}
	for i, l := range lines {
		oid, kind, _ := strings.Cut(l, " ")
		if oid != want[i].Object || kind == "missing" {
			return badResult("the object of %s is missing from the task's bundle", quote(want[i].Name))
		}
		if kind != "commit" && !strings.HasPrefix(want[i].Name, "refs/tags/") {
			// Only a commit can be a branch. It is rescued all the same.
			want[i].Name = "other/" + strings.TrimPrefix(want[i].Name, "refs/")
		}
	}
	cmd = im.cmd("rev-list", "--objects", "--quiet", "--stdin", "--not", "--all")
	cmd.Stdin = strings.NewReader(in.String())
	if _, err := im.g.Run(ctx, cmd); err != nil {
		return badResult("the task's commits are not complete: %v", err)
	}
	return nil
}

// release moves verified packs into the shadow repository.
func (im *importing) release() error {
	from, to := im.objects+"/pack/", im.ws.shadow()+"/objects/pack/"
	files, err := os.ReadDir(from)
	for _, ext := range packParts {
		for _, f := range files {
			if err == nil && strings.HasSuffix(f.Name(), ext) {
				err = os.Rename(from+f.Name(), to+f.Name())
			}
		}
	}
	if err != nil {
		return task.Errorf(task.CodeStateStore, "source.import", "verified commits cannot be stored: %v", err)
	}
	return nil
}

// result is one ref to publish; name is relative to refs/caisson/<id>/.
type result struct {
	kind, name, object string
}

// resultNames maps the task's refs to names below refs/caisson/<id>/. Names that
// would collide there, also on a file system without case or accents or because one is
// another's folder, get a number.
func resultNames(refs []Ref) []result {
	taken := map[string]bool{}
	free := func(n string) bool {
		low := folded(n)
		if taken[low] || taken[low+"/"] {
			return false
		}
		for i := range low {
			if low[i] == '/' && taken[low[:i]] {
				return false
			}
		}
		return true
	}
	var out []result
	for _, r := range refs {
		res := result{object: r.Object}
		switch {
		case r.Name == "HEAD":
			res.kind, res.name = "head", "HEAD"
		case r.Name == "refs/stash":
			res.kind, res.name = "stash", "stash/0"
		case strings.HasPrefix(r.Name, "stash/"):
			res.kind, res.name = "stash", r.Name
		case strings.HasPrefix(r.Name, "reflog/"):
			res.kind, res.name = "reflog", r.Name
		case strings.HasPrefix(r.Name, "refs/heads/"):
			res.kind, res.name = "branch", "heads/"+strings.TrimPrefix(r.Name, "refs/heads/")
		case strings.HasPrefix(r.Name, "refs/tags/"):
			res.kind, res.name = "tag", "tags/"+strings.TrimPrefix(r.Name, "refs/tags/")
		default:
			res.kind, res.name = "other", "other/"+strings.TrimPrefix(strings.TrimPrefix(r.Name, "refs/"), "other/")
		}
		// Flattened, so that no folder of the name can be in the way.
		space, leaf, _ := strings.Cut(res.name, "/")
		leaf = strings.ReplaceAll(leaf, "/", "-")
		for n := 2; !free(res.name); n++ {
			res.name = space + "/" + leaf + "-" + strconv.Itoa(n)
		}
		low := folded(res.name)
		taken[low] = true
		for i := range low {
			if low[i] == '/' {
				taken[low[:i]+"/"] = true
			}
		}
		out = append(out, res)
	}
	return out
}
