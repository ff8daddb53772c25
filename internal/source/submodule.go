package source

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
)

// Submodules get their files, without git, from repositories that the user's
// own has of them already. Nothing is fetched, no configuration of theirs is
// read and no link out of the user's folders is followed; what is not there
// stays an empty folder.

// Bounds on submodules in submodules.
const (
	maxSubmodules     = 1000
	maxSubmoduleDepth = 10
)

// place is a git directory below a folder of the user's.
type place struct{ root, rel string }

// submodule is one entry of an index that names a commit.
type submodule struct {
	path   string // in the task's files
	oid    string
	places []place // where its repository may be
	depth  int
}

// fill writes the files of submodules into their folders and notes which stay
// empty. index is that of what was checked out.
func (p *preparation) fill(ctx context.Context, index string) error {
	if _, err := os.Lstat(p.ws.source() + "/.gitmodules"); err != nil {
		return nil // the index of a large repository is not read for nothing
	}
	todo, err := p.links(ctx, index, "", nil, 0)
	if err != nil || len(todo) == 0 {
		return err
	}
	p.told = true
	p.ws.say("filling submodules")
	own := filepath.Join(p.ws.shadow(), "submodule.index")
	defer os.Remove(own)
	var full, empty []string
	for i := 0; i < len(todo) && i < maxSubmodules; i++ {
		s := todo[i]
		at, ok, err := p.fillOne(ctx, s, own)
		if err != nil {
			return err
		}
		if !ok {
			empty = append(empty, s.path)
			continue
		}
		if s.depth == 0 {
			p.filled = append(p.filled, s.path)
		}
		full = append(full, s.path)
		if s.depth < maxSubmoduleDepth {
			more, err := p.links(ctx, own, s.path, &at, s.depth+1)
			if err != nil {
				return err
			}
			todo = append(todo, more...)
		}
	}
	if len(full) > 0 {
		p.notes = append(p.notes, withNames("submodule folders have their files, without git; changes in them are kept, and are in no result", len(full), quoted(full)))
		// Whatever is changed there from now on is newer than this.
		clock := filepath.Join(p.ws.shadow(), "submodule.clock")
		defer os.Remove(clock)
		err := os.WriteFile(clock, nil, 0o600)
		st, serr := os.Stat(clock)
		if err != nil || serr != nil {
			return p.fail("the time of the submodules cannot be read", err)
		}
		p.last.CtimeS, p.last.CtimeN = st.ModTime().Unix(), uint32(st.ModTime().Nanosecond()) //nolint:gosec // below 1e9
	}
	if len(empty) > 0 {
		p.notes = append(p.notes, withNames("submodule folders are empty, since their commits are not in your repository (`git submodule update --init --recursive` there fetches them)", len(empty), quoted(empty)))
	}
	return nil
}

// links lists the submodules of an index that was checked out into folder dir
// of the task's files; above is the repository it came from, nil for the user's own.
func (p *preparation) links(ctx context.Context, index, dir string, above *place, depth int) ([]submodule, error) {
	raw, err := os.ReadFile(index)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, p.fail("the index cannot be read", err)
	}
	entries, err := parseIndex(raw, p.r.format)
	if err != nil {
		return nil, err
	}
	var out []submodule
	var names map[string]string
	for _, e := range entries {
		if e.mode != gitlink {
			continue
		}
		if names == nil {
			names = p.submoduleNames(ctx, dir)
		}
		s := submodule{path: path.Join(dir, e.path), oid: e.oid, depth: depth}
		if name := names[e.path]; name != "" && filepath.IsLocal(name) {
			if above != nil {
				s.places = append(s.places, place{above.root, above.rel + "/modules/" + name})
			} else {
				s.places = append(s.places, place{p.r.gitDir, "modules/" + name}, place{p.r.Ref.CommonDir, "modules/" + name})
			}
		}
		s.places = append(s.places, place{p.r.Ref.Repo, s.path + "/.git"})
		out = append(out, s)
	}
	return out, nil
}

