package source

import (
	"context"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

func itoa(n int) string { return strconv.Itoa(n) }

// listRefs lists all refs. No object is opened, so a broken ref breaks nothing.
func listRefs(ctx context.Context, g *git.Git, gitDir string, patterns ...string) ([]Ref, error) {
	out, err := g.Run(ctx, git.Cmd{GitDir: gitDir, Args: append([]string{"for-each-ref", "--format=%(objectname) %(refname) %(symref)", "--"}, patterns...)})
	if err != nil {
		return nil, err
	}
	var refs []Ref
	for _, line := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		if line == "" {
			continue
		}
		f := strings.SplitN(line, " ", 3)
		if len(f) < 3 || !git.IsOID(f[0]) || !git.ValidRef(f[1]) {
			return nil, task.Errorf(task.CodeSource, "source.refs", "git's list of refs cannot be read: %q", line)
		}
		refs = append(refs, Ref{Object: f[0], Name: f[1], Symref: f[2]})
	}
	return refs, nil
}

// resolve finds the commit a person named. The revision goes over stdin, where
// nothing can be an option. An unknown one is "" without an error.
func (r *Repo) resolve(ctx context.Context, rev string) (string, error) {
	if strings.ContainsAny(rev, "\n\x00") || len(rev) > 4096 {
		return "", task.Errorf(task.CodeUsage, "source.base", "%s is not a revision", quote(rev)).WithHint("name a branch, a tag or a commit")
	}
	ask := rev + "^{commit}"
	if strings.HasPrefix(rev, ":/") {
		ask = rev // the rest is the text to look for; what it finds is a commit
	}
	out, err := r.git.Run(ctx, git.Cmd{
		GitDir: r.gitDir, Stdin: strings.NewReader(ask + "\n"), Max: 64 << 10,
		Args: []string{"cat-file", "--batch-check=%(objectname) %(objecttype)"},
	})
	if git.Status(err) > 0 {
		// Some forms, as @{upstream} without one, are fatal instead of missing.
		return "", task.Errorf(task.CodeNotFound, "source.base", "%s is no revision here: %v", quote(rev), err).WithHint("name a branch, a tag or a commit")
	}
	if err != nil {
		return "", err
	}
	line := strings.TrimSuffix(string(out), "\n")
	if oid, kind, ok := strings.Cut(line, " "); ok && kind == "commit" && git.IsOID(oid) {
		return oid, nil
	}
	if strings.HasSuffix(line, " ambiguous") {
		return "", task.Errorf(task.CodeSource, "source.base", "%s is the beginning of more than one object name", quote(rev)).WithHint("write more digits")
	}
	return "", nil
}

// setBase fills Base and Branch.
func (r *Repo) setBase(base, asked string, refs []Ref) error {
	byName := make(map[string]Ref, len(refs))
	for _, ref := range refs {
		byName[ref.Name] = ref
	}
	head := ""
	if b, err := readSmall(filepath.Join(r.gitDir, "HEAD")); err == nil {
		if t, ok := strings.CutPrefix(string(b), "ref:"); ok {
			head = strings.TrimSpace(t)
		}
	}
	branch := func(full string) string {
		short, ok := strings.CutPrefix(full, "refs/heads/")
		if !ok || !git.ValidRef(full) {
			return ""
		}
		return short
	}
	if asked == "" || asked == "HEAD" || asked == "@" {
		r.Ref.Branch = branch(head)
		_, born := byName[head]
		switch {
		case base != "":
		case head != "" && !born:
			if r.Ref.Branch == "" {
				r.Ref.Branch = "main"
			}
			r.note("the repository has no commit yet: the task starts empty")
		default:
			return broken("run `git fsck`", "HEAD does not name a commit that is there")
		}
		r.Ref.Base = base
		return nil
	}
	if base == "" {
		return task.Errorf(task.CodeNotFound, "source.base", "%s is not a commit in %s", quote(asked), quote(r.Ref.Repo)).
			WithHint("list what there is with `git branch -a` or `git log`; only what was fetched counts")
	}
	// The part of the revision that can be a ref's name, in git's own order.
	name := asked
	if i := strings.IndexAny(name, "^~:"); i >= 0 {
		name = name[:i]
	}
	name, _, _ = strings.Cut(name, "@{")
	var hits []Ref
	for _, format := range []string{"%", "refs/%", "refs/tags/%", "refs/heads/%", "refs/remotes/%", "refs/remotes/%/HEAD"} {
		if ref, ok := byName[strings.Replace(format, "%", name, 1)]; ok {
			hits = append(hits, ref)
		}
	}
	for _, h := range hits {
		if h.Object != hits[0].Object {
			return task.Errorf(task.CodeSource, "source.base", "%s is ambiguous: %s and %s differ", quote(name), quote(hits[0].Name), quote(h.Name)).
				WithHint("write the full name, for example --base %s", quote(h.Name))
		}
	}
	// Digits in full are the object, also where a ref has them for its name.
	if name == asked && !git.IsOID(name) {
		for _, h := range hits {
			if b := branch(h.Name); b != "" {
				r.Ref.Branch = b
			}
		}
	}
	r.Ref.Base = base
	return nil
}

// chooseRefs decides which refs the task sees and which objects that shares.
func (r *Repo) chooseRefs(all []Ref) {
	own := ""
	if r.Ref.Branch != "" && r.Ref.Base != "" {
		own = "refs/heads/" + r.Ref.Branch
	}
	seen := map[string]bool{}
	tip := func(oid string) {
		if !seen[oid] {
			seen[oid] = true
			r.Tips = append(r.Tips, oid)
		}
	}
	if r.Ref.Base != "" {
		tip(r.Ref.Base)
	}
	for _, ref := range all {
		switch {
		case ref.Name == own:
			// A branch that moved since it was resolved stands at the base.
			r.Refs = append(r.Refs, Ref{Name: own, Object: r.Ref.Base})
		case r.Ref.History != task.HistoryFull:
		case strings.HasPrefix(ref.Name, "refs/heads/"), strings.HasPrefix(ref.Name, "refs/tags/"), strings.HasPrefix(ref.Name, "refs/remotes/"):
			r.Refs = append(r.Refs, ref)
			tip(ref.Object)
		}
	}
	sort.Slice(r.Refs, func(i, j int) bool { return r.Refs[i].Name < r.Refs[j].Name })
}
