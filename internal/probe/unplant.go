package probe

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Names of the files that Plant makes.
func sentinelFile(token string) string   { return "sentinel-" + token }
func sentinelSocket(token string) string { return "s-" + token + ".sock" }

// PlantToken returns the token in the name of a file that Plant makes.
func PlantToken(name string) (string, bool) {
	if t, ok := strings.CutPrefix(name, "sentinel-"); ok {
		return t, true
	}
	t, ok := strings.CutPrefix(name, "s-")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(t, ".sock")
}

// Unplant removes what a killed process planted in dir with this token. What
// is not there is no error.
func Unplant(dir, token string) error {
	for _, name := range []string{sentinelFile(token), sentinelSocket(token)} {
		path := filepath.Join(dir, name)
		// Looked at first: a read-only file system refuses to remove also what
		// is not there.
		if _, err := os.Lstat(path); os.IsNotExist(err) {
			continue
		}
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return task.Errorf(task.CodeStuck, "probe.unplant", "a sentinel could not be removed: %w", err)
		}
	}
	return nil
}
