package boundary

import (
	"os"
	"path/filepath"
	"strings"
)

// startDir is where a command starts inside when nobody said: the folder of the
// source that corresponds to the caller's own, as far as the task has it, so
// that a command typed in a subfolder finds what it would find there.
func startDir(l *live, from string) string {
	top := l.spec.Source.Target
	if l.checkout == "" || from == "" {
		return top
	}
	if real, err := filepath.EvalSymlinks(from); err == nil {
		from = real
	}
	rel, err := filepath.Rel(l.checkout, from)
	if err != nil || rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
		return top
	}
	// The task may have moved anything by now: a root that nothing leads out of.
	root, err := os.OpenRoot(l.spec.Source.Source)
	if err != nil {
		return top
	}
	defer root.Close()
	if i, err := root.Lstat(rel); err != nil || !i.IsDir() {
		return top
	}
	return filepath.Join(top, rel)
}
