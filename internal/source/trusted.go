package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// maxTrusted bounds how many files of a git directory are compared.
const maxTrusted = 50_000

// trustedNames are the files of a git directory that make git on the host run
// programs, look elsewhere or take other objects. They count at any depth: a
// repository's modules and worktrees have their own.
var trustedNames = map[string]bool{"config": true, "config.worktree": true, "commondir": true, "gitdir": true,
	"info/attributes": true, "info/grafts": true, "info/alternates": true, "info/sparse-checkout": true}

// untold are folders of a git directory that hold data only, and much of it.
var untold = map[string]bool{"refs": true, "logs": true, "lfs": true, "annex": true, "rr-cache": true}

// trusted lists what of top/.git host git trusts, with a digest of each.
func trusted(ctx context.Context, top string) (map[string]string, error) {
	out := map[string]string{}
	root, err := tree.OpenRoot(top)
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.trusted", "the checkout cannot be opened: %v", err)
	}
	defer root.Close()
	i, err := root.Stat(".git")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return out, nil
	case err != nil:
		return nil, task.Errorf(task.CodeSource, "source.trusted", ".git cannot be looked at: %v", err)
	case i.Kind != tree.Dir:
		out[".git"] = fmt.Sprintf("kind %d", i.Kind)
		return out, nil
	}
	dir, err := root.OpenDir(".git")
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.trusted", ".git cannot be opened: %v", err)
	}
	defer dir.Close()
	err = dir.Walk(ctx, func(at string, entries []*tree.Entry) error {
		for _, e := range entries {
			if e.Info.Kind == tree.Dir {
				e.Descend = !untold[e.Name] && (path.Base(at) != "objects" || e.Name == "info")
				if e.Info.OtherDevice {
					e.Descend = false
				}
				continue
			}
			hook := path.Base(at) == "hooks"
			if !hook && !trustedNames[e.Name] && !trustedNames[path.Base(at)+"/"+e.Name] {
				continue
			}
			if out[".git/"+e.Path], err = fingerprint(e); err != nil {
				return err
			}
			if len(out) > maxTrusted {
				return tree.ErrLimit
			}
		}
		return nil
	})
	if err != nil {
		return nil, scanError(err)
	}
	return out, nil
}

// fingerprint is what makes two states of an entry differ.
func fingerprint(e *tree.Entry) (string, error) {
	switch e.Info.Kind {
	case tree.Link:
		to, err := e.Readlink()
		return "link " + to, err
	case tree.File:
		f, err := e.Open()
		if err != nil {
			return "", err
		}
		defer f.Close()
		h := sha256.New()
		n, err := io.Copy(h, io.LimitReader(f, 16<<20))
		return fmt.Sprintf("%o %d %s", e.Info.Mode, max(n, e.Info.Size), hex.EncodeToString(h.Sum(nil))), err
	}
	return "special", nil
}

// TrustedChanges lists what of the checkout's git directory was changed since
// the task began and makes git on the host run programs or look elsewhere. It
// is for the strategy checkout; others have nothing of the kind.
func TrustedChanges(ctx context.Context, ws Workspace) ([]string, error) {
	s, err := ws.loadState()
	if err != nil || s.Strategy != task.StrategyCheckout {
		return nil, err
	}
	now, err := trusted(ctx, ws.source())
	if err != nil {
		return nil, err
	}
	var out []string
	for p, f := range now {
		if was, ok := s.Trusted[p]; !ok || was != f {
			out = append(out, quote(p))
		}
	}
	for p := range s.Trusted {
		if _, ok := now[p]; !ok {
			out = append(out, quote(p)+" (removed)")
		}
	}
	sort.Strings(out)
	return out, nil
}

// TrustedNote says them in a line, for a person; empty when there is none.
func TrustedNote(changed []string) string {
	if len(changed) == 0 {
		return ""
	}
	shown := changed[:min(len(changed), 5)]
	more := ""
	if n := len(changed) - len(shown); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "your own git acts on what changed while the task ran: " + strings.Join(shown, ", ") + more + "; look at it before you use git there"
}
