package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// explainStart names the program that could not be started inside, and the way
// to have it there. It looks at this host only: a person who typed a name knows
// it from here.
func (a *app) explainStart(err error, argv []string, dir string, env []string, open bool) error {
	var e *task.Error
	if errors.As(err, &e) && e.Code == task.CodeNotFound && dir != "" && e.Hint == "" {
		e.Msg = "--dir " + quoted(dir) + ": " + e.Msg
		e.Hint = "it is a folder as the command sees it; the source stands at the path of your checkout, unless --at names another"
		return err
	}
	if !errors.As(err, &e) || len(argv) == 0 || e.Code != task.CodeNoCommand && e.Code != task.CodeNotExecutable {
		return err
	}
	name := argv[0]
	// In place: what err joins with it stays.
	e.Msg = quoted(name) + ": " + e.Msg
	switch {
	case e.Hint != "":
	case e.Code == task.CodeNotExecutable:
		e.Hint = "it needs the execute bit, and a script a first line such as #!/bin/sh; `sh FILE` runs one without"
	case len(argv) == 1 && strings.ContainsAny(name, " \t\n|;&<>$"):
		e.Hint = "the command is one word; for a shell's line: sh -c " + quoted(task.ShellWord(name))
	case strings.Contains(name, "/"):
		e.Hint = a.hintFile(name, dir)
	default:
		e.Hint = a.hintName(name, env, open)
	}
	return err
}

func quoted(name string) string {
	if len(name) > 200 {
		name = name[:200] + "…"
	}
	return clean(name)
}

// hintFile is for a program given as a path.
func (a *app) hintFile(name, dir string) string {
	path := name
	if !filepath.IsAbs(path) {
		if dir != "" || a.cfg.Dir == "" {
			return "a relative path starts from where the command does: --dir"
		}
		path = filepath.Join(a.cfg.Dir, path)
	}
	if !program(path) {
		return "there is no such program on this host either"
	}
	also := ""
	if line := shebang(path); line != "" {
		also = "; or " + clean(line) + ", which its first line names, is not there"
	}
	if !filepath.IsAbs(name) || a.inWorkspace(path) {
		return "it is in your checkout, but a task has what is committed at its base: commit it, or give a revision with --base" + also
	}
	return "it is on this host, but not visible inside: `--ro " + task.ShellWord(filepath.Dir(path)) + "` adds its folder, for reading" + also
}

// shebang returns the interpreter of a script, or "".
func shebang(path string) string {
	f, err := openNoWait(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	buf := make([]byte, 256)
	n, _ := f.Read(buf)
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	if words := strings.Fields(strings.TrimPrefix(line, "#!")); strings.HasPrefix(line, "#!") && len(words) > 0 {
		return words[0]
	}
	return ""
}

// hintName is for a program looked up on PATH.
func (a *app) hintName(name string, env []string, open bool) string {
	path, own := lookup(env, "PATH")
	if !own {
		path, _ = lookup(a.cfg.Env, "PATH")
	}
	if open && !own {
		where := "PATH inside an open task is the one of `caisson open`"
		if dir := onPath(name, path); dir != "" {
			return where + "; " + name + " is " + filepath.Join(dir, name) + " on this host: open the task with `" + roFlags(dir, name) + "` and have " + dir + " on PATH then"
		}
		return where + "; " + name + " is not on your PATH either"
	}
	if dir := onPath(name, path); dir != "" {
		return name + " is " + filepath.Join(dir, name) + " on this host, but not visible inside: `" + roFlags(dir, name) + "` adds it, for reading"
	}
	return "PATH inside is " + path + "\nsystem folders and the toolchains that your PATH leads to are there, read-only; " +
		"for others put their folder on PATH, or give `--ro DIR` and the full path"
}

// onPath returns the absolute folder of path that holds the program, or "".
func onPath(name, path string) string {
	for _, d := range filepath.SplitList(path) {
		if filepath.IsAbs(d) && program(filepath.Join(d, name)) {
			return filepath.Clean(d)
		}
	}
	return ""
}

// roFlags are the flags that make dir/name visible, and what it is a link to.
func roFlags(dir, name string) string {
	flags := "--ro " + task.ShellWord(dir)
	if real, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
		if home, err := filepath.EvalSymlinks(dir); err == nil && filepath.Dir(real) != home {
			flags += " --ro " + task.ShellWord(filepath.Dir(real))
		}
	}
	return flags
}

func program(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// inWorkspace reports whether path lies in the repository around the working folder.
func (a *app) inWorkspace(path string) bool {
	dirs := workspaceDirs(a.cfg.Dir, "")
	if len(dirs) == 0 {
		return false
	}
	top := dirs[len(dirs)-1]
	return path == top || strings.HasPrefix(path, top+string(filepath.Separator))
}
