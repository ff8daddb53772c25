package source

import (
	"context"
	"path/filepath"
	"strings"
)

// Namespaces lists what stands directly below refs/caisson/ in a repository,
// sorted: the ids of the tasks that left something there, and whatever else
// somebody put in their place. A repository that is gone has none.
func Namespaces(ctx context.Context, commonDir string) ([]string, error) {
	if commonDir == "" || !exists(filepath.Join(commonDir, "objects")) {
		return nil, nil
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	refs, err := listUserRefs(ctx, g, commonDir, "refs/caisson/", false)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range refs {
		n, _, _ := strings.Cut(strings.TrimPrefix(r.Name, "refs/caisson/"), "/")
		if len(out) == 0 || out[len(out)-1] != n {
			out = append(out, n)
		}
	}
	return out, nil
}
