package detect

import (
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// envrc reads what direnv runs.
func (s *scan) envrc(f *file) {
	s.found("HST-02", "repo-defined", "", f.path, 0, task.Certain)
	s.script(string(f.b), ".envrc", f.path, 1)
	s.dotenv(f)
}

// mise reads mise.toml, whose hooks, tasks and templates run.
func (s *scan) mise(f *file) {
	for i, l := range lines(f.b) {
		t := strings.TrimSpace(l)
		if strings.HasPrefix(t, "[hooks") || strings.HasPrefix(t, "[tasks") || strings.HasPrefix(t, "_.source") || strings.Contains(t, "exec(") || strings.HasPrefix(t, "_.file") {
			s.found("HST-02", "repo-defined", "", f.path, i+1, task.Certain)
		}
		if k, v, ok := strings.Cut(t, "="); ok && strings.TrimSpace(k) == "run" {
			s.script(strings.Trim(strings.TrimSpace(v), `"'`), "run", f.path, i+1)
		}
	}
}

// gitattributes finds what makes git start a program of the configuration.
func (s *scan) gitattributes(f *file) {
	for i, l := range lines(f.b) {
		for _, w := range strings.Fields(l) {
			key, name, ok := strings.Cut(w, "=")
			if ok && (key == "filter" || key == "merge" || key == "diff") && !plainDriver()[name] && !strings.HasPrefix(l, "#") {
				s.found("HST-04", "repo-defined", key+"="+name, f.path, i+1, task.Certain)
			}
		}
	}
}

// plainDriver are names that git itself knows and that start nothing.
var plainDriver = lazyWords(`union binary text ours ada bash bibtex cpp csharp css dts elixir fortran fountain golang html java kotlin markdown matlab objc pascal perl php python ruby rust scheme tex astextplain exif`)

func (s *scan) gitmodules(f *file) {
	for i, l := range lines(f.b) {
		if k, v, ok := strings.Cut(strings.TrimSpace(l), "="); ok {
			switch strings.TrimSpace(k) {
			case "url":
				s.found("HST-05", "read", moduleHost(strings.TrimSpace(v)), f.path, i+1, task.Certain)
			case "update":
				if strings.HasPrefix(strings.TrimSpace(v), "!") {
					s.found("HST-04", "repo-defined", "submodule update", f.path, i+1, task.Certain)
				}
			}
		}
	}
}

// moduleHost is the host of a submodule's address, or a word for it.
func moduleHost(v string) string {
	if h := urlHost(v); h != "" {
		return h
	}
	if _, rest, ok := strings.Cut(v, "@"); ok {
		h, _, _ := strings.Cut(rest, ":")
		return plainHost(h)
	}
	return "a repository beside this one"
}

// agentJSON reads a list of MCP servers.
func (s *scan) agentJSON(f *file) {
	n := s.json(f, "HST-06")
	if n == nil {
		return
	}
	for _, k := range []string{"mcpServers", "servers", "mcp", "context_servers"} {
		n.get(k).each(func(name string, v *node) {
			c := v.get("command")
			if c == nil {
				if u := v.get("url"); u != nil {
					s.found("EXT-01", "read", name+" at "+urlHost(u.str), f.path, u.line, task.Likely)
				}
				return
			}
			s.found("HST-06", "repo-defined", name, f.path, c.line, task.Certain)
			var ws []word
			for _, x := range append(c.scalars(), v.get("args").scalars()...) {
				ws = append(ws, word{x.str, true})
			}
			a := &analyser{}
			a.call(ws)
			s.effects(a, name, f.path, c.line)
			for _, e := range []string{"env", "environment"} {
				v.get(e).each(func(k string, x *node) { s.setting(k, x.str, f.path, x.line) })
			}
		})
	}
}

// agentSettings reads settings of an agent: hooks and servers start processes.
func (s *scan) agentSettings(f *file) {
	if !strings.HasSuffix(strings.ToLower(f.path), ".json") {
		for i, l := range lines(f.b) {
			t := strings.TrimSpace(l)
			if strings.HasPrefix(t, "[mcp_servers") || strings.HasPrefix(t, "notify") || strings.HasPrefix(t, "command") || strings.HasPrefix(t, "[hooks") {
				s.found("HST-06", "repo-defined", "", f.path, i+1, task.Certain)
			}
		}
		return
	}
	s.agentJSON(f)
	n, err := parseJSON(f.b)
	if err != nil {
		return // said by agentJSON
	}
	n.walk(func(key string, v *node) {
		switch key {
		case "hooks", "statusLine", "apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "otelHeadersHelper", "fileSuggestion", "toolDiscoveryCommand", "toolCallCommand":
			s.found("HST-06", "repo-defined", key, f.path, v.line, task.Certain)
		case "command":
			if v.kind == 's' {
				s.script(v.str, key, f.path, v.line)
			}
		case "enableAllProjectMcpServers", "bypassPermissions":
			s.found("HST-06", "repo-defined", key, f.path, v.line, task.Certain)
		}
	})
}

// vscode reads tasks, settings and launches of an editor.
func (s *scan) vscode(f *file) {
	n := s.json(f, "HST-07")
	if n == nil {
		return
	}
	n.walk(func(key string, v *node) {
		low := strings.ToLower(key)
		switch {
		case key == "runOn" && v.str == "folderOpen":
			s.found("HST-07", "repo-defined", "folderOpen", f.path, v.line, task.Certain)
		case key == "command" || key == "preLaunchTask" || key == "runtimeExecutable":
			s.found("HST-07", "repo-defined", key, f.path, v.line, task.Likely)
			if key == "command" && v.kind == 's' {
				s.script(v.str, key, f.path, v.line)
			}
		case strings.HasSuffix(low, "path") && strings.Contains(key, ".") && v.kind == 's' && v.str != "", strings.HasPrefix(key, "terminal.integrated.env"), strings.HasPrefix(key, "terminal.integrated.profiles"), key == "git.path", key == "task.allowAutomaticTasks":
			s.found("HST-07", "repo-defined", key, f.path, v.line, task.Likely)
		}
	})
}
