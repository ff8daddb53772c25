package source

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/task"
)

// Told is what a repository said of itself when a task was decided. It is kept
// with the task and holds for as long as there is the task, whatever becomes of the
// repository, and whatever the task writes.
type Told struct {
	// Base are files of the base commit, Lying those of the checkout, by path.
	Base  map[string][]byte `json:"base"`
	Lying map[string][]byte `json:"lying"`
	// Digests are those of all files that were looked at, also of those whose
	// content is not kept: of the base, and of the checkout.
	Digests [2]map[string]string `json:"digests"`
	// Below: those below the top were looked for.
	Below bool `json:"below,omitempty"`
}

// Tell has t kept with the task that is made of r.
func (r *Repo) Tell(t *Told) { r.told.Store(t) }

// Told is what was kept of a task that is on record; nil where nothing was, and
// for a repository that was just looked at.
func (r *Repo) Told() *Told {
	if !r.reopened {
		return nil
	}
	return r.told.Load()
}

// keepTold writes what a repository said of itself to where no boundary reaches,
// and notes in the state that it is there.
func (ws Workspace) keepTold(s *state, r *Repo) error {
	for _, u := range r.remotes {
		s.Remotes = append(s.Remotes, withoutUser(u))
	}
	t := r.told.Load()
	if s.Told = t != nil && len(t.Digests[0])+len(t.Digests[1]) > 0; !s.Told {
		return nil
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(ws.shadow(), toldFile), b, 0o600)
}

// withoutUser takes a name and a password out of a URL: both may be a credential.
func withoutUser(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return raw
	}
	u.User = nil
	return u.String()
}

func (ws Workspace) recallTold(s *state, r *Repo) error {
	r.remotes = s.Remotes
	if !s.Told {
		return nil
	}
	t := &Told{}
	b, err := os.ReadFile(filepath.Join(ws.shadow(), toldFile))
	if err == nil {
		err = json.Unmarshal(b, t)
	}
	if err != nil {
		// Without it a task would be decided by less than it was.
		return task.Errorf(task.CodeSource, "source.told", "the record of what the repository of %s said of itself cannot be read: %v", ws.Task, err).
			WithHint("`caisson close %s` brings its work out; `caisson open` starts a new task", ws.Task)
	}
	r.told.Store(t)
	return nil
}
