package source

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// The forms of an export.
const (
	FormPatch  = "patch"
	FormBundle = "bundle"
	FormDir    = "dir"
)

// ExportOptions says in which form a result is written, and where to.
type ExportOptions struct {
	Form string
	W    io.Writer // of a patch or bundle
	Dir  string    // of a dir: a new or empty folder
	// Branch is the branch that a bundle holds; empty is caisson/<id>.
	Branch string
	// Apart are folders, absolute, that Dir may not be in: caisson's own state.
	Apart []string
}

// Export writes the result without touching any repository of the user's. A
// patch and a bundle go to W and may be cut when it fails; a folder is there
// completely or not at all.
func (r *Result) Export(ctx context.Context, o ExportOptions) (*task.ExportReport, error) {
	rep := &task.ExportReport{Schema: "caisson.export/1", ID: r.Task, Form: o.Form, To: "-", Files: len(r.Changes), Risky: []task.Risk{}, From: r.From}
	w := &counted{w: o.W}
	var err error
	switch o.Form {
	case FormPatch:
		err = r.exportPatch(ctx, w)
	case FormBundle:
		err = r.exportBundle(ctx, w, o, rep)
	case FormDir:
		err = r.exportDir(ctx, o, rep)
	default:
		err = task.Errorf(task.CodeUsage, "source.export", "unknown form %q", o.Form).WithHint("use --patch, --bundle or --dir")
	}
	if err != nil {
		return nil, err
	}
	if o.Form != FormDir {
		rep.Bytes = w.n
	}
	rep.Notes = append(rep.Notes, r.leftOut()...)
	return rep, nil
}

// counted counts what is written.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// exportPatch writes the changes so that `git apply` makes the very tree of
// them, and `patch -p1` where it knows how. Renames are a deletion and an
// addition: other programs than git do not know them.
func (r *Result) exportPatch(ctx context.Context, w io.Writer) error {
	if err := r.fitsPatch(ctx); err != nil {
		return err
	}
	cmd := r.cmd("diff", "--no-ext-diff", "--no-textconv", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short",
		"--ignore-submodules=none", "--patch", "--binary", "--full-index", "--no-color", "--unified=3", r.Start, r.Tree, "--")
	cmd.Stdout = w
	// A name with other bytes than plain text is quoted, or a mail or an editor
	// on the way would change it.
	cmd.Config = []string{"core.quotePath=true", "diff.suppressBlankEmpty=false", "diff.interHunkContext=0", diffBigFile}
	_, err := r.g.Run(ctx, cmd)
	return err
}

// exportBundle writes a bundle with one branch, which is its HEAD: the history of
// the tip, without what the base has.
func (r *Result) exportBundle(ctx context.Context, w io.Writer, o ExportOptions, rep *task.ExportReport) error {
	ref, err := branchRef(r.BranchName(o.Branch))
	if err != nil {
		return err
	}
	t, err := r.tip(ctx)
	if err != nil {
		return err
	}
	if t.commits == 0 {
		return task.Errorf(task.CodeState, "source.export", "there is nothing to bundle: the result of %s is the commit %s, which the repository has", r.Task, t.commit).
			WithHint("`caisson branch %s` gives that commit a name; `caisson export %s --dir DIR` writes its files", r.Task, r.Task)
	}
	if err := r.verifyNew(ctx, t.commit); err != nil {
		return err
	}
	need, err := r.boundaryOf(ctx, t.commit)
	if err != nil {
		return err
	}
	var head strings.Builder
	if r.format == "sha256" {
		head.WriteString("# v3 git bundle\n@object-format=sha256\n")
	} else {
		head.WriteString("# v2 git bundle\n")
	}
	for _, n := range need {
		fmt.Fprintf(&head, "-%s base of caisson task %s\n", n, r.Task)
	}
	// HEAD too: `git fetch FILE` without a ref asks for it.
	fmt.Fprintf(&head, "%s %s\n%s HEAD\n\n", t.commit, ref, t.commit)
	if _, err := io.WriteString(w, head.String()); err != nil {
		return err
	}
	rep.Object = t.commit
	rep.Notes = append(rep.Notes, t.notes...)
	return packTo(ctx, packing{g: r.g, dir: r.dir, want: []string{t.commit}, not: need}, w)
}

// verifyNew checks every object of the result that did not come from the
// user's repository as git checks what it receives.
func (r *Result) verifyNew(ctx context.Context, commit string) error {
	d := &delivery{g: r.g, task: r.Task, from: r.dir}
	pack, n, err := d.pack(ctx, []string{commit}, r.known())
	if err != nil {
		return err
	}
	defer os.Remove(pack)
	if n == 0 {
		return nil
	}
	return d.verify(ctx, pack)
}

// boundaryOf lists the commits of the base's history that the tip's own hangs
// on: what a receiver of the bundle must have. None where the tip shares
// nothing with the base.
func (r *Result) boundaryOf(ctx context.Context, commit string) ([]string, error) {
	if r.Base == "" {
		return nil, nil
	}
	out, err := r.g.Run(ctx, r.cmd("rev-list", "--boundary", commit, "--not", r.Base))
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.export", "the history of the result cannot be listed: %v", err)
	}
	var need []string
	for _, l := range strings.Split(string(out), "\n") {
		if oid, ok := strings.CutPrefix(l, "-"); ok && git.IsOID(oid) {
			need = append(need, oid)
		}
	}
	return need, nil
}
