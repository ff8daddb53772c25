package source

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/swap"
	"github.com/caisson-dev/caisson/internal/task"
)

// Some file systems take two names for one: without case, or without the form
// of accents. Of two files with such names the second would replace the first
// without a word, so both are refused where that is so.

// folded makes equal what some file system could take for one path.
func folded(p string) string { return strings.Join(foldPath(p), "/") }

// foldClash finds two paths, files or folders, that some file system takes for one.
func foldClash(entries []listed) (a, b string) {
	seen := map[string]string{}
	for _, e := range entries {
		parts := foldPath(e.path)
		at := 0
		for i := 0; i <= len(e.path); i++ {
			if i < len(e.path) && e.path[i] != '/' {
				continue
			}
			at++
			p, f := e.path[:i], strings.Join(parts[:at], "/")
			if other, ok := seen[f]; ok && other != p {
				return other, p
			}
			seen[f] = p
		}
	}
	return "", ""
}

// foldsNames reports whether the file system of dir, a folder of ours, takes
// two names for one. Nothing stays there.
func foldsNames(dir string) (folds bool, err error) {
	for _, n := range [][2]string{{"Case", "cASE"}, {"caf\u00e9", "cafe\u0301"}} {
		probe := filepath.Join(dir, n[0])
		if err := os.Mkdir(probe, 0o700); err != nil {
			return false, err
		}
		folds = folds || exists(filepath.Join(dir, n[1]))
		if err := os.Remove(probe); err != nil {
			return false, err
		}
	}
	return folds, nil
}

// foldsHere refuses a start whose files cannot all stand in the state
// directory. The shadow is there by now, under one name.
func (p *preparation) foldsHere(ctx context.Context, treeish string) error {
	if shadow := p.ws.shadow(); !exists(filepath.Join(filepath.Dir(shadow), strings.ToUpper(filepath.Base(shadow)))) {
		return nil
	}
	out, err := p.r.git.Run(ctx, git.Cmd{GitDir: p.ws.shadow(), Args: []string{"ls-tree", "-r", "-z", "--full-tree", treeish}, Max: 1 << 30})
	if err != nil {
		return p.fail("the files of the base cannot be listed", err)
	}
	entries, err := parseTree(out)
	if err != nil {
		return err
	}
	if a, b := foldClash(entries); a != "" {
		return task.Errorf(task.CodeUnsupported, "source.prepare", "%s and %s are one name on the file system of caisson's state directory", quote(a), quote(b)).
			WithHint("set CAISSON_STATE_DIR to a folder on a file system that tells case and accents apart")
	}
	return nil
}

// twins makes conflicts of touched paths that the checkout's file system takes
// for another one that is touched or tracked: putting one there, or taking one
// away, would change the other.
func (s *survey) twins() error {
	touched, known := map[string]string{}, map[string]bool{}
	var pairs [][2]string
	look := func(p string, keep bool) {
		for _, q := range append(parents(p), p) {
			if known[q] {
				continue
			}
			known[q] = true
			f := folded(q)
			if other, ok := touched[f]; ok && other != q {
				pairs = append(pairs, [2]string{other, q})
			} else if keep {
				touched[f] = q
			}
		}
	}
	for i := range s.p.changes {
		look(string(s.p.changes[i].Path), true)
	}
	all, err := s.oneName(".git", ".GIT")
	if err != nil {
		return err
	}
	if all && s.index != nil {
		for p := range s.index.entries {
			look(p, false)
		}
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return strings.Compare(a[0]+"\x00"+a[1], b[0]+"\x00"+b[1]) })
	for _, pair := range slices.Compact(pairs) {
		one := all
		if !one {
			if one, err = s.oneName(pair[0], pair[1]); err != nil {
				return err
			}
		}
		if one {
			s.clash(pair[0], "this file system takes it and "+quote(pair[1])+" for one name")
		}
	}
	return nil
}

// oneName reports whether two paths lead to one entry of one name.
func (s *survey) oneName(a, b string) (bool, error) {
	x, err := s.lookAt(a)
	if err != nil || x == nil {
		return false, err
	}
	y, err := s.lookAt(b)
	if err != nil || y == nil || x.Dev != y.Dev || x.Ino != y.Ino {
		return false, err
	}
	// Two links to one file are two names.
	names, err := swap.Names(s.root, path.Dir(a))
	if err != nil {
		return false, s.unreadable(a, err)
	}
	return path.Dir(a) != path.Dir(b) || !slices.Contains(names, path.Base(a)) || !slices.Contains(names, path.Base(b)), nil
}

// lookAt looks at a path; what cannot be looked at is as good as absent here, the
// decision about that path says so.
func (s *survey) lookAt(p string) (*swap.Seen, error) {
	seen, err := swap.Look(s.root, p, false)
	if errors.Is(err, swap.ErrUnsafe) || errors.Is(err, os.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, s.unreadable(p, err)
	}
	return seen, nil
}
