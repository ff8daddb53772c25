package source

import "github.com/caisson-dev/caisson/internal/source/tree"

// readBelow reads one file of an untrusted folder.
func readBelow(top, path string, max int64) ([]byte, error) {
	r, err := tree.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.ReadFile(path, max)
}
