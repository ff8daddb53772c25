package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/door/control"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Beside the socket of an open task that has a name lies a link to it, called by
// that name. It is a hint and nothing else: it belongs to the socket's record,
// and whoever follows it asks the supervisor whether it is the one that is meant.

// nameLink is the link for name, which may be any text.
func (h *house) nameLink(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(h.dirs.Runtime, hex.EncodeToString(sum[:16])+".name")
}

// name makes the link. One that is there is of a task that has the name no more.
func (h *house) name(id task.ID, name string) {
	if name == "" {
		return
	}
	link := h.nameLink(name)
	if to, err := os.Readlink(link); err == nil && to != string(id)+".sock" {
		_ = os.Remove(link)
	}
	_ = os.Symlink(string(id)+".sock", link)
}

// unname takes the link away while it leads to this task.
func (h *house) unname(id task.ID, name string) {
	if to, err := os.Readlink(h.nameLink(name)); err == nil && to == string(id)+".sock" {
		_ = os.Remove(h.nameLink(name))
	}
}

// near returns the client of the supervisor that ref seems to mean.
func (h *house) near(ref string) boundary.Remote {
	if sys.Writable(h.dirs.State) != nil {
		return nil // the inventory says what is wrong
	}
	id, ok := task.ParseID(ref)
	if !ok {
		to, err := os.Readlink(h.nameLink(ref))
		if err != nil {
			return nil
		}
		if id, ok = task.ParseID(strings.TrimSuffix(to, ".sock")); !ok {
			return nil
		}
	}
	return &control.Client{Path: h.socket(id), Task: id, Ref: ref, State: h.dirs.State}
}
