package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// page runs render with a writer that goes through a pager when standard
// output is a terminal. The pager is less and nothing else, in its secure mode:
// no variable and no file may choose a program here, because an agent's
// settings file could have set it. PAGER=cat or an empty PAGER turn it off.
func (a *app) page(render func(io.Writer) error) error {
	path, ok := a.pagerPath()
	if !ok {
		return render(a.cfg.Stdout)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return render(a.cfg.Stdout)
	}
	cmd := exec.Command(path, "-FRX")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, a.cfg.Stdout, a.cfg.Stderr
	cmd.Env = []string{"LESSSECURE=1", "LESSHISTFILE=-"}
	for _, kv := range a.cfg.Env {
		k, _, _ := strings.Cut(kv, "=")
		if slices.Contains([]string{"TERM", "TERMINFO", "TERMINFO_DIRS", "LANG", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES", "HOME"}, k) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	if err := cmd.Start(); err != nil {
		r.Close()
		w.Close()
		return render(a.cfg.Stdout)
	}
	r.Close()
	err = render(w)
	w.Close()
	_ = cmd.Wait() // leaving it early is how people read; its status says nothing
	if gone(err) {
		return nil
	}
	return err
}

func (a *app) pagerPath() (string, bool) {
	if !a.ui.outTTY || a.noPager || a.json {
		return "", false
	}
	for _, n := range []string{"GIT_PAGER", "PAGER"} {
		if v, ok := lookup(a.cfg.Env, n); ok && (v == "" || v == "cat") {
			return "", false
		}
	}
	for _, dir := range pagerDirs {
		p := filepath.Join(dir, "less")
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, true
		}
	}
	return "", false
}

// pagerDirs are looked at instead of PATH, which may lead into the workspace.
var pagerDirs = []string{"/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin", "/run/current-system/sw/bin"}
