package source

import (
	"context"
	"crypto/sha1" //nolint:gosec // git's own name of an object, not a security measure
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/swap"
	"github.com/caisson-dev/caisson/internal/task"
)

// compare settles the files whose times do not tell: by their bytes, and where
// those differ by what git would record of them.
func (s *survey) compare(ctx context.Context) error {
	var rest []*unsure
	for _, u := range s.unsure {
		oid, err := s.name(u)
		if err != nil {
			return err
		}
		if oid != u.oid {
			rest = append(rest, u)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	same := map[string]bool{}
	if s.index != nil {
		var err error
		if same, err = s.recorded(ctx, rest); err != nil {
			return err
		}
	}
	for _, u := range rest {
		switch {
		case same[u.path]:
		case s.index == nil:
			s.clash(u.path, "it was changed in the folder since the task began")
		default:
			s.clash(u.path, uncommitted)
		}
	}
	return nil
}

// name hashes a file or link as git does without conversions.
func (s *survey) name(u *unsure) (string, error) {
	var h hash.Hash = sha1.New() //nolint:gosec // see above
	if s.p.format == "sha256" {
		h = sha256.New()
	}
	fmt.Fprintf(h, "blob %d\x00", u.seen.Size)
	if u.seen.Kind == swap.Link {
		to, err := swap.Readlink(s.root, u.path)
		if err != nil {
			return "", s.unreadable(u.path, err)
		}
		io.WriteString(h, to) //nolint:errcheck // a hash
		return hex.EncodeToString(h.Sum(nil)), nil
	}
	f, err := swap.Open(s.root, u.path)
	if err != nil {
		return "", s.unreadable(u.path, err)
	}
	if f == nil {
		return "", nil
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return "", s.unreadable(u.path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// recorded copies files into a folder of ours and asks git what it would record
// of them, with the attributes that the index has. No filter runs.
func (s *survey) recorded(ctx context.Context, us []*unsure) (map[string]bool, error) {
	fail := func(err error) (map[string]bool, error) {
		return nil, task.Errorf(task.CodeSource, "source.apply", "the checkout's files cannot be compared: %v", err)
	}
	work := filepath.Join(s.p.scratch.dir, "compare")
	if err := os.RemoveAll(work); err != nil {
		return fail(err)
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return fail(err)
	}
	defer os.RemoveAll(work)
	st := &stage{path: work, ignores: map[string]bool{}, put0: map[string]bool{}, left: maxStaged}
	var err error
	if st.root, err = os.OpenRoot(work); err != nil {
		return fail(err)
	}
	defer st.root.Close()
	if err := s.attributes(ctx, work); err != nil {
		return fail(err)
	}
	var paths []string
	for _, u := range us {
		if u.seen.Kind != swap.File {
			continue // a link has no conversion: it differs
		}
		f, err := swap.Open(s.root, u.path)
		if err != nil {
			return nil, s.unreadable(u.path, err)
		}
		if f == nil {
			continue
		}
		mode := os.FileMode(0o644)
		if u.seen.Mode&0o100 != 0 {
			mode = 0o755
		}
		err = st.put(u.path, f, mode)
		f.Close()
		if err != nil {
			return nil, err
		}
		paths = append(paths, u.path)
	}
	if len(paths) == 0 {
		return nil, nil
	}
	// A repository without the user's objects: git would set the time of an
	// object there that it was about to write and found.
	dir, err := s.p.scratch.makeGit("compare.git", gitSpec{format: s.p.format, settings: s.p.t.repo.settings, attributes: s.p.t.attrs})
	if err != nil {
		return nil, err
	}
	index := filepath.Join(dir, "compare.index")
	defer os.Remove(index)
	if err := copyOwnIndex(s.index.file, index); err != nil {
		return fail(err)
	}
	run := func(stdin string, args ...string) ([]byte, error) {
		return s.p.g.Run(ctx, git.Cmd{
			GitDir: dir, WorkTree: work, Stdin: strings.NewReader(stdin), Args: args, Max: 1 << 30,
			Env:    []string{"GIT_INDEX_FILE=" + index},
			Config: []string{"core.bare=false", "index.version=2", "core.safecrlf=false", "core.bigFileThreshold=64m"},
		})
	}
	in := joinZ(paths)
	for _, args := range [][]string{{"--no-assume-unchanged"}, {"--no-skip-worktree"}, {"--add"}} {
		_, err := run(in, append(append([]string{"update-index"}, args...), "-z", "--stdin")...)
		if git.Status(err) > 0 && args[0] == "--add" {
			return nil, nil // a conversion fails: they count as changed
		}
		if err != nil {
			return fail(err)
		}
	}
	out, err := run("", "ls-files", "--stage", "-z")
	if err != nil {
		return fail(err)
	}
	oids, err := parseStages(out)
	if err != nil {
		return fail(err)
	}
	same := map[string]bool{}
	for _, u := range us {
		same[u.path] = u.seen.Kind == swap.File && oids[u.path] == u.oid
	}
	return same, nil
}

// attributes writes every .gitattributes of the user's index into a folder.
func (s *survey) attributes(ctx context.Context, work string) error {
	var paths []string
	for p, e := range s.index.entries {
		if filepath.Base(p) == ".gitattributes" && e.stage == 0 && e.mode&0o170000 == 0o100000 {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	_, err := s.p.g.Run(ctx, git.Cmd{
		GitDir: s.p.dir, WorkTree: work, Stdin: strings.NewReader(joinZ(paths)),
		Env:    []string{"GIT_INDEX_FILE=" + s.index.file},
		Config: []string{"core.bare=false"},
		Args:   []string{"checkout-index", "-z", "--stdin", "-f"},
	})
	return err
}

// parseStages reads `git ls-files --stage -z`.
func parseStages(out []byte) (map[string]string, error) {
	recs, ok := git.SplitZ(out)
	if !ok {
		return nil, errors.New("git's list of files was cut")
	}
	oids := make(map[string]string, len(recs))
	for _, r := range recs {
		head, p, ok := strings.Cut(r, "\t")
		f := strings.Split(head, " ")
		if !ok || len(f) != 3 || p == "" || !git.IsOID(f[1]) || len(f[2]) != 1 || !strings.Contains("0123", f[2]) {
			return nil, errors.New("git's list of files cannot be read")
		}
		oids[p] = f[1]
	}
	return oids, nil
}
