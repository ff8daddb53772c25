package detect

import (
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/task"
)

// makefile reads the recipes of a Makefile. Variables of make become variables
// of a shell: what they hold is not known.
func (s *scan) makefile(f *file) {
	s.found("SCR-02", "repo-defined", "", f.path, 0, task.Certain)
	for _, r := range recipes(f.b) {
		s.script(r.text, r.target, f.path, r.line)
	}
}

// recipe is one line of a recipe with those that continue it.
type recipe struct {
	target string // the names before the colon
	needs  string // the names after it
	text   string // may be empty
	line   int
}

// recipes reads the lines of a Makefile that a shell would see.
func recipes(b []byte) []recipe {
	var out []recipe
	target := ""
	ls := lines(b)
	vars := makeVars{}
	for _, l := range ls {
		vars.note(l)
	}
	for i := 0; i < len(ls); i++ {
		l := ls[i]
		if !strings.HasPrefix(l, "\t") {
			if t := strings.TrimSpace(l); t != "" && t[0] != '#' {
				if j := strings.IndexByte(l, ':'); j > 0 && !strings.HasPrefix(l[j:], ":=") && !strings.HasPrefix(l[j:], "::=") && !strings.Contains(l[:j], "=") && t[0] != '$' {
					target = strings.TrimSpace(l[:j])
					needs, body, _ := strings.Cut(strings.TrimLeft(l[j:], ":"), ";")
					out = append(out, recipe{target, needs, vars.text(body), i + 1})
				} else if _, body, ok := strings.Cut(l, "$(shell "); ok {
					out = append(out, recipe{"$(shell)", "", vars.text(strings.TrimSuffix(strings.TrimSpace(body), ")")), i + 1})
				}
			}
			continue
		}
		start := i + 1
		text := ""
		text, i = continued(ls, i, "\t")
		if text = vars.text(strings.TrimPrefix(text, "\t")); strings.TrimSpace(text) != "" && !strings.HasPrefix(strings.TrimSpace(text), "#") {
			out = append(out, recipe{target, "", text, start})
		}
	}
	return out
}

// makeVars are variables that a Makefile sets by a line of its own. The
// environment or the command line may set them otherwise.
type makeVars map[string]string

// note takes NAME = VALUE, in make's several forms; of several the last counts.
func (v makeVars) note(l string) {
	if strings.HasPrefix(l, "\t") || len(l) > 4<<10 {
		return
	}
	name, value, ok := strings.Cut(l, "=")
	name = strings.TrimSpace(strings.TrimRight(strings.TrimSpace(name), ":?"))
	name = strings.TrimPrefix(strings.TrimPrefix(name, "export "), "override ")
	if ok && name != "" && !strings.ContainsAny(name, " \t$:+!#") && len(v) < 1000 {
		value, _, _ = strings.Cut(value, " #")
		v[name] = strings.TrimSpace(value)
	}
}

// usual are names of variables that a Makefile need not set for their meaning.
var usual = sync.OnceValue(func() map[string]string {
	return map[string]string{"MAKE": "make", "GO": "go", "NPM": "npm", "YARN": "yarn", "PNPM": "pnpm", "PYTHON": "python", "PIP": "pip", "DOCKER": "docker", "DOCKER_COMPOSE": "docker-compose", "KUBECTL": "kubectl", "HELM": "helm", "TERRAFORM": "terraform", "CARGO": "cargo", "CC": "cc", "CXX": "c++"}
})

// text takes make's own signs off a line of a recipe.
func (v makeVars) text(s string) string {
	var b strings.Builder
	v.expand(&b, strings.TrimLeft(s, " \t@-+"), 0)
	return b.String()
}

// expand writes s with the variables that are known in their place. What is not,
// and what grows too long, becomes a variable of the shell: not literal.
func (v makeVars) expand(b *strings.Builder, s string, depth int) {
	const other = "$MAKE_VARIABLE"
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 >= len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		c := s[i]
		if c == '$' {
			b.WriteByte('$')
			continue
		}
		if c != '(' && c != '{' {
			b.WriteString(other)
			continue
		}
		end := byte(')')
		if c == '{' {
			end = '}'
		}
		open, j := 1, i+1
		for ; j < len(s) && open > 0; j++ {
			switch s[j] {
			case c:
				open++
			case end:
				open--
			}
		}
		name := strings.Trim(s[i+1:max(j-1, i+1)], " ")
		i = j - 1
		function, _, _ := strings.Cut(name, " ")
		value, set := v[name]
		switch {
		case set && depth < 5 && b.Len() < 16<<10:
			v.expand(b, value, depth+1)
		case set:
			b.WriteString(other)
		case usual()[name] != "":
			b.WriteString(usual()[name])
		case function == "info" || function == "warning" || function == "error":
			b.WriteString(":") // make says it, and no shell
		default:
			b.WriteString(other)
		}
	}
}

