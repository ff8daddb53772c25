package source

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// merging is a three-way merge in a git directory of ours: what the task made of
// start goes onto ours, the tree that the checkout holds as committed.
type merging struct {
	g                   *git.Git
	dir                 string
	start, ours, theirs string // trees
	// pathwise compares paths only, as for a git that cannot merge trees.
	pathwise bool
}

// neutralMerge keeps a .gitattributes of the result from choosing how files are
// merged; the program behind a name could only come from a configuration, and
// ours has none.
const neutralMerge = "* merge=text\n"

// mergeOutcome is the outcome: a tree, or what is in its way.
type mergeOutcome struct {
	tree      string
	conflicts []task.Conflict
}

func (m *merging) run(ctx context.Context) (*mergeOutcome, error) {
	switch {
	case m.ours == m.start, m.ours == m.theirs:
		return &mergeOutcome{tree: m.theirs}, nil
	case m.theirs == m.start:
		return &mergeOutcome{tree: m.ours}, nil
	case m.pathwise || !m.g.AtLeast(2, 38, 0):
		return m.byPath(ctx)
	}
	// merge-tree finds the base by history, so the trees get one.
	base, err := m.commit(ctx, m.start)
	if err != nil {
		return nil, err
	}
	for name, t := range map[string]string{"checkout": m.ours, "task": m.theirs} {
		c, err := m.commit(ctx, t, "-p", base)
		if err != nil {
			return nil, err
		}
		// The names are what conflict markers show.
		if err := os.WriteFile(filepath.Join(m.dir, "refs/heads", name), []byte(c+"\n"), 0o600); err != nil {
			return nil, task.Errorf(task.CodeStateStore, "source.merge", "the merge cannot be prepared: %v", err)
		}
	}
	out, err := m.g.Run(ctx, git.Cmd{
		GitDir: m.dir, Args: []string{"merge-tree", "--write-tree", "-z", "--messages", "checkout", "task"},
		// Without renames a change lands at the path that the task changed and
		// that was judged, never at another one.
		Config: []string{"merge.renames=false", "merge.directoryRenames=false", "merge.conflictStyle=merge", "core.bigFileThreshold=64m"},
	})
	clean := err == nil
	if err != nil && git.Status(err) != 1 {
		return nil, task.Errorf(task.CodeSource, "source.merge", "the result cannot be merged with the checkout: %v", err)
	}
	a, perr := parseMerge(out)
	if perr != nil {
		return nil, perr
	}
	if clean {
		if len(a.stages) > 0 {
			return nil, task.Errorf(task.CodeInternal, "source.merge", "git merge-tree names conflicts and none")
		}
		return &mergeOutcome{tree: a.tree}, nil
	}
	return &mergeOutcome{conflicts: m.explain(ctx, a)}, nil
}

func (m *merging) commit(ctx context.Context, tree string, parents ...string) (string, error) {
	const when = "1000000000 +0000"
	oid, err := oneLine(ctx, m.g, git.Cmd{
		GitDir: m.dir, Args: append(append([]string{"commit-tree", "-m", "caisson"}, parents...), tree),
		Env: []string{
			"GIT_AUTHOR_NAME=caisson", "GIT_AUTHOR_EMAIL=caisson@localhost", "GIT_AUTHOR_DATE=" + when,
			"GIT_COMMITTER_NAME=caisson", "GIT_COMMITTER_EMAIL=caisson@localhost", "GIT_COMMITTER_DATE=" + when,
		},
	})
	if err != nil {
		return "", task.Errorf(task.CodeSource, "source.merge", "the tree %s cannot be merged: %v", tree, err)
	}
	return oid, nil
}

// mergeAnswer is what `git merge-tree -z` prints.
type mergeAnswer struct {
	tree   string
	stages []mergeStage
	notes  []mergeNote
}

type mergeStage struct {
	mode  uint32
	oid   string
	stage int
	path  string
}

type mergeNote struct {
	paths      []string
	kind, text string
}

