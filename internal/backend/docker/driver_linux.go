package docker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Resource kinds.
const (
	kindContainer = "container"
	kindFolder    = "engine-folder" // what is generated for a container's root
)

// Labels of every container. The token is the proof that it is ours.
const (
	labelInstance = "caisson.instance"
	labelTask     = "caisson.task"
	labelToken    = "caisson.token"
	labelOwner    = "caisson.owner"
	labelBoot     = "caisson.boot"
)

// prefix begins the name of everything that is made.
const prefix = "caisson-"

// destroyTimeout bounds a removal whose caller set no deadline.
const destroyTimeout = 30 * time.Second

// Driver makes boundaries with one engine. Its methods may be called at once.
type Driver struct {
	name string
	cfg  Config

	mu   sync.Mutex
	last *engine // nil: not connected yet
	info *known
}

// known is what an engine said of itself.
type known struct {
	version *versionInfo
	system  *systemInfo
}

// New returns the driver of a name, Docker or Podman. It looks at nothing yet.
func New(name string, cfg Config) backend.Driver { return &Driver{name: name, cfg: cfg} }

// Name implements backend.Driver.
func (d *Driver) Name() string { return d.name }

// Key implements backend.Keyed: an engine that was started anew has another socket.
func (d *Driver) Key() string {
	at, _, err := find(d.name, d.getenv)
	if err != nil {
		return ""
	}
	p, err := at.socket()
	if err != nil {
		return ""
	}
	var st syscall.Stat_t
	if syscall.Stat(p, &st) != nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d %d.%d", at, st.Dev, st.Ino, st.Ctim.Sec, st.Ctim.Nsec)
}

func (d *Driver) getenv(k string) string {
	if d.cfg.Getenv == nil {
		return ""
	}
	return d.cfg.Getenv(k)
}

