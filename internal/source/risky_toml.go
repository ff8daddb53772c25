package source

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// plainSections are those of pyproject.toml that name nothing to run or fetch.
// Every other one counts.
var plainSections = []string{"tool.black", "tool.isort", "tool.ruff", "tool.pyright", "tool.basedpyright", "tool.codespell", "tool.typos", "tool.pyproject-fmt", "tool.docformatter", "tool.yapf", "project.urls", "project.license", "project.readme"}

// plainProject are the keys of [project] that name nothing to run or fetch.
var plainProject = []string{"name", "version", "description", "readme", "requires-python", "license", "license-files", "authors", "maintainers", "keywords", "classifiers", "urls"}

// lookPyproject compares the sections that count.
func lookPyproject(before, after []byte) string {
	is, ok := tomlSections(after)
	if !ok {
		return "it has a form that is not examined, so all of it counts as changed"
	}
	was, ok := tomlSections(before)
	if !ok {
		return "what it was before has a form that is not examined, so all of it counts as changed"
	}
	var names []string
	for _, n := range slices.Sorted(maps.Keys(merged(was, is))) {
		if was[n] != is[n] {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "it changes what a package manager or tool runs or fetches: " + shortList(names)
}

// tomlSections returns the text of every section that counts, without comments
// and blank lines; a key of [project] is a section of its own. It understands
// as much of TOML as tells a header from the inside of a text; anything odd is
// refused, and the caller then counts all of it as changed.
func tomlSections(b []byte) (map[string]string, bool) {
	out := map[string]string{}
	section, key := "", ""
	open := "" // the quotes that end a text over several lines
	depth := 0 // of brackets of a value over several lines
	for raw := range bytes.Lines(b) {
		line := strings.TrimRight(string(raw), "\r\n")
		trimmed := strings.TrimSpace(line)
		if open == "" && depth == 0 {
			switch {
			case trimmed == "" || trimmed[0] == '#':
				continue
			case trimmed[0] == '[':
				name, ok := tomlHeader(trimmed)
				if !ok {
					return nil, false
				}
				section, key = name, ""
				continue
			}
			k, _, ok := strings.Cut(trimmed, "=")
			if key = strings.TrimSpace(k); !ok || !plainKey(key) {
				return nil, false
			}
		}
		text, nextOpen, nextDepth, ok := tomlLine(line, open, depth)
		if !ok {
			return nil, false
		}
		open, depth = nextOpen, nextDepth
		if name := tomlPlace(section, key); name != "" && strings.TrimSpace(text) != "" {
			out[name] += strings.TrimSpace(text) + "\n"
		}
	}
	return out, open == "" && depth == 0
}

// tomlPlace names the section a key belongs to; empty: it does not count.
func tomlPlace(section, key string) string {
	full := key
	if section != "" {
		full = section + "." + key
	}
	for _, p := range plainSections {
		if strings.HasPrefix(full, p+".") || full == p {
			return ""
		}
	}
	rest, inProject := strings.CutPrefix(full, "project.")
	if inProject {
		first, _, _ := strings.Cut(rest, ".")
		if slices.Contains(plainProject, first) {
			return ""
		}
		return "project." + first
	}
	if section == "" {
		return key
	}
	return section
}

// tomlHeader reads [a.b] or [[a.b]].
func tomlHeader(s string) (string, bool) {
	s, _, _ = strings.Cut(s, "#")
	s = strings.TrimSpace(s)
	double := strings.HasPrefix(s, "[[")
	if double {
		s = strings.TrimPrefix(s, "[")
		if !strings.HasSuffix(s, "]]") {
			return "", false
		}
		s = strings.TrimSuffix(s, "]")
	}
	if len(s) < 3 || s[0] != '[' || s[len(s)-1] != ']' {
		return "", false
	}
	var parts []string
	for _, p := range strings.Split(s[1:len(s)-1], ".") {
		if p = strings.TrimSpace(p); p == "" || !plainKey(p) {
			return "", false
		}
		parts = append(parts, strings.Trim(p, `"'`))
	}
	return strings.Join(parts, "."), true
}

// plainKey reports whether a key needs no parser: letters, digits, dashes,
// dots, and quotes around such.
func plainKey(s string) bool {
	if s == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_. \"'*/@:", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// tomlLine goes over one line and returns it without a comment, with the state
// in which the next one begins.
func tomlLine(s, open string, depth int) (text, nextOpen string, nextDepth int, ok bool) {
	for i := 0; i < len(s); {
		if open != "" {
			switch {
			case strings.HasPrefix(s[i:], open):
				i += len(open)
				open = ""
			case open[0] == '"' && s[i] == '\\':
				i += 2
			default:
				i++
			}
			continue
		}
		switch c := s[i]; {
		case strings.HasPrefix(s[i:], `"""`), strings.HasPrefix(s[i:], "'''"):
			open = s[i : i+3]
			i += 3
		case c == '"', c == '\'':
			open = s[i : i+1]
			i++
		case c == '#':
			return s[:i], "", depth, true
		case c == '[', c == '{':
			depth++
			i++
		case c == ']', c == '}':
			depth--
			i++
		default:
			i++
		}
		if depth < 0 || depth > maxJSONDepth {
			return "", "", 0, false
		}
	}
	// A text in single quotes ends with its line.
	if len(open) == 1 {
		return "", "", 0, false
	}
	return s, open, depth, true
}
