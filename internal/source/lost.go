package source

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// Limits on what is read of the logs of a task's refs. Beyond them the oldest
// entries are not looked at.
const (
	maxLogLines = 200_000
	maxLost     = 1000
)

// logLine is one line of a log of a ref: it led from one object to another.
type logLine struct {
	old, new string
	on       bool // by its own words new continues old
}

// readLogs reads the logs of HEAD, of the branches and of worktrees made inside,
// each with its newest line first. What cannot be read is left out: git does not
// need it either.
func readLogs(ctx context.Context, dir *tree.Root) []logLine {
	var out []logLine
	read := func(d *tree.Root, path string) {
		b, err := d.ReadFile(path, maxPacked)
		if err != nil {
			return
		}
		lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		for i := len(lines) - 1; i >= 0 && len(out) < maxLogLines; i-- {
			if l, ok := parseLogLine(lines[i]); ok {
				out = append(out, l)
			}
		}
	}
	read(dir, "logs/HEAD")
	below := func(name string, want func(path string) bool) {
		d, err := dir.OpenDir(name)
		if err != nil {
			return
		}
		defer d.Close()
		_ = d.Walk(ctx, func(_ string, entries []*tree.Entry) error {
			for _, e := range entries {
				switch {
				case e.Info.Kind == tree.Dir:
					e.Descend = true
				case e.Info.Kind == tree.File && want(e.Path):
					read(d, e.Path)
				}
			}
			return nil
		})
	}
	below("logs/refs", func(p string) bool { return p != "stash" })
	below("worktrees", func(p string) bool { return strings.HasSuffix(p, "/logs/HEAD") && strings.Count(p, "/") == 2 })
	return out
}

// continuing are the words with which git notes that a commit was put on top of
// the one before it.
var continuing = []string{"commit:", "commit (merge):", "commit (cherry-pick):", "cherry-pick:", "revert:", "am:", "merge ", "rebase (pick):", "rebase (continue):"}

// parseLogLine reads "OLD NEW WHO WHEN ZONE\tWHAT".
func parseLogLine(s string) (l logLine, ok bool) {
	names, what, _ := strings.Cut(s, "\t")
	f := strings.SplitN(names, " ", 3)
	if len(f) < 2 || !git.IsOID(f[0]) || !git.IsOID(f[1]) {
		return l, false
	}
	l = logLine{old: f[0], new: f[1]}
	for _, c := range continuing {
		l.on = l.on || strings.HasPrefix(what, c)
	}
	return l, true
}

// lostOf lists the commits that the logs name and that no ref leads to: what was
// amended, reset, rebased or deleted. Without the objects the logs' own words
// tell which of them others lead to; exact asks for all that the shadow
// repository cannot tell to be reachable.
func (ws Workspace) lostOf(ctx context.Context, dir *tree.Root, live map[string]bool, exact bool) ([]Ref, error) {
	lines := readLogs(ctx, dir)
	var found []string
	seen := map[string]bool{}
	for _, l := range lines {
		for _, oid := range []string{l.new, l.old} {
			if strings.Trim(oid, "0") != "" && !live[oid] && !seen[oid] {
				seen[oid] = true
				found = append(found, oid)
			}
		}
	}
	if len(found) == 0 {
		return nil, ctx.Err()
	}
	if !exact {
		before := map[string][]string{}
		for _, l := range lines {
			if l.on {
				before[l.new] = append(before[l.new], l.old)
			}
		}
		led := map[string]bool{}
		mark := func(oid string) {
			for todo := []string{oid}; len(todo) > 0; {
				last := todo[len(todo)-1]
				todo = todo[:len(todo)-1]
				for _, b := range before[last] {
					if !led[b] {
						led[b] = true
						todo = append(todo, b)
					}
				}
			}
		}
		for oid := range live {
			mark(oid)
		}
		for _, oid := range found {
			mark(oid)
		}
		found = minus(found, led)
	}
	reached, err := ws.reached(ctx, found, live)
	if err != nil {
		return nil, err
	}
	var out []Ref
	for _, oid := range minus(found, reached) {
		if len(out) == maxLost {
			break
		}
		out = append(out, Ref{Name: "reflog/" + strconv.Itoa(len(out)+1), Object: oid})
	}
	return out, nil
}

// minus drops what is in a set from a list.
func minus(list []string, set map[string]bool) []string {
	var out []string
	for _, s := range list {
		if !set[s] {
			out = append(out, s)
		}
	}
	return out
}

