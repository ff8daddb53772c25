package cli

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// page runs render with a writer that goes through a pager when standard
// output is a terminal. The pager starts with the first byte: what is told on
// standard error before stays above it, and nothing to show starts none. One
// that is missing, or that a person or a signal ends early, is no failure.
func (a *app) page(render func(io.Writer) error) error {
	argv := a.pagerCommand()
	if argv == nil {
		return render(a.stdout())
	}
	p := &pager{argv: argv, a: a}
	err := render(p)
	p.close()
	if p.cmd != nil && gone(err) {
		return nil
	}
	return err
}

// pager is a writer that starts its program when it is first written to.
type pager struct {
	a    *app
	argv []string
	cmd  *exec.Cmd
	w    *os.File
	out  io.Writer
}

func (p *pager) Write(b []byte) (int, error) {
	if p.out == nil {
		p.start()
	}
	return p.out.Write(b)
}

func (p *pager) start() {
	p.out = p.a.stdout()
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	defer r.Close()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, p.a.cfg.Stdout, p.a.cfg.Stderr
	// Its own settings stay outside: they name programs. The secure mode keeps
	// less from starting any.
	cmd.Env = []string{"LESSSECURE=1", "LESSHISTFILE=-", "LESS=FRX", "PATH=" + strings.Join(pagerDirs, ":")}
	for _, kv := range p.a.cfg.Env {
		k, _, _ := strings.Cut(kv, "=")
		if slices.Contains([]string{"TERM", "TERMINFO", "TERMINFO_DIRS", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES", "HOME"}, k) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	if err := cmd.Start(); err != nil {
		w.Close()
		return
	}
	p.cmd, p.w, p.out = cmd, w, w
}

func (p *pager) close() {
	if p.cmd == nil {
		return
	}
	p.w.Close()
	_ = p.cmd.Wait() // leaving it early is how people read; its status says nothing
}

// pagerCommand returns the pager and its arguments, or nil for none. The first
// of CAISSON_PAGER and PAGER that is set names it; empty or "cat" mean none,
// also of GIT_PAGER, which is not run otherwise. No configuration of a
// repository names one. It is a program and its options, run without a shell.
// A variable that a file of the workspace also defines could have come from
// there: CAISSON_PAGER is then refused with everything, PAGER is left aside,
// and so is a program that lies in the workspace.
func (a *app) pagerCommand() []string {
	if !a.ui.outTTY || a.noPager || a.json {
		return nil
	}
	dirs := workspaceDirs(a.cfg.Dir, "")
	tops := repositories(dirs)
	for _, n := range []string{"CAISSON_PAGER", "PAGER", "GIT_PAGER"} {
		v, ok := lookup(a.cfg.Env, n)
		switch v = strings.TrimSpace(v); {
		case !ok:
			continue
		case v == "" || v == "cat":
			return nil
		case n == "GIT_PAGER", n == "PAGER" && a.fromWorkspace(n, dirs):
			continue
		}
		words := strings.Fields(v)
		if strings.ContainsAny(v, "|&;<>()$`\"'\\*?[#~\n") {
			a.ui.note("%s is not a program with its options, so it is not run", n)
			continue
		}
		if p := pagerProgram(words[0], a.cfg.Env, tops); p != "" {
			return append([]string{p}, words[1:]...)
		}
		a.ui.note("the pager %q of %s was not found outside the workspace", words[0], n)
	}
	if p := pagerProgram("less", nil, nil); p != "" {
		return []string{p, "-FRX"}
	}
	return nil
}

// repositories returns those of the folders that are the top of one.
func repositories(dirs []string) []string {
	var out []string
	for _, d := range dirs {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			out = append(out, d)
		}
	}
	return out
}

// fromWorkspace reports whether a file of the workspace mentions a variable, or
// cannot be checked for it.
func (a *app) fromWorkspace(name string, dirs []string) bool {
	names := map[string]*regexp.Regexp{name: mention(name)}
	for _, dir := range dirs {
		for _, f := range envFiles(dir) {
			if checkEnvFile(f, names) != nil {
				return true
			}
		}
	}
	return false
}

// pagerDirs are looked at before PATH.
var pagerDirs = []string{"/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin", "/run/current-system/sw/bin"}

// pagerProgram finds a program by name in the system's folders, then in the
// absolute entries of PATH. Nothing below the workspace counts: an agent may
// have put it there.
func pagerProgram(name string, env, workspace []string) string {
	var tries []string
	switch {
	case filepath.IsAbs(name):
		tries = []string{name}
	case strings.Contains(name, "/"):
		return ""
	default:
		dirs := pagerDirs
		if p, ok := lookup(env, "PATH"); ok {
			dirs = append(slices.Clone(dirs), filepath.SplitList(p)...)
		}
		for _, d := range dirs {
			if filepath.IsAbs(d) {
				tries = append(tries, filepath.Join(d, name))
			}
		}
	}
	for _, p := range tries {
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			continue
		}
		fi, err := os.Stat(real)
		if err != nil || !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 || fi.Mode()&(fs.ModeSetuid|0o002) != 0 {
			continue
		}
		if !insideAny(workspace, p) && !insideAny(workspace, real) {
			return real
		}
	}
	return ""
}

// insideAny reports whether p is in one of the folders.
func insideAny(dirs []string, p string) bool {
	for _, d := range dirs {
		for _, d := range []string{d, resolved(d)} {
			if rel, err := filepath.Rel(d, p); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
				return true
			}
		}
	}
	return false
}

func resolved(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}