// justfile reads the recipes of a justfile.
func (s *scan) justfile(f *file) {
	s.found("SCR-02", "repo-defined", "", f.path, 0, task.Certain)
	for _, r := range justRecipes(f.b) {
		s.script(r.text, r.target, f.path, r.line)
	}
}

func justRecipes(b []byte) []recipe {
	var out []recipe
	target := ""
	ls := lines(b)
	for i := 0; i < len(ls); i++ {
		l := ls[i]
		t := strings.TrimSpace(l)
		if t == "" || t[0] == '#' && !strings.HasPrefix(t, "#!") {
			continue
		}
		if l[0] != ' ' && l[0] != '\t' {
			if j := strings.IndexByte(l, ':'); j > 0 && !strings.HasPrefix(l[j:], ":=") {
				target, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(l[:j]), "@"), " ")
				out = append(out, recipe{target, strings.ReplaceAll(l[j+1:], "&&", " "), "", i + 1})
			}
			continue
		}
		start := i + 1
		if strings.HasPrefix(t, "#!") {
			// A recipe in a language of its own; only a shell's is read.
			var text strings.Builder
			for i+1 < len(ls) && (ls[i+1] == "" || ls[i+1][0] == ' ' || ls[i+1][0] == '\t') {
				i++
				text.WriteString(strings.TrimSpace(ls[i]) + "\n")
			}
			if strings.Contains(t, "sh") {
				out = append(out, recipe{target, "", unbrace(text.String()), start + 1})
			}
			continue
		}
		t, i = continued(ls, i, " \t")
		out = append(out, recipe{target, "", unbrace(strings.TrimLeft(strings.TrimSpace(t), "@-")), start})
	}
	return out
}

// continued joins line i with those that continue it and returns the last one's
// number; the blanks that they begin with are taken off.
func continued(ls []string, i int, blanks string) (string, int) {
	if !strings.HasSuffix(ls[i], `\`) {
		return ls[i], i
	}
	var b strings.Builder
	b.WriteString(ls[i])
	for strings.HasSuffix(ls[i], `\`) && i+1 < len(ls) {
		i++
		b.WriteByte('\n')
		b.WriteString(strings.TrimLeft(ls[i], blanks))
	}
	return b.String(), i
}

// unbrace puts a variable in the place of {{ … }}.
func unbrace(s string) string { return without(s, "{{", "}}") }

// without puts a variable in the place of what stands between two marks: a text
// that another program fills in before a shell sees it.
func without(s, from, to string) string {
	if !strings.Contains(s, from) {
		return s
	}
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, from)
		_, after, closed := strings.Cut(rest, to)
		if !ok || !closed {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(before)
		b.WriteString("$VALUE")
		s = after
	}
}

// taskfile reads the commands of a Taskfile.
func (s *scan) taskfile(f *file) {
	s.found("SCR-02", "repo-defined", "", f.path, 0, task.Certain)
	for _, n := range s.yaml(f, "SCR-02") {
		for _, r := range taskCommands(n) {
			s.script(r.text, r.target, f.path, r.line)
		}
	}
}

func taskRecipes(b []byte) (out []recipe) {
	if len(b) > maxYAML {
		return nil
	}
	docs, _ := parseYAML(b)
	for _, n := range docs {
		out = append(out, taskCommands(n)...)
	}
	return out
}

func taskCommands(n *node) (out []recipe) {
	n.get("tasks").each(func(name string, t *node) {
		needs := ""
		t.get("deps").each(func(_ string, d *node) { needs += " " + d.str + d.text("task") })
		out = append(out, recipe{name, needs, "", t.line})
		for _, cmds := range []*node{t, t.get("cmds"), t.get("cmd")} {
			for _, c := range cmds.scalars() {
				out = append(out, recipe{name, "", unbrace(c.str), c.line})
			}
			cmds.each(func(_ string, c *node) {
				if x := c.get("cmd"); x != nil {
					out = append(out, recipe{name, "", unbrace(x.str), x.line})
				}
				if x := c.get("task"); x != nil {
					out = append(out, recipe{name, x.str, "", x.line})
				}
			})
		}
	})
	return out
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