// reached reports which objects the shadow repository has and finds on the way
// from the user's tips or from live ones that it has.
func (ws Workspace) reached(ctx context.Context, oids []string, live map[string]bool) (map[string]bool, error) {
	fail := func(err error) error {
		return task.Errorf(task.CodeSource, "source.reflog", "the commits that only the logs of the task's refs name cannot be looked for: %v", err)
	}
	if len(oids) == 0 {
		return nil, nil
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	all := oids
	for oid := range live {
		all = append(all[:len(all):len(all)], oid)
	}
	cmd := ws.shadowCmd("cat-file", "--batch-check=%(objectname) %(objecttype)")
	cmd.Stdin, cmd.Max = strings.NewReader(strings.Join(all, "\n")+"\n"), 64<<20
	out, err := g.Run(ctx, cmd)
	if err != nil {
		return nil, fail(err)
	}
	var in strings.Builder
	here := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		oid, kind, _ := strings.Cut(line, " ")
		switch {
		case kind != "commit":
		case live[oid]:
			in.WriteString("^" + oid + "\n")
		default:
			here[oid] = true
			in.WriteString(oid + "\n")
		}
	}
	if len(here) == 0 {
		return nil, nil
	}
	cmd = ws.shadowCmd("rev-list", "--stdin", "--not", "--all")
	cmd.Stdin, cmd.Max = strings.NewReader(in.String()), 1<<30
	if out, err = g.Run(ctx, cmd); err != nil {
		return nil, fail(err)
	}
	for _, oid := range strings.Split(string(out), "\n") {
		delete(here, oid)
	}
	return here, nil
}

// lost is what PackCommand asks for: exactly what is to be brought out.
func (ws Workspace) lost(ctx context.Context) (*state, []Ref, error) {
	s, err := ws.loadState()
	if err != nil {
		return nil, nil, err
	}
	if s.Strategy != "" && s.Strategy != task.StrategyClone {
		return s, nil, nil
	}
	c, err := ws.refChanges(ctx, s, exactly)
	if err != nil {
		return nil, nil, err
	}
	return s, c.lost, nil
}

// PackCommand is BundleCommand for the commits that no ref of the task leads to.
// What a bundle holds must be on a ref, so this is a pack; stdin is what the
// program reads. argv is empty where there is nothing to bring out. It comes
// after Import, whose objects tell what is still reachable.
func PackCommand(ctx context.Context, ws Workspace) (argv, env []string, stdin string, err error) {
	s, lost, err := ws.lost(ctx)
	if err != nil || len(lost) == 0 {
		return nil, nil, "", err
	}
	if err := ws.mayRead(ctx); err != nil {
		return nil, nil, "", err
	}
	var in strings.Builder
	for _, r := range lost {
		in.WriteString(r.Object + "\n")
	}
	if len(s.Tips) > 0 {
		in.WriteString("--not\n" + strings.Join(s.Tips[:min(len(s.Tips), maxExcluded)], "\n") + "\n")
	}
	argv = append(neutralInside(), "pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q")
	return argv, insideEnv(), in.String(), nil
}

// ImportPack verifies the pack that PackCommand wrote as Import verifies a
// bundle, and publishes its commits as reflog/<n>, but for those that others of
// them lead to.
func ImportPack(ctx context.Context, ws Workspace, r io.Reader, max int64) ([]task.ResultRef, error) {
	s, want, err := ws.lost(ctx)
	if err != nil || len(want) == 0 {
		return nil, err
	}
	im, err := ws.importing(ctx, s)
	if err != nil {
		return nil, err
	}
	defer im.end(ctx)
	f, err := im.hold(r, max)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, badResult("no pack came with the commits that only the logs of the task's refs name")
	}
	defer f.Close()
	if err := im.index(ctx, f, max); err != nil {
		return nil, err
	}
	if err := im.verify(ctx, want); err != nil {
		return nil, err
	}
	if want, err = im.independent(ctx, want); err != nil {
		return nil, err
	}
	if err := im.release(); err != nil {
		return nil, err
	}
	return ws.publish(ctx, im.g, s, resultNames(want))
}

// independent leaves out the commits of the logs that others lead to.
func (im *importing) independent(ctx context.Context, want []Ref) ([]Ref, error) {
	args := []string{"merge-base", "--independent"}
	for _, r := range want {
		if !strings.HasPrefix(r.Name, "other/reflog/") { // not a commit
			args = append(args, r.Object)
		}
	}
	heads := map[string]bool{}
	if len(args) > 2 {
		out, err := im.g.Run(ctx, im.cmd(args...))
		if err != nil {
			return nil, badResult("the task's commits cannot be compared: %v", err)
		}
		for _, oid := range strings.Fields(string(out)) {
			heads[oid] = true
		}
	}
	var left []Ref
	n := 0
	for _, r := range want {
		if strings.HasPrefix(r.Name, "reflog/") {
			if !heads[r.Object] {
				continue
			}
			n++
			r.Name = "reflog/" + strconv.Itoa(n)
		}
		left = append(left, r)
	}
	return left, nil
}
