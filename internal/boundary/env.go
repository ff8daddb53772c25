package boundary

import (
	"maps"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/task"
)

// passed names the variables that reach a boundary from the environment of the
// person's shell. Everything else is dropped: an allow-list, because a list of
// what is secret is never complete.
var passed = map[string]bool{
	"LANG": true, "LANGUAGE": true, "TZ": true, "TERM": true, "COLORTERM": true,
	"NO_COLOR": true, "FORCE_COLOR": true, "CLICOLOR": true, "CI": true,
	"COLUMNS": false, "LINES": false, // the pty knows better
}

// setByUs cannot be overridden with --env: programs inside, and caisson, rely on it.
var setByUs = map[string]bool{"HOME": true, "CAISSON_TASK": true}

// environment returns what programs inside start with, sorted, and the grants
// that explain what a person added. host is the person's environment, K=V; more
// is what else programs need, unless a person sets it.
func environment(req task.Request, id task.ID, who task.Identity, host []string, more map[string]string) ([]string, []task.Grant, error) {
	out := map[string]string{
		"HOME": who.Home, "USER": who.Login, "LOGNAME": who.Login, "TMPDIR": "/tmp",
		"CAISSON_TASK": string(id), "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SHELL": "/bin/sh",
	}
	maps.Copy(out, more)
	have := map[string]string{}
	for _, kv := range host {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			continue
		}
		have[k] = v
		if passed[k] || strings.HasPrefix(k, "LC_") {
			out[k] = v
		}
	}
	if p := cleanPath(have["PATH"], have["HOME"]); p != "" {
		out["PATH"] = p
	}
	if s := have["SHELL"]; strings.HasPrefix(s, "/bin/") || strings.HasPrefix(s, "/usr/bin/") {
		out["SHELL"] = s
	}
	var grants []task.Grant
	for _, kv := range req.Env {
		k, v, ok := strings.Cut(kv, "=")
		if !validName(k) {
			return nil, nil, task.Errorf(task.CodeUsage, "env", "--env %q: not the name of a variable", k).
				WithHint("--env NAME=VALUE sets one, --env NAME passes the value of your shell")
		}
		if setByUs[k] {
			return nil, nil, task.Errorf(task.CodeDenied, "env", "--env %s: caisson sets this variable itself", k).
				WithHint("choose another name")
		}
		if !ok {
			if v, ok = have[k]; !ok {
				return nil, nil, task.Errorf(task.CodeUsage, "env", "--env %s: your environment has no such variable", k).
					WithHint("write --env %s=VALUE to set it", k)
			}
		}
		if strings.ContainsRune(v, 0) {
			return nil, nil, task.Errorf(task.CodeUsage, "env", "--env %s: a value cannot hold a NUL byte", k)
		}
		out[k] = v
		grants = append(grants, task.Grant{Kind: "env", Value: k, Source: "flag"})
	}
	env := make([]string, 0, len(out))
	for k, v := range out {
		env = append(env, k+"="+v)
	}
	sort.Strings(env)
	return env, grants, nil
}

func validName(k string) bool {
	if k == "" {
		return false
	}
	for i, c := range k {
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// cleanPath keeps the absolute entries of PATH, once each. An empty or relative
// entry means the working directory, which inside is the task's own content. One
// among credentials of the home is left out: an agent client puts programs for its
// own use there, and would have the folder shown inside.
func cleanPath(p, home string) string {
	var out []string
	seen := map[string]bool{}
	for _, d := range strings.Split(p, ":") {
		if strings.HasPrefix(d, "/") && !seen[d] && !probe.InSecretPlace(home, d) {
			seen[d] = true
			out = append(out, d)
		}
	}
	return strings.Join(out, ":")
}
