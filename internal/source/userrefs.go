package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
)

// errAskGit says that refs are stored in a way, or hold something, that is left
// to git to read.
var errAskGit = errors.New("git must be asked")

// userRefs lists what git for-each-ref lists below prefix in the user's
// repository, without starting git: "refs/", or deeper with a final slash. Only
// what is plain is read: loose refs, packed-refs, symbolic refs one step deep.
// Anything else is errAskGit, never a guess. dir is the common git directory.
func userRefs(ctx context.Context, dir, prefix string) ([]Ref, error) {
	root, err := tree.OpenUser(dir)
	if err != nil {
		return nil, errAskGit
	}
	defer root.Close()
	if _, err := root.Stat("reftable"); !errors.Is(err, fs.ErrNotExist) {
		return nil, errAskGit
	}
	// Loose ones first, as git does: a ref that is packed meanwhile is in the
	// packed file before the loose one goes.
	refs, syms, err := looseRefs(ctx, root, prefix)
	if err != nil {
		return nil, err
	}
	packed := map[string]string{}
	b, err := root.ReadFile("packed-refs", maxPacked)
	if err == nil {
		packed, err = parsePackedRefs(b)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, errAskGit
	}
	at := func(name string) (oid string, ok bool) {
		if oid, ok = refs[name]; !ok {
			oid, ok = packed[name]
		}
		return oid, ok
	}
	var out []Ref
	for name, target := range syms {
		oid, ok := at(target)
		if _, chain := syms[target]; chain || !ok {
			return nil, errAskGit // git leaves out what leads nowhere
		}
		out = append(out, Ref{Name: name, Object: oid, Symref: target})
	}
	for name, oid := range refs {
		out = append(out, Ref{Name: name, Object: oid})
	}
	for name, oid := range packed {
		_, loose := refs[name]
		_, sym := syms[name]
		if !loose && !sym && strings.HasPrefix(name, prefix) {
			out = append(out, Ref{Name: name, Object: oid})
		}
	}
	for _, r := range out {
		if strings.Trim(r.Object, "0") == "" {
			return nil, errAskGit // git calls it broken
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// looseRefs reads the files below prefix.
func looseRefs(ctx context.Context, root *tree.Root, prefix string) (refs, syms map[string]string, err error) {
	refs, syms = map[string]string{}, map[string]string{}
	top, err := root.OpenDir(strings.TrimSuffix(prefix, "/"))
	if errors.Is(err, fs.ErrNotExist) && prefix != "refs/" {
		return refs, syms, nil
	}
	if err != nil {
		return nil, nil, errAskGit
	}
	defer top.Close()
	err = top.Walk(ctx, func(_ string, entries []*tree.Entry) error {
		for _, e := range entries {
			name := prefix + e.Path
			switch {
			case e.Info.Kind == tree.Dir:
				e.Descend = true
				continue
			case e.Info.Kind == tree.File && strings.HasSuffix(name, ".lock"):
				continue
			case e.Info.Kind != tree.File || !git.ValidRef(name) || len(refs) > maxRefs:
				return errAskGit
			}
			b, err := readEntry(e)
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted, or packed just now
			}
			sym, oid, ok := parseRefFile(b)
			switch {
			case err != nil || !ok || sym != "" && !git.ValidRef(sym) || sym != "" && !strings.HasPrefix(sym, prefix):
				return errAskGit
			case sym != "":
				syms[name] = sym
			default:
				refs[name] = oid
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		err = errAskGit
	}
	return refs, syms, err
}

func readEntry(e *tree.Entry) ([]byte, error) {
	f, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRefFile))
}

// listUserRefs is listRefs of everything below prefix, without git where that
// is exact. linked says that gitDir is a linked worktree's, which has refs of
// its own.
func listUserRefs(ctx context.Context, g *git.Git, gitDir, prefix string, linked bool) ([]Ref, error) {
	if !linked {
		if refs, err := userRefs(ctx, gitDir, prefix); !errors.Is(err, errAskGit) {
			return refs, err
		}
	}
	if prefix == "refs/" {
		return listRefs(ctx, g, gitDir)
	}
	return listRefs(ctx, g, gitDir, prefix)
}

// allLive reports whether every tip is, now that it is pinned, what a branch, a
// tag or a remote branch names: then there is nothing to walk.
func (p *preparation) allLive(ctx context.Context) bool {
	refs, err := userRefs(ctx, p.r.Ref.CommonDir, "refs/")
	if err != nil {
		return false // git is asked
	}
	live := make(map[string]bool, len(refs))
	for _, r := range refs {
		for _, kind := range []string{"refs/heads/", "refs/tags/", "refs/remotes/"} {
			live[r.Object] = live[r.Object] || strings.HasPrefix(r.Name, kind)
		}
	}
	for _, t := range p.r.Tips {
		if !live[t] {
			return false
		}
	}
	return true
}
