package source

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// state is what Prepare leaves in the shadow repository for every later call.
// No boundary can reach it.
type state struct {
	Version   int           `json:"version"`
	Task      task.ID       `json:"task"`
	Repo      string        `json:"repo"`
	CommonDir string        `json:"common_dir"`
	Format    string        `json:"object_format"`
	Base      string        `json:"base"`
	Strategy  task.Strategy `json:"strategy"`
	// Start is the commit, and StartTree the tree, that the task's files began
	// as, where that is not the base: uncommitted state that was carried in, or
	// files that had no commit. StartTree may be set alone.
	Start     string           `json:"start,omitempty"`
	StartTree string           `json:"start_tree,omitempty"`
	Dirty     task.Dirty       `json:"dirty,omitempty"`
	Branch    string           `json:"branch"`
	History   task.History     `json:"history"`
	Pinned    bool             `json:"pinned"`
	Tips      []string         `json:"tips"`
	Refs      []Ref            `json:"refs"`
	Head      string           `json:"head"` // content of the task's HEAD
	Identity  task.GitIdentity `json:"identity"`
	// Entries of the tree with a changing time at or after this moment count
	// as changed; it is read from the file system's own clock.
	CutoffS int64  `json:"cutoff_s"`
	CutoffN uint32 `json:"cutoff_ns"`
	// What was put there for the task has a changing time at or after this
	// moment, by the same clock: what is older was changed after that clock had
	// been set back. Zero: not known.
	BegunS int64  `json:"begun_s,omitempty"`
	BegunN uint32 `json:"begun_ns,omitempty"`
	// Filled are submodules whose folders were given their files.
	Filled []string `json:"filled,omitempty"`
	// Trusted is what of the checkout's git directory host git trusts, as it was
	// at the start; for the strategy checkout alone.
	Trusted map[string]string `json:"trusted,omitempty"`
	// Remotes are the URLs of the repository's remotes, as they were then. Told:
	// what it said of itself is beside this, in toldFile.
	Remotes []string `json:"remotes,omitempty"`
	Told    bool     `json:"told,omitempty"`
}

const (
	stateFile = "caisson.json"
	toldFile  = "told.json"
	baseIndex = "base.index"
)

// loadState reads what Prepare left.
func (ws Workspace) loadState() (*state, error) {
	b, err := os.ReadFile(filepath.Join(ws.shadow(), stateFile))
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.state", "the source of %s was not prepared: %v", ws.Task, err)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil || s.Version != 1 || s.Task != ws.Task {
		return nil, task.Errorf(task.CodeSource, "source.state", "the record of the source of %s cannot be read", ws.Task)
	}
	return &s, nil
}

// saveState writes it durably.
func (ws Workspace) saveState(s *state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(ws.shadow(), stateFile), b, 0o600)
}

// emptyTree returns the name of the tree without entries.
func (s *state) emptyTree() string {
	if s.Format == "sha256" {
		return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
	}
	return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
}

// baseTree names what changes are compared with.
func (s *state) baseTree() string {
	if s.StartTree != "" {
		return s.StartTree
	}
	if s.Base == "" {
		return s.emptyTree()
	}
	return s.Base + "^{tree}"
}

// hasFiles reports whether there is a record of files that the task began with.
func (s *state) hasFiles() bool {
	return s.Base != "" || s.StartTree != "" && s.StartTree != s.emptyTree()
}

// startCommit is the parent of what is made of the task's files; empty: none.
func (s *state) startCommit() string {
	if s.Start != "" {
		return s.Start
	}
	return s.Base
}

// shadowCmd is a call on the shadow repository.
func (ws Workspace) shadowCmd(args ...string) git.Cmd {
	return git.Cmd{GitDir: ws.shadow(), Args: args}
}

// cutOff takes the moment after which everything is the task's from the clock
// of the file system that holds the files. It comes after last, the newest of
// what was put there: that clock moves in steps of some milliseconds.
func (ws Workspace) cutOff(s *state, last tree.Info) error {
	path := filepath.Join(ws.shadow(), "clock")
	defer os.Remove(path)
	for try := 0; ; try++ {
		if err := os.WriteFile(path, []byte{byte(try)}, 0o600); err != nil {
			return err
		}
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		m := st.ModTime()
		s.CutoffS, s.CutoffN = m.Unix(), uint32(m.Nanosecond()) //nolint:gosec // below 1e9
		if s.CutoffS > last.CtimeS || s.CutoffS == last.CtimeS && s.CutoffN > last.CtimeN || try == maxTicks {
			return nil // else the newest files are looked at once more
		}
		time.Sleep(time.Millisecond)
	}
}

// maxTicks bounds the wait for the next step of a file system's clock, in
// milliseconds.
const maxTicks = 20

// writeFile writes a new file, or replaces one, durably.
func writeFile(path string, b []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	tmp := f.Name()
	_, err = f.Write(b)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