// parseMerge reads it.
func parseMerge(out []byte) (*mergeAnswer, error) {
	bad := func() (*mergeAnswer, error) {
		return nil, task.Errorf(task.CodeInternal, "source.merge", "git's answer to a merge cannot be read")
	}
	f, ok := git.SplitZ(out)
	if !ok || len(f) == 0 || !git.IsOID(f[0]) {
		return bad()
	}
	a := &mergeAnswer{tree: f[0]}
	i := 1
	for ; i < len(f) && f[i] != ""; i++ {
		head, path, ok := strings.Cut(f[i], "\t")
		h := strings.Split(head, " ")
		if !ok || len(h) != 3 || path == "" || !git.IsOID(h[1]) {
			return bad()
		}
		mode, err := strconv.ParseUint(h[0], 8, 32)
		if err != nil || h[2] != "1" && h[2] != "2" && h[2] != "3" {
			return bad()
		}
		a.stages = append(a.stages, mergeStage{mode: uint32(mode), oid: h[1], stage: int(h[2][0] - '0'), path: path})
	}
	for i++; i < len(f); {
		n, err := strconv.Atoi(f[i])
		if err != nil || n < 0 || n > len(f)-i-3 {
			return bad()
		}
		a.notes = append(a.notes, mergeNote{paths: f[i+1 : i+1+n], kind: f[i+1+n], text: f[i+2+n]})
		i += n + 3
	}
	return a, nil
}

