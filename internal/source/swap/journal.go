package swap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/sys"
)

// journal is the durable record of one job. It is written twice: before the
// staging folder is made, and before the first step.
type journal struct {
	Version  int    `json:"version"`
	Root     string `json:"root"`
	RootDev  uint64 `json:"root_dev"`
	RootIno  uint64 `json:"root_ino"`
	Stage    string `json:"stage"`
	StageDev uint64 `json:"stage_dev"`
	StageIno uint64 `json:"stage_ino"`
	Ready    bool   `json:"ready"` // steps may have begun
	Steps    []step `json:"steps"`
}

// step is a Step with what its staged file looks like. Its file in the staging
// folder has the number of the step as its name.
type step struct {
	Path     []byte `json:"path"` // any bytes
	Old      *Seen  `json:"old"`
	New      *Seen  `json:"new"`
	Optional bool   `json:"optional"`
}

const (
	journalFile = "journal.json"
	commitFile  = "committed"
	keptFolder  = "kept"
)

// maxJournal bounds what is read back.
const maxJournal = 2 << 30

func (j *journal) write(dir string) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return sys.WriteFile(filepath.Join(dir, journalFile), b, 0o600)
}

// readJournal returns nil when there is none.
func readJournal(dir string) (*journal, error) {
	path := filepath.Join(dir, journalFile)
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxJournal {
		return nil, fmt.Errorf("%s is not a journal", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var j journal
	if err := json.Unmarshal(b, &j); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	if j.Version != 1 || !filepath.IsAbs(j.Root) || !filepath.IsAbs(j.Stage) {
		return nil, fmt.Errorf("%s is not of this version", path)
	}
	for _, s := range j.Steps {
		if !Valid(string(s.Path)) || s.Old == nil && s.New == nil {
			return nil, fmt.Errorf("%s has a step that cannot be", path)
		}
	}
	return &j, nil
}

// drop ends the record: the journal first, then the mark, so that a mark alone
// says that there is nothing to do.
func drop(dir string) error {
	for _, name := range []string{journalFile, commitFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if name == journalFile {
			if err := sys.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	dropTemp(dir)
	// Stays when something is kept in it.
	_ = os.Remove(filepath.Join(dir, keptFolder))
	_ = os.Remove(dir)
	return nil
}

// dropTemp removes what a process left that was killed while it wrote a record.
func dropTemp(dir string) {
	names, _ := os.ReadDir(dir)
	for _, n := range names {
		for _, of := range []string{journalFile, commitFile} {
			if strings.HasPrefix(n.Name(), ".tmp-"+of+"-") {
				_ = os.Remove(filepath.Join(dir, n.Name()))
			}
		}
	}
}
