package detect

import (
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// makefile reads the recipes of a Makefile. Variables of make become variables
// of a shell: what they hold is not known.
func (s *scan) makefile(f *file) {
	s.found("SCR-02", "repo-defined", "", f.path, 0, task.Certain)
	target := ""
	for _, r := range recipes(f.b) {
		if r.target != "" {
			target = r.target
		}
		s.script(r.text, target, f.path, r.line)
	}
}

// recipe is one line of a recipe with those that continue it.
type recipe struct {
	target string
	text   string
	line   int
}

// recipes reads the lines of a Makefile that a shell would see.
func recipes(b []byte) []recipe {
	var out []recipe
	target := ""
	ls := lines(b)
	for i := 0; i < len(ls); i++ {
		l := ls[i]
		if !strings.HasPrefix(l, "\t") {
			if t := strings.TrimSpace(l); t != "" && t[0] != '#' {
				if j := strings.IndexByte(l, ':'); j > 0 && !strings.HasPrefix(l[j:], ":=") && !strings.HasPrefix(l[j:], "::=") {
					target = strings.TrimSpace(l[:j])
					if _, body, ok := strings.Cut(l[j:], ";"); ok {
						out = append(out, recipe{target, makeText(body), i + 1})
					}
				} else if _, body, ok := strings.Cut(l, "$(shell "); ok {
					out = append(out, recipe{"$(shell)", makeText(strings.TrimSuffix(strings.TrimSpace(body), ")")), i + 1})
				}
			}
			continue
		}
		start := i + 1
		text := l[1:]
		for strings.HasSuffix(text, `\`) && i+1 < len(ls) {
			i++
			text += "\n" + strings.TrimPrefix(ls[i], "\t")
		}
		if text = makeText(text); strings.TrimSpace(text) != "" && !strings.HasPrefix(strings.TrimSpace(text), "#") {
			out = append(out, recipe{target, text, start})
		}
	}
	return out
}

// makeText takes make's own signs off a line of a recipe.
func makeText(s string) string {
	s = strings.TrimLeft(s, " \t@-+")
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '$':
			b.WriteByte('$')
		case '(', '{':
			end := byte(')')
			if c == '{' {
				end = '}'
			}
			depth, j := 1, i+1
			for ; j < len(s) && depth > 0; j++ {
				switch s[j] {
				case c:
					depth++
				case end:
					depth--
				}
			}
			name := strings.Trim(s[i+1:max(j-1, i+1)], " ")
			// The usual names of programs keep what they stand for.
			switch name {
			case "MAKE":
				b.WriteString("make")
			case "GO", "NPM", "YARN", "PYTHON", "DOCKER", "KUBECTL", "HELM", "TERRAFORM", "CARGO", "CC", "CXX", "PIP", "PNPM", "DOCKER_COMPOSE":
				b.WriteString(strings.ToLower(strings.ReplaceAll(name, "_", "-")))
			default:
				b.WriteString("$MAKE_VARIABLE")
			}
			i = j - 1
		default:
			b.WriteString("$MAKE_VARIABLE")
		}
	}
	return b.String()
}

// justfile reads the recipes of a justfile.
func (s *scan) justfile(f *file) {
	s.found("SCR-02", "repo-defined", "", f.path, 0, task.Certain)
	target := ""
	ls := lines(f.b)
	for i := 0; i < len(ls); i++ {
		l := ls[i]
		t := strings.TrimSpace(l)
		if t == "" || t[0] == '#' && !strings.HasPrefix(t, "#!") {
			continue
		}
		if l[0] != ' ' && l[0] != '\t' {
			if j := strings.IndexByte(l, ':'); j > 0 && !strings.HasPrefix(l[j:], ":=") {
				target, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(l[:j]), "@"), " ")
			}
			continue
		}
		if strings.HasPrefix(t, "#!") {
			// A recipe in a language of its own; only a shell's is read.
			start, text := i+2, ""
			for i+1 < len(ls) && (ls[i+1] == "" || ls[i+1][0] == ' ' || ls[i+1][0] == '\t') {
				i++
				text += strings.TrimSpace(ls[i]) + "\n"
			}
			if strings.Contains(t, "sh") {
				s.script(unbrace(text), target, f.path, start)
			}
			continue
		}
		start := i + 1
		for strings.HasSuffix(t, `\`) && i+1 < len(ls) {
			i++
			t += "\n" + strings.TrimSpace(ls[i])
		}
		s.script(unbrace(strings.TrimLeft(t, "@-")), target, f.path, start)
	}
}

// unbrace puts a variable in the place of {{ … }}.
func unbrace(s string) string {
	for {
		i := strings.Index(s, "{{")
		if i < 0 {
			return s
		}
		j := strings.Index(s[i:], "}}")
		if j < 0 {
			return s
		}
		s = s[:i] + "$VALUE" + s[i+j+2:]
	}
}

// taskfile reads the commands of a Taskfile.
func (s *scan) taskfile(f *file) {
	s.found("SCR-02", "repo-defined", "", f.path, 0, task.Certain)
	for _, n := range s.yaml(f, "SCR-02") {
		n.get("tasks").each(func(name string, t *node) {
			for _, cmds := range []*node{t, t.get("cmds"), t.get("cmd")} {
				for _, c := range cmds.scalars() {
					s.script(unbrace(c.str), name, f.path, c.line)
				}
				cmds.each(func(_ string, c *node) {
					if x := c.get("cmd"); x != nil {
						s.script(unbrace(x.str), name, f.path, x.line)
					}
				})
			}
		})
	}
}

// procfile reads NAME: COMMAND.
func (s *scan) procfile(f *file) {
	for i, l := range lines(f.b) {
		name, cmd, ok := strings.Cut(l, ":")
		if !ok || strings.HasPrefix(strings.TrimSpace(l), "#") || strings.TrimSpace(cmd) == "" {
			continue
		}
		s.found("PRC-01", "yes", name, f.path, i+1, task.Certain)
		s.script(cmd, name, f.path, i+1)
	}
}

// hook reads a git hook that is a script of a shell.
func (s *scan) hook(f *file) {
	first, _, _ := strings.Cut(string(f.b), "\n")
	if !strings.HasPrefix(first, "#!") || strings.Contains(first, "sh") {
		s.script(string(f.b), f.path, f.path, 1)
	}
}
