package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) branchCommand() *cobra.Command {
	var in door.BranchIn
	cmd := &cobra.Command{
		Use:     "branch TASK [NAME]",
		Short:   "make a task's result a branch of your repository",
		GroupID: groupTask,
		Long: `Makes what the task made a branch: its own commits where they hold the result, and one
commit on top for what was not committed. Without NAME it is caisson/<task id>, of a
worktree task, which has that branch, caisson/<task id>-result. Commits are verified before a
ref names them. Your checkout, index and other refs are not touched, and no hook runs. A
branch that is there with this very commit is success; one with another commit is
refused, unless --force moves it.

Files that tools on your machine would execute or trust once they are checked out are
listed on standard error.`,
		Example: `  caisson branch fix-login
  caisson branch fix-login agent/login && git merge agent/login
  caisson branch --force t5k agent/login`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				return usagef(cmd, "caisson branch: unexpected argument %q", args[2])
			}
			return exact(1, "a task")(cmd, args[:min(len(args), 1)])
		},
		ValidArgsFunction: a.completeBranch,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Task = args[0]
			if len(args) == 2 {
				if in.Name = args[1]; in.Name == "" {
					return usagef(cmd, "the name is empty")
				}
			}
			r, err := do[*task.BranchReport](a, cmd, "", "branch", &in, func(c *door.Call) { c.Risky = a.tellRisky })
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(r)
				return nil
			}
			a.tellVerified(r.ID, r.Verification)
			return a.renderBranch(a.stdout(), r)
		},
	}
	cmd.Flags().BoolVarP(&in.Force, "force", "f", false, "move a branch that is there; never one that is checked out")
	return cmd
}

func (a *app) renderBranch(w io.Writer, r *task.BranchReport) error {
	t := &text{w: w, u: a.ui}
	if a.quiet {
		return nil
	}
	name := shortBranch(r.Branch)
	what := "is"
	if !r.Created {
		what = "is there already,"
	}
	t.printf("%s %s %s: %s, %s changed\n", a.ui.paint(bold, clean(name)), what, r.Object[:min(12, len(r.Object))], counted(r.Commits, "commit"), counted(r.Files, "file"))
	t.notes(r.Notes)
	word := task.ShellWord(clean(name))
	t.printf("  git log %s, git diff HEAD...%s, git merge %s\n", word, word, word)
	return t.err
}

func shortBranch(ref string) string {
	const heads = "refs/heads/"
	if len(ref) > len(heads) && ref[:len(heads)] == heads {
		return ref[len(heads):]
	}
	return ref
}