// submoduleNames reads the names of submodules by their paths. The file is the
// repository's content: what is not to be read in it counts as not there.
func (p *preparation) submoduleNames(ctx context.Context, dir string) map[string]string {
	names := map[string]string{}
	b, err := readBelow(p.ws.source(), path.Join(dir, ".gitmodules"), 1<<20)
	if err != nil {
		return names
	}
	out, err := p.r.git.Run(ctx, git.Cmd{Stdin: strings.NewReader(string(b)), Args: []string{"config", "--file", "-", "--null", "--list"}})
	if err != nil {
		return names
	}
	recs, _ := git.SplitZ(out)
	for _, kv := range recs {
		k, v, _ := strings.Cut(kv, "\n")
		if name, ok := strings.CutPrefix(k, "submodule."); ok {
			if name, ok = strings.CutSuffix(name, ".path"); ok {
				names[v] = name
			}
		}
	}
	return names
}

// fillOne checks one submodule out. False: there is no place that has it.
func (p *preparation) fillOne(ctx context.Context, s submodule, index string) (at place, ok bool, err error) {
	root, err := tree.OpenRoot(p.ws.source())
	if err != nil {
		return at, false, p.fail("the task's files cannot be opened", err)
	}
	defer root.Close()
	if i, err := root.Stat(s.path); err != nil || i.Kind != tree.Dir {
		return at, false, nil
	}
	for _, at = range s.places {
		objects, ok := at.objects()
		if !ok {
			continue
		}
		run := func(args ...string) ([]byte, error) {
			return p.r.git.Run(ctx, git.Cmd{
				GitDir: p.ws.shadow(), WorkTree: filepath.Join(p.ws.source(), s.path), Progress: p.ws.Progress, Args: args,
				Env:    []string{"GIT_INDEX_FILE=" + index, "GIT_ALTERNATE_OBJECT_DIRECTORIES=" + objects},
				Config: []string{"index.version=2", "core.bare=false"},
			})
		}
		missing, err := run("rev-list", "--objects", "--quiet", "--missing=print", s.oid+"^{tree}")
		if err != nil && git.Status(err) < 0 {
			return at, false, err
		}
		if err != nil || len(missing) > 0 {
			continue
		}
		_ = os.Remove(index) // of the one before
		if _, err := run("read-tree", "--reset", "-u", s.oid); err != nil {
			if git.Status(err) > 0 {
				return at, false, broken("check it with `git submodule status` there; without "+quote(filepath.Dir(objects))+" the folder stays empty",
					"the submodule %s cannot be checked out: %v", quote(s.path), err)
			}
			return at, false, err
		}
		return at, true, nil
	}
	return at, false, nil
}

// objects returns the object store of a place, which no link may lead out of.
// One that borrows from another is not used: that could be any folder.
func (at place) objects() (string, bool) {
	root, err := os.OpenRoot(at.root)
	if err != nil {
		return "", false
	}
	defer root.Close()
	rel := at.rel + "/objects"
	if st, err := root.Stat(rel); err != nil || !st.IsDir() {
		return "", false
	}
	if _, err := root.Lstat(rel + "/info/alternates"); err == nil {
		return "", false
	}
	full := filepath.Join(at.root, rel)
	if real, err := filepath.EvalSymlinks(full); err != nil || real != full || strings.ContainsAny(full, ":\"\n") {
		return "", false
	}
	return full, true
}

// touched reports whether anything in a folder was changed since it was put there.
func (sc *scanner) touched(e *tree.Entry) (bool, error) {
	if !sc.s.brought(e.Info) {
		return true, nil
	}
	dir, err := sc.root.OpenDir(e.Path)
	if err != nil {
		return true, err
	}
	defer dir.Close()
	touched := false
	err = dir.Walk(sc.asker.ctx, func(_ string, entries []*tree.Entry) error {
		for _, e := range entries {
			touched = touched || !sc.s.brought(e.Info)
			e.Descend = !touched && e.Info.Kind == tree.Dir
		}
		return nil
	})
	return touched, err
}
