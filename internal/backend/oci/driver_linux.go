package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Resource kinds.
const (
	kindBundle    = "oci-bundle"    // the folder with the bundle
	kindContainer = "oci-container" // what the runtime made; its name is the folder where the runtime keeps it
)

// prefix begins the name of everything that is made.
const prefix = "caisson-"

// destroyTimeout bounds a removal whose caller set no deadline.
const destroyTimeout = 30 * time.Second

// Driver makes boundaries with one runtime. Its methods may be called at once.
type Driver struct {
	name string
	cfg  Config
}

// New returns the driver of a name. It looks at nothing yet.
func New(name string, cfg Config) backend.Driver { return &Driver{name: name, cfg: cfg} }

// Name implements backend.Driver.
func (d *Driver) Name() string { return d.name }

// Key implements backend.Keyed: a runtime that was replaced proves itself anew.
func (d *Driver) Key() string {
	p, err := d.find()
	if err != nil {
		return ""
	}
	return p.key + " " + d.getenv(PlatformVariable) + " " + strconv.FormatBool(hybrid())
}

func (d *Driver) getenv(k string) string {
	if d.cfg.Getenv == nil {
		return ""
	}
	return d.cfg.Getenv(k)
}

// nameOf is the one name of a boundary's folder and control groups.
func nameOf(s backend.Spec) string {
	return prefix + s.Instance + "-" + string(s.Task) + "-" + s.Token[:8]
}

// idOf is the runtime's name of it. All have one length: gVisor takes the beginning of
// a name for the whole.
func idOf(token string) string { return token[:12] }

func (d *Driver) folderOf(name string) string { return filepath.Join(d.cfg.Dir, name) }

// stateOf is where the runtime keeps what it knows.
func (d *Driver) stateOf(token string) string { return filepath.Join(d.cfg.Run, "o-"+idOf(token)) }

// Resources implements backend.Driver.
func (d *Driver) Resources(s backend.Spec) []backend.Resource {
	return []backend.Resource{
		{Kind: kindBundle, Name: d.folderOf(nameOf(s)), Token: s.Token},
		{Kind: kindContainer, Name: d.stateOf(s.Token), Token: s.Token},
	}
}

// Attach implements backend.Driver.
func (d *Driver) Attach(_ context.Context, rs []backend.Resource) (backend.Instance, error) {
	in := &instance{driver: d, attached: true, resources: rs}
	there := false
	for _, r := range rs {
		if len(r.Token) < 16 || r.Kind != kindBundle && r.Kind != kindContainer {
			continue
		}
		_, err := os.Lstat(r.Name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, task.Errorf(task.CodeStuck, "oci.attach", "%w", err)
		}
		switch {
		case r.Kind == kindBundle:
			if _, terr := os.Lstat(filepath.Join(r.Name, foreign.TokenFile)); terr == nil && !foreign.Ours(r.Name, r.Token) {
				return nil, backend.ErrNotFound // a stranger's, and so is what runs from it
			}
			in.folder, in.token = r.Name, r.Token
			there = there || err == nil && (r.External != "" || foreign.Ours(r.Name, r.Token))
		case filepath.Base(r.Name) != filepath.Base(d.stateOf(r.Token)):
			// Its name has the token in it.
		default:
			in.state, in.token = r.Name, r.Token
			there = there || err == nil
			if id, ok := parseExternal(r.External); ok {
				in.ident = &id
				there = there || sys.Look(id) != sys.Dead
			}
		}
	}
	if !there && in.token != "" {
		there = len(groupsNamed(filepath.Base(in.folder))) > 0
	}
	if !there {
		return nil, backend.ErrNotFound
	}
	return in, nil
}

func formatExternal(id sys.Ident) string {
	return fmt.Sprintf("pid=%d start=%d boot=%s ns=%d", id.PID, id.Start, id.BootID, id.PIDNS)
}

func parseExternal(s string) (id sys.Ident, ok bool) {
	n, err := fmt.Sscanf(s, "pid=%d start=%d boot=%s ns=%d", &id.PID, &id.Start, &id.BootID, &id.PIDNS)
	return id, err == nil && n == 4
}

// List implements backend.Driver.
func (d *Driver) List(ctx context.Context, inst string) ([]backend.Resource, error) {
	d.sweepTrials(ctx) // no record knows them
	var out []backend.Resource
	entries, err := os.ReadDir(d.cfg.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, f := range entries {
		if !strings.HasPrefix(f.Name(), prefix+inst+"-") {
			continue
		}
		dir := d.folderOf(f.Name())
		if m, err := readMade(dir); err == nil && m.Backend != d.name {
			continue // another runtime's
		}
		out = append(out, backend.Resource{Kind: kindBundle, Name: dir, External: "folder"})
	}
	return out, nil
}

// made is what is written beside a bundle before the runtime is started: how it is
// ended by a process that knows no more than the folder.
type made struct {
	Backend string   `json:"backend"`
	Program string   `json:"program"`
	Args    []string `json:"args"` // before the runtime's command
	State   string   `json:"state"`
	ID      string   `json:"id"`
	Hide    bool     `json:"hide"`
}

const madeFile = "runtime.json"

func readMade(folder string) (*made, error) {
	b, err := os.ReadFile(filepath.Join(folder, madeFile))
	if err != nil {
		return nil, err
	}
	var m made
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	return &m, nil
}

func (m *made) write(folder string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, madeFile), b, 0o600)
}

var _ = sys.RegisterFaults("oci.folder", "oci.bundle", "oci.started", "oci.answered", "oci.ended", "oci.removed")