func (a *app) exportCommand() *cobra.Command {
	var patch, bundle, force bool
	var dir, file string
	cmd := &cobra.Command{
		Use:     "export TASK --patch|--bundle|--dir DIR [-o FILE]",
		Short:   "write a task's result as a patch, a bundle or plain files",
		GroupID: groupTask,
		Long: `Writes what the task made without touching any repository: a patch that ` + "`git apply`" + `
takes (any file name, any bytes), a git bundle with its commits, or all of its files in
a new or empty folder. A patch or bundle goes to standard output, or with -o to a file
that is there completely or not at all.

Files that tools on your machine would execute or trust are listed on standard error.`,
		Example: `  caisson export fix-login --patch | git apply --3way
  caisson export fix-login --bundle -o login.bundle && git fetch login.bundle
  caisson export t5k --dir /tmp/look`,
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			in := &door.ExportIn{Task: args[0], Form: "patch"}
			given := 0
			for _, set := range []bool{patch, bundle, cmd.Flags().Changed("dir")} {
				if set {
					given++
				}
			}
			switch {
			case given != 1:
				return usagef(cmd, "caisson export takes exactly one of --patch, --bundle and --dir DIR")
			case bundle:
				in.Form = "bundle"
			case !patch:
				in.Form = "dir"
			}
			switch {
			case cmd.Flags().Changed("output") && (file == "" || in.Form == "dir"):
				return usagef(cmd, "-o names the file of a patch or bundle")
			case in.Form == "dir" && dir == "":
				return usagef(cmd, "--dir needs a folder")
			case force && file == "":
				return usagef(cmd, "--force goes with -o")
			case a.json && in.Form != "dir" && file == "":
				return usagef(cmd, "--json needs -o FILE here: standard output is the %s's", in.Form)
			case bundle && file == "" && a.ui.outTTY:
				return usagef(cmd, "a bundle is not for a terminal").WithHint("`-o FILE` writes it to a file")
			}
			return a.export(cmd, in, exporting{dir: dir, file: file, force: force})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&patch, "patch", false, "a patch for git apply")
	f.BoolVar(&bundle, "bundle", false, "a git bundle with the commits of branch")
	f.StringVar(&dir, "dir", "", "the files themselves, into a new or empty folder `DIR`")
	f.StringVarP(&file, "output", "o", "", "write the patch or bundle to a file (default: standard output) `FILE`")
	f.BoolVarP(&force, "force", "f", false, "replace FILE when it is there")
	_ = cmd.RegisterFlagCompletionFunc("dir", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	return cmd
}

// exporting says where an export goes; all empty is standard output.
type exporting struct {
	dir, file string
	force     bool
}

func (a *app) export(cmd *cobra.Command, in *door.ExportIn, to exporting) error {
	run := func(w io.Writer) (*task.ExportReport, error) {
		return do[*task.ExportReport](a, cmd, "", "export", in, func(c *door.Call) { c.Writer, c.Risky = w, a.tellRisky })
	}
	var r *task.ExportReport
	var err error
	switch {
	case to.dir != "":
		if in.Dir, err = a.absolute(to.dir); err != nil {
			return err
		}
		if r, err = run(nil); err == nil {
			r.To = in.Dir
		}
	case to.file != "":
		var path string
		if path, err = a.absolute(to.file); err != nil {
			return err
		}
		if err = writeWhole(path, to.force, func(w io.Writer) (err error) { r, err = run(w); return err }); err == nil {
			r.To = path
		}
	case a.ui.outTTY:
		err = a.page(func(w io.Writer) (err error) {
			d := &diffText{w: w, color: a.ui.colorOut}
			if r, err = run(d); err != nil {
				return err
			}
			return d.Close()
		})
	default:
		r, err = run(a.stdout())
	}
	if err != nil || r == nil {
		return err
	}
	if a.json {
		a.writeJSON(r)
		return nil
	}
	a.tellVerified(r.ID, r.Verification)
	if a.quiet {
		return nil
	}
	if r.To == "-" { // the notes of a stream are not part of it
		for _, n := range r.Notes {
			a.ui.note("%s", n)
		}
		return nil
	}
	t := &text{w: a.stdout(), u: a.ui}
	size := ""
	if r.Bytes > 0 {
		size = ", " + bytesText(r.Bytes)
	}
	if r.Form == "dir" {
		t.printf("%s: all files of %s, %s%s\n", clean(r.To), r.ID, counted(r.Files, "file"), size)
	} else {
		t.printf("%s: %s of %s, %s changed%s\n", clean(r.To), r.Form, r.ID, counted(r.Files, "file"), size)
	}
	t.notes(r.Notes)
	switch word := task.ShellWord(clean(r.To)); r.Form {
	case "patch":
		t.printf("  git apply --3way %s\n", word)
	case "bundle":
		t.printf("  git fetch %s, then git log FETCH_HEAD\n", word)
	}
	return t.err
}

// absolute names a path that a person typed, from their own folder.
func (a *app) absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	if a.cfg.Dir == "" {
		return "", task.Errorf(task.CodeUsage, "cli", "%s: the working folder cannot be read", quoted(path)).WithHint("give an absolute path")
	}
	return filepath.Join(a.cfg.Dir, path), nil
}

// writeWhole makes a file of what write writes: the whole of it, or nothing. A
// file that is there is not replaced unless force is set; a link at its place
// is replaced itself.
func writeWhole(path string, force bool, write func(io.Writer) error) (err error) {
	fail := func(err error) error {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err // its path is that of our own working file
		}
		return task.Errorf(task.CodeConflict, "cli.export", "%s cannot be written: %w", quoted(path), err).
			WithHint("name a file in a folder that exists and that you may write to")
	}
	there := task.Errorf(task.CodeConflict, "cli.export", "%s is there already", quoted(path)).WithHint("choose another name, or --force to replace it")
	switch fi, err := os.Lstat(path); {
	case err != nil: // nothing there; or what is wrong shows when it is written
	case fi.IsDir():
		return task.Errorf(task.CodeConflict, "cli.export", "%s is a folder", quoted(path)).WithHint("-o names a file; --dir writes the files themselves")
	case !force:
		return there
	}
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".caisson-export-%s", task.NewToken()))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) //nolint:gosec // as a shell's > makes it
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.Remove(tmp) }()
	if err := write(f); err != nil {
		_ = f.Close()
		if pe := (*fs.PathError)(nil); task.CodeOf(err) == task.CodeInternal && errors.As(err, &pe) {
			return fail(err)
		}
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fail(err)
	}
	if !force {
		// Not a rename: it would replace what was made there meanwhile.
		err := os.Link(tmp, path)
		if err == nil {
			return nil
		}
		if _, serr := os.Lstat(path); serr == nil {
			return there
		}
	}
	if err := os.Rename(tmp, path); err != nil {
		return fail(err)
	}
	return nil
}