// explain turns git's answer into conflicts, one per path.
func (m *merging) explain(ctx context.Context, a *mergeAnswer) []task.Conflict {
	why := map[string]string{}
	for _, n := range a.notes {
		if !strings.HasPrefix(n.kind, "CONFLICT") || len(n.paths) == 0 {
			continue
		}
		p := n.paths[0]
		if why[p] != "" {
			continue
		}
		switch n.kind {
		case "CONFLICT (binary)":
			why[p] = "both the checkout's commit and the task changed this binary file"
		case "CONFLICT (file/directory)", "CONFLICT (distinct modes)":
			why[p] = "it is a file on one side and a folder or link on the other"
		default:
			why[p] = "both the checkout's commit and the task changed it"
		}
	}
	sides := map[string][4]bool{}
	for _, s := range a.stages {
		v := sides[s.path]
		v[s.stage] = true
		sides[s.path] = v
	}
	for p, v := range sides {
		switch {
		case v[1] && v[2] && !v[3]:
			why[p] = "the checkout's commit changed it and the task deleted it"
		case v[1] && !v[2] && v[3]:
			why[p] = "the task changed it and the checkout's commit deleted it"
		case why[p] == "" && v[2] && v[3]:
			why[p] = "both the checkout's commit and the task changed it"
		}
	}
	var paths []string
	for p := range why {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	var out []task.Conflict
	room := maxHunks
	for _, p := range paths {
		c := task.Conflict{Path: quote(p), Why: why[p]}
		if v := sides[p]; v[2] && v[3] && room > 0 {
			c.Hunks = m.hunks(ctx, a.tree, p)
			room -= len(c.Hunks)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		out = append(out, task.Conflict{Path: ".", Why: "the result cannot be merged with the checkout's commit"})
	}
	return out
}

// Bounds of what is shown of conflicts, in bytes.
const (
	maxHunks     = 1 << 20 // of all paths
	maxHunk      = 64 << 10
	maxConflicts = 8 << 20 // of a file that is looked at for markers
)

// hunks returns the parts of a merged file that have conflict markers.
func (m *merging) hunks(ctx context.Context, tree, path string) string {
	// The path goes over stdin behind the tree's name, so it is no option.
	if strings.Contains(path, "\n") {
		return ""
	}
	out, err := m.g.Run(ctx, git.Cmd{
		GitDir: m.dir, Args: []string{"cat-file", "--batch"}, Stdin: strings.NewReader(tree + ":" + path + "\n"), Max: maxConflicts,
	})
	if err != nil {
		return ""
	}
	head, body, ok := bytes.Cut(out, []byte("\n"))
	if !ok || !strings.Contains(string(head), " blob ") {
		return ""
	}
	return cutHunks(body)
}

// hunkContext is how many lines around a conflict are shown, as in a diff.
const hunkContext = 3

// cutHunks keeps the lines between conflict markers and a few around them.
func cutHunks(body []byte) string {
	lines := strings.SplitAfter(string(body), "\n")
	show := make([]bool, len(lines))
	in := false
	for i, l := range lines {
		begins, ends := strings.HasPrefix(l, "<<<<<<< checkout"), in && strings.HasPrefix(l, ">>>>>>> task")
		in = in || begins
		if !in {
			continue
		}
		show[i] = true
		if begins || ends {
			for k := max(0, i-hunkContext); k <= min(len(lines)-1, i+hunkContext); k++ {
				show[k] = true
			}
		}
		if ends {
			in = false
		}
	}
	var b strings.Builder
	for i, l := range lines {
		if !show[i] {
			continue
		}
		if i > 0 && !show[i-1] || i == 0 {
			b.WriteString("@@ line " + strconv.Itoa(i+1) + " @@\n")
		}
		if b.Len()+len(l) > maxHunk {
			b.WriteString("… (more is not shown)\n")
			break
		}
		b.WriteString(l)
	}
	return b.String()
}

// byPath merges for a git that is too old: a path that only one side changed is
// taken from there, one that both changed differently is a conflict.
func (m *merging) byPath(ctx context.Context) (*mergeOutcome, error) {
	theirs, err := diffTrees(ctx, m.g, m.dir, m.start, m.theirs)
	if err != nil {
		return nil, err
	}
	mine, err := diffTrees(ctx, m.g, m.dir, m.start, m.ours)
	if err != nil {
		return nil, err
	}
	changed := map[string]*rawChange{}
	above := map[string]bool{} // folders that must be folders on our side
	for i := range mine {
		p := string(mine[i].Path)
		changed[p] = &mine[i]
		if mine[i].NewMode != 0 {
			for _, d := range parents(p) {
				above[d] = true
			}
		}
	}
	out := &mergeOutcome{}
	var info strings.Builder
	for i := range theirs {
		c := &theirs[i]
		p := string(c.Path)
		o := changed[p]
		if o != nil && o.NewMode == c.NewMode && o.newOID == c.newOID {
			continue
		}
		clash := o != nil || c.NewMode != 0 && above[p]
		for _, d := range parents(p) {
			clash = clash || c.NewMode != 0 && changed[d] != nil && changed[d].NewMode != 0
		}
		if clash {
			out.conflicts = append(out.conflicts, task.Conflict{Path: quote(p), Why: "both the checkout's commit and the task changed it"})
			continue
		}
		info.WriteString(strconv.FormatUint(uint64(c.NewMode), 8) + " " + c.newOID + "\t" + p + "\x00")
	}
	if len(out.conflicts) > 0 {
		return out, nil
	}
	index := filepath.Join(m.dir, "merge.index")
	run := func(stdin string, args ...string) git.Cmd {
		return git.Cmd{GitDir: m.dir, Env: []string{"GIT_INDEX_FILE=" + index}, Args: args, Stdin: strings.NewReader(stdin)}
	}
	if _, err = m.g.Run(ctx, run("", "read-tree", m.ours)); err == nil {
		_, err = m.g.Run(ctx, run(info.String(), "update-index", "-z", "--index-info"))
	}
	if err == nil {
		out.tree, err = oneLine(ctx, m.g, run("", "write-tree"))
	}
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.merge", "the result cannot be merged with the checkout: %v", err)
	}
	return out, nil
}

// parents lists the folders above a path, the top one first.
func parents(p string) []string {
	var out []string
	for i := range len(p) {
		if p[i] == '/' {
			out = append(out, p[:i])
		}
	}
	return out
}

// diffTrees lists what differs between two trees, sorted, without renames.
func diffTrees(ctx context.Context, g *git.Git, dir, from, to string) ([]rawChange, error) {
	if from == to {
		return nil, nil
	}
	out, err := g.Run(ctx, git.Cmd{GitDir: dir, Max: 1 << 30,
		Args: []string{"diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=none", from, to, "--"}})
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.merge", "the change set cannot be computed: %v", err)
	}
	cs, err := parseRaw(out)
	if err != nil {
		return nil, err
	}
	sort.SliceStable(cs, func(i, j int) bool { return bytes.Compare(cs[i].Path, cs[j].Path) < 0 })
	return cs, nil
}
