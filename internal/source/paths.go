package source

import (
	"path"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// LiteralPaths makes what a person typed into names in the source's tree:
// relative to its top, or absolute inside the checkout or the place that the
// source has in the boundary. The whole source is no limit at all.
func LiteralPaths(ref task.SourceRef, typed []string) ([]string, error) {
	var out []string
	for _, p := range typed {
		name := p
		if p == "" || strings.ContainsRune(p, 0) {
			return nil, task.Errorf(task.CodeUsage, "source.paths", "a path is empty or has a NUL").WithHint("leave the paths out to see everything")
		}
		if strings.HasPrefix(p, "/") {
			clean, inside := path.Clean(p), false
			for _, top := range []string{ref.Target, ref.Repo} {
				if rest, ok := strings.CutPrefix(clean, top); ok && top != "" && (rest == "" || rest[0] == '/' || top == "/") {
					name, inside = strings.TrimPrefix(rest, "/"), true
					break
				}
			}
			if !inside {
				return nil, task.Errorf(task.CodeUsage, "source.paths", "%s is outside the task's source", quote(p)).
					WithHint("paths are relative to the top of the source, or absolute inside %s", ref.Target)
			}
		}
		switch name = path.Clean(name); {
		case name == ".":
			return nil, nil
		case name == "..", strings.HasPrefix(name, "../"):
			return nil, task.Errorf(task.CodeUsage, "source.paths", "%s is outside the task's source", quote(p)).
				WithHint("paths are relative to the top of the source, not to the working directory")
		}
		out = append(out, name)
	}
	return out, nil
}

// Within reports whether a path of the tree is one of paths or below one; no
// paths are no limit.
func Within(paths []string, p string) bool {
	for _, d := range paths {
		if rest, ok := strings.CutPrefix(p, d); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return len(paths) == 0
}
