package source

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// config is the user's effective git configuration: what `git config` prints,
// with the scope each value comes from.
type config struct {
	last  map[string]string // key → last value
	user  map[string]string // key → last value outside the repository
	local map[string]bool   // keys the repository itself sets
	safe  []string          // safe.directory, outside the repository
}

// userEnv picks what decides how git reads the user's configuration.
func userEnv(env []string) []string {
	out := []string{}
	for _, kv := range env {
		switch k, _, _ := strings.Cut(kv, "="); k {
		case "HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM":
			out = append(out, kv)
		}
	}
	return out
}

func envValue(env []string, key string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], key+"="); ok {
			return v
		}
	}
	return ""
}

// configTime bounds the reading of a configuration: an include may name a FIFO.
var configTime = time.Minute

// readConfig asks git for the configuration. `git config --list` starts no
// program, whatever is configured.
func readConfig(ctx context.Context, g *git.Git, gitDir string, env []string) (*config, error) {
	out, err := g.Run(ctx, git.Cmd{
		GitDir: gitDir, UserConfig: userEnv(env), Max: 8 << 20,
		Timeout: configTime,
		Args:    []string{"config", "--list", "--includes", "--show-scope", "-z"},
	})
	if task.CodeOf(err) == task.CodeLimit {
		return nil, broken("see what `git config --list --show-origin` waits for in "+quote(gitDir), "the configuration cannot be read: %v", err)
	}
	if err != nil {
		return nil, err
	}
	return parseConfig(out)
}

// parseConfig reads scope NUL key LF value NUL records.
func parseConfig(out []byte) (*config, error) {
	c := &config{last: map[string]string{}, user: map[string]string{}, local: map[string]bool{}}
	recs, ok := git.SplitZ(out)
	if !ok || len(recs)%2 != 0 {
		return nil, task.Errorf(task.CodeSource, "source.config", "git's configuration listing cannot be read")
	}
	for i := 0; i < len(recs); i += 2 {
		scope, kv := recs[i], recs[i+1]
		if scope == "command" {
			continue // ours
		}
		k, v, has := strings.Cut(kv, "\n")
		if !has {
			v = "true"
		}
		inRepo := scope == "local" || scope == "worktree"
		if k == "safe.directory" {
			if inRepo {
				continue
			}
			if v == "" {
				c.safe = nil
			} else {
				c.safe = append(c.safe, v)
			}
			continue
		}
		c.last[k] = v
		if inRepo {
			c.local[k] = true
		} else {
			c.user[k] = v
		}
	}
	return c, nil
}

// truth reads a boolean as git does.
func truth(v string) bool {
	switch strings.ToLower(v) {
	case "true", "yes", "on":
		return true
	case "", "false", "no", "off":
		return false
	}
	n, err := strconv.Atoi(v)
	return err == nil && n != 0
}

// trusts reports whether the user declared a repository of somebody else safe.
func (c *config) trusts(dir string, home string) bool {
	for _, s := range c.safe {
		if rest, ok := strings.CutPrefix(s, "~/"); ok {
			s = home + "/" + rest
		}
		if s == "*" || s == dir || strings.HasSuffix(s, "/*") && strings.HasPrefix(dir, strings.TrimSuffix(s, "*")) {
			return true
		}
	}
	return false
}

// defaultIdentity is used where the user has none, so that a commit inside
// always works.
var defaultIdentity = task.GitIdentity{Name: "caisson", Email: "caisson@localhost"}

// identity resolves name and address as the user's own git would.
func (c *config) identity(env []string) task.GitIdentity {
	first := func(vs ...string) string {
		for _, v := range vs {
			// Characters that would end the field in a commit object.
			v = strings.TrimSpace(strings.NewReplacer("\n", " ", "\r", " ", "<", "", ">", "", "\x00", "").Replace(v))
			if v != "" {
				return v
			}
		}
		return ""
	}
	id := task.GitIdentity{
		Name:  first(envValue(env, "GIT_AUTHOR_NAME"), c.last["author.name"], c.last["user.name"]),
		Email: first(envValue(env, "GIT_AUTHOR_EMAIL"), c.last["author.email"], c.last["user.email"], envValue(env, "EMAIL")),
	}
	if id.Name == "" || id.Email == "" {
		return defaultIdentity
	}
	return id
}

// excludes returns the text of the user's own ignore rules: the repository's
// info/exclude and core.excludesFile. The text goes into the task, so the
// repository must not choose the file: a planted one would name ~/.ssh/id_rsa.
func (c *config) excludes(common string, env []string) []byte {
	var out []byte
	add := func(b []byte, err error) {
		if err == nil && len(b) > 0 {
			out = append(append(out, b...), '\n')
		}
	}
	home := envValue(env, "HOME")
	global, set := c.user["core.excludesfile"]
	switch {
	case set && strings.HasPrefix(global, "~/") && home != "":
		global = home + global[1:]
	case set:
	case envValue(env, "XDG_CONFIG_HOME") != "":
		global = envValue(env, "XDG_CONFIG_HOME") + "/git/ignore"
	case home != "":
		global = home + "/.config/git/ignore"
	}
	if strings.HasPrefix(global, "/") {
		add(readLimited(global, 1<<20))
	}
	add(readWithin(common, "info/exclude", 1<<20)) // the later rule wins, as in git
	return out
}

// readWithin reads a file of a git directory. A link that leads out of it is
// refused: what is read here goes into the task.
func readWithin(dir, name string, max int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	st, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > max {
		return nil, task.Errorf(task.CodeSource, "source.read", "%s is not a regular file of at most %d bytes", quote(name), max)
	}
	return root.ReadFile(name)
}

// readLimited reads a regular file of at most max bytes.
func readLimited(p string, max int64) ([]byte, error) {
	st, err := os.Stat(p)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > max {
		return nil, task.Errorf(task.CodeSource, "source.read", "%s is not a regular file of at most %d bytes", quote(p), max)
	}
	return os.ReadFile(p)
}

// conversions are the settings by which git writes line ends in a checkout.
func (c *config) conversions() (out [][2]string) {
	for _, k := range []string{"core.autocrlf", "core.eol"} {
		if v, ok := c.last[k]; ok {
			out = append(out, [2]string{k, v})
		}
	}
	return out
}
