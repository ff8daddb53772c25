package wire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/detect"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/version"
)

// scanned is what a scan found. A commit's files never change, so it holds for
// as long as the detectors are the same.
type scanned struct {
	Facts []task.Fact   `json:"facts"`
	Notes []detect.Note `json:"notes"`
}

// maxScans bounds how many are remembered.
const maxScans = 64

// detectors names the detectors of this program.
var detectors = sync.OnceValue(func() string {
	text, err := json.Marshal(detect.Detectors())
	exe := ""
	if path, perr := os.Executable(); perr == nil {
		if i, serr := os.Stat(path); serr == nil {
			exe = i.ModTime().String() // of builds that have no version of their own
		}
	}
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(append(text, version.String()+exe...))
	return hex.EncodeToString(sum[:8])
})

// scan looks at the files that a task starts with, or remembers what was found in
// that commit of that repository: another one can have objects that are not what
// they are called.
func (h *house) scan(ctx context.Context, r *source.Repo, files *source.Files) (scanned, error) {
	dir := filepath.Join(h.dirs.State, "scans")
	name := ""
	if base := r.Ref.Base; base != "" && strings.Trim(base, "0123456789abcdef") == "" {
		name = base + "-" + r.Where() + "-" + detectors() + ".json"
		var found scanned
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil && json.Unmarshal(data, &found) == nil {
			return found, nil
		}
	}
	facts, notes, err := detect.Scan(ctx, files)
	found := scanned{facts, notes}
	if err != nil || name == "" {
		return found, err
	}
	// It only saves time: what goes wrong with it is no fault of the task's.
	if data, err := json.Marshal(found); err == nil {
		sys.KeepIn(dir, name, data, maxScans)
	}
	return found, nil
}
