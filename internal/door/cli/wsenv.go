package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/caisson-dev/caisson/internal/task"
)

// maxEnvFile is how much of a workspace file is looked at; a longer one cannot
// be judged and counts as defining everything.
const maxEnvFile = 1 << 20

// settingsFiles are files in which agents and editors keep variables for the
// programs they start.
var settingsFiles = []string{
	".claude/settings.json", ".claude/settings.local.json", ".codex/config.toml", ".codex/.env", ".gemini/settings.json", ".gemini/.env",
	".cursor/settings.json", ".cursor/mcp.json", ".mcp.json", ".vscode/settings.json", ".vscode/.env", ".opencode/opencode.json", "opencode.json",
	"mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", ".tool-env", ".devcontainer/devcontainer.json", ".devcontainer.json",
}

// checkWorkspaceEnv refuses a CAISSON_* variable that a file of the workspace
// also defines. Whoever wrote the repository could otherwise have set it, by a
// tool that loads such files into the environment (direnv, editors, agents).
// The value does not matter: equal today is no proof for tomorrow.
func (a *app) checkWorkspaceEnv(repo string) error {
	names := map[string]*regexp.Regexp{}
	engine := asksEngine(a.cfg.Args, a.cfg.Env)
	for _, kv := range a.cfg.Env {
		k, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(k, "CAISSON_"):
			// Any mention counts: .envrc is a program, and the other files have many
			// forms. A false alarm costs a line in a file, a miss costs the boundary.
			names[k] = mention(k)
		case slices.Contains(placing, k), engine && slices.Contains(engineNaming, k):
			names[k] = assignment(k)
		}
	}
	if len(names) == 0 {
		return nil
	}
	for _, dir := range workspaceDirs(a.cfg.Dir, repo) {
		for _, f := range envFiles(dir) {
			if err := checkEnvFile(f, names); err != nil {
				return err
			}
		}
	}
	return nil
}

// placing are the variables that say where policy and state are found. They are
// used in such files for many things, so only setting one counts.
var placing = []string{"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"}

// engineNaming are the variables that say which engine makes a boundary. Many a
// repository sets one for its own use: it counts where an engine is asked for.
var engineNaming = []string{"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST"}

// asksEngine says whether a command line or the environment names a backend that
// is an engine.
func asksEngine(args, env []string) bool {
	names := func(v string) bool { return v == "docker" || v == "podman" }
	if v, _ := lookup(env, "CAISSON_BACKEND"); names(v) {
		return true
	}
	for i, a := range args {
		if a == "--" {
			break
		}
		v, joined := strings.CutPrefix(a, "--backend=")
		if !joined && a == "--backend" && i+1 < len(args) {
			v = args[i+1]
		}
		if names(v) {
			return true
		}
	}
	return false
}

// assignment matches a text that sets a variable: NAME=, "NAME": and NAME: at the
// beginning of a line or of a word.
func assignment(name string) *regexp.Regexp {
	n := regexp.QuoteMeta(name)
	return regexp.MustCompile(`(?m)(^|[\s;&|({,"'])` + n + `["']?\s*(=|:\s|:$|\+=)`)
}

// mention matches a text that has the name of a variable.
func mention(name string) *regexp.Regexp {
	return regexp.MustCompile(`(^|[^A-Za-z0-9_])` + regexp.QuoteMeta(name) + `([^A-Za-z0-9_]|$)`)
}

func checkEnvFile(path string, names map[string]*regexp.Regexp) error {
	data, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, errNotRegular) {
		return nil // a folder or a pipe defines nothing that can be read twice; nothing lies below an archive that --repo names
	}
	sorted := make([]string, 0, len(names))
	for n := range names {
		sorted = append(sorted, n)
	}
	sort.Strings(sorted)
	for _, n := range sorted {
		switch {
		case err != nil:
			return task.Errorf(task.CodeDenied, "cli.environment", "%s is set, and %s cannot be checked for it: %v", n, path, err).
				WithHint("unset %s, or make the file readable and shorter than %d KiB", n, maxEnvFile>>10)
		case names[n].Match(data):
			return task.Errorf(task.CodeDenied, "cli.environment", "%s is set, and the workspace file %s also defines it: it cannot be told from your own", n, path).
				WithHint("take %s out of %s, or run `env -u %s caisson …` and say it by flag", n, path, n)
		}
	}
	return nil
}

var errNotRegular = errors.New("not a regular file")

func readBounded(path string) ([]byte, error) {
	// Looked at before it is opened: opening a pipe or a device of the workspace may block or act.
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := openNoWait(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err = f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err == nil && len(data) > maxEnvFile {
		err = fmt.Errorf("longer than %d KiB", maxEnvFile>>10)
	}
	return data, err
}

// under names a path that a person typed, from the folder dir; empty stays so.
func under(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// workspaceDirs returns the folders from the working directory and from --repo
// up to the top of their repository.
func workspaceDirs(dir, repo string) []string {
	var out []string
	seen := map[string]bool{}
	starts := []string{dir}
	if repo != "" {
		starts = append(starts, under(dir, repo))
	}
	for _, start := range starts {
		if start == "" {
			continue
		}
		chain := []string{start}
		for d := start; ; d = filepath.Dir(d) {
			if d != start {
				chain = append(chain, d)
			}
			if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
				break // the top
			}
			if d == filepath.Dir(d) {
				chain = chain[:1] // no repository: the folder alone
				break
			}
		}
		for _, d := range chain {
			if !seen[d] {
				seen[d] = true
				out = append(out, d)
			}
		}
	}
	return out
}

func envFiles(dir string) []string {
	out := []string{filepath.Join(dir, ".envrc")}
	entries, _ := os.ReadDir(dir) // an unreadable folder is the engine's to report
	for _, e := range entries {
		if n := e.Name(); n == ".env" || strings.HasPrefix(n, ".env.") {
			out = append(out, filepath.Join(dir, n))
		}
	}
	for _, f := range settingsFiles {
		out = append(out, filepath.Join(dir, filepath.FromSlash(f)))
	}
	return out
}
