package git

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/sys"
)

// RememberIn has Find keep what it found in a file in dir, a folder that is
// private to the user, so that the next process need not start git to ask for
// its version. Empty, which is the default: nothing is kept.
func RememberIn(dir string) {
	found.mu.Lock()
	defer found.mu.Unlock()
	found.file = ""
	if dir != "" {
		found.file = filepath.Join(dir, "git.json")
	}
}

// remembered is a git whose version was asked for, and the file that answered.
type remembered struct {
	Path    string `json:"path"`
	Version [3]int `json:"version"`
	Ident   string `json:"ident"`
}

// recall returns the version of the git at path when exactly this file told it
// before.
func recall(file, path string) (v [3]int, ok bool) {
	id := programIdent(path)
	if file == "" || id == "" {
		return v, false
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return v, false
	}
	var r remembered
	if json.Unmarshal(b, &r) != nil || r.Path != path || r.Ident != id {
		return v, false
	}
	return r.Version, true
}

// retain keeps an answer. Only speed is lost when it cannot.
func retain(file, path string, v [3]int) {
	id := programIdent(path)
	if file == "" || id == "" || isScript(path) {
		return // what a script starts may change without it
	}
	b, err := json.Marshal(remembered{path, v, id})
	if err != nil {
		return
	}
	_ = sys.Keep(file, b)
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	var head [2]byte
	_, err = io.ReadFull(f, head[:])
	return err != nil || string(head[:]) == "#!"
}