// engine connects to the person's engine, once.
func (d *Driver) engine(ctx context.Context) (*engine, *known, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil {
		return d.last, d.info, nil
	}
	at, _, err := find(d.name, d.getenv)
	if err != nil {
		return nil, nil, err
	}
	e, k, err := d.ask(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	d.last, d.info = e, k
	return e, k, nil
}

func (d *Driver) ask(ctx context.Context, at endpoint) (*engine, *known, error) {
	if _, err := at.socket(); err != nil {
		return nil, nil, err
	}
	e, v, err := connect(ctx, at)
	if err != nil {
		return nil, nil, d.noAnswer(at, err)
	}
	ctx, done := context.WithTimeout(ctx, answerTime)
	defer done()
	var i systemInfo
	if err := e.call(ctx, http.MethodGet, "/info", nil, nil, &i); err != nil {
		return nil, nil, d.noAnswer(at, err)
	}
	return e, &known{version: v, system: &i}, nil
}

// noAnswer says what to do where an engine cannot be talked to.
func (d *Driver) noAnswer(at endpoint, err error) error {
	const op = "docker.connect"
	var te *task.Error
	switch {
	case errors.As(err, &te):
		return err
	case errors.Is(err, context.Canceled):
		return task.Errorf(task.CodeCanceled, op, "%w", err)
	case errors.Is(err, os.ErrPermission):
		return task.Errorf(task.CodeUnavailable, op, "the engine at %s may not be used by this user: %v", at, err).
			WithHint("a rootless engine is the safer way; the group docker is as good as root")
	}
	return task.Errorf(task.CodeUnavailable, op, "the engine at %s does not answer: %v", at, err).
		WithHint("%s", map[string]string{
			Docker: "start it (sudo systemctl start docker); docker version tells whether it can be reached",
			Podman: "start its service (systemctl --user start podman.socket, or podman system service --time 0)",
		}[d.name])
}

// nameOf is the one name of everything made for s.
func nameOf(s backend.Spec) string {
	return prefix + s.Instance + "-" + string(s.Task) + "-" + s.Token[:8]
}

func (d *Driver) folderOf(name string) string { return filepath.Join(d.cfg.Dir, name) }

// Resources implements backend.Driver.
func (d *Driver) Resources(s backend.Spec) []backend.Resource {
	name := nameOf(s)
	return []backend.Resource{
		{Kind: kindFolder, Name: d.folderOf(name), Token: s.Token},
		{Kind: kindContainer, Name: name, Token: s.Token},
	}
}

// Attach implements backend.Driver.
func (d *Driver) Attach(ctx context.Context, rs []backend.Resource) (backend.Instance, error) {
	in := &instance{driver: d, attached: true, resources: rs}
	there := false
	for _, r := range rs {
		switch r.Kind {
		case kindFolder:
			if r.External == "" && !foreign.Ours(r.Name, r.Token) {
				continue
			}
			if _, err := os.Lstat(r.Name); err == nil {
				in.folder, in.token, there = r.Name, r.Token, true
			} else if !errors.Is(err, os.ErrNotExist) {
				return nil, task.Errorf(task.CodeStuck, "docker.attach", "%w", err)
			}
		case kindContainer:
			e, err := d.recorded(ctx, r)
			if err != nil {
				return nil, err
			}
			if e == nil {
				continue
			}
			id, err := e.owned(ctx, r)
			if missing(err) {
				continue
			}
			if err != nil {
				return nil, task.Errorf(task.CodeStuck, "docker.attach", "the container %s: %w", r.Name, err)
			}
			in.engine, in.id, in.token, there = e, id, r.Token, true
		}
	}
	if !there {
		return nil, backend.ErrNotFound
	}
	return in, nil
}

// recorded connects to the engine that a container was made with. nil: none was
// ever asked for it.
func (d *Driver) recorded(ctx context.Context, r backend.Resource) (*engine, error) {
	_, at, ok := parseExternal(r.External)
	if !ok {
		e, _, err := d.engine(ctx)
		if err != nil {
			// Whether the engine was asked is not known, and it does not say.
			return nil, err
		}
		return e, nil
	}
	d.mu.Lock()
	e := d.last
	d.mu.Unlock()
	if e != nil && e.at == at {
		return e, nil
	}
	e, _, err := d.ask(ctx, at)
	return e, err
}

// owned finds a container by its recorded id, or its name, and holds it to the
// recorded token. One of another token is none of ours: to us it is missing.
func (e *engine) owned(ctx context.Context, r backend.Resource) (id string, err error) {
	ref := r.Name
	if known, _, ok := parseExternal(r.External); ok {
		ref = known
	}
	c, err := e.inspect(ctx, ref)
	if err != nil {
		return "", err
	}
	if c.Config == nil || len(r.Token) < 16 || c.Config.Labels[labelToken] != r.Token {
		return "", &statusError{code: http.StatusNotFound, text: "it is not ours"}
	}
	return c.ID, nil
}

func (e *engine) inspect(ctx context.Context, ref string) (*containerInfo, error) {
	ctx, done := context.WithTimeout(ctx, answerTime)
	defer done()
	var c containerInfo
	err := e.call(ctx, http.MethodGet, "/containers/"+url.PathEscape(ref)+"/json", nil, nil, &c)
	return &c, err
}

func formatExternal(id string, at endpoint) string { return "id=" + id + " at=" + string(at) }

func parseExternal(s string) (id string, at endpoint, ok bool) {
	id, rest, ok := strings.Cut(s, " at=")
	id, has := strings.CutPrefix(id, "id=")
	return id, endpoint(rest), ok && has && id != ""
}

// List implements backend.Driver. Where no engine answers, folders say what there
// may be; where there are none, none is asked.
func (d *Driver) List(ctx context.Context, inst string) ([]backend.Resource, error) {
	var out []backend.Resource
	entries, err := os.ReadDir(d.cfg.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, f := range entries {
		if strings.HasPrefix(f.Name(), prefix+inst+"-") {
			out = append(out, backend.Resource{Kind: kindFolder, Name: d.folderOf(f.Name()), External: "folder"})
		}
	}
	if len(out) == 0 {
		return nil, nil // a folder outlives its container: no engine need be asked
	}
	e, _, err := d.engine(ctx)
	if err != nil {
		return out, nil // what is at an engine that does not answer is on record
	}
	var all []containerSummary
	ctx, done := context.WithTimeout(ctx, answerTime)
	defer done()
	q := url.Values{"all": {"1"}, "filters": {fmt.Sprintf(`{"label":[%q]}`, labelInstance+"="+inst)}}
	if err := e.call(ctx, http.MethodGet, "/containers/json", q, nil, &all); err != nil {
		return out, d.noAnswer(e.at, err)
	}
	for _, c := range all {
		if c.Labels[labelInstance] != inst || !slices.ContainsFunc(c.Names, func(n string) bool { return strings.HasPrefix(n, "/"+prefix+inst+"-") }) {
			continue
		}
		out = append(out, backend.Resource{Kind: kindContainer, Name: strings.TrimPrefix(c.Names[0], "/"), External: formatExternal(c.ID, e.at)})
	}
	return out, nil
}

var _ = sys.RegisterFaults("docker.folder", "docker.created", "docker.attached", "docker.started", "docker.answered", "docker.removed")
