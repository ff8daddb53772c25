package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
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

	mu       sync.Mutex
	asked    *answer // nil: not asked yet
	recalled *lesson // nil: nothing is
}

// known is what an engine said of itself.
type known struct {
	version *versionInfo
	system  *systemInfo
}

// answer is what an engine says, or will say: done is closed once the rest is set.
type answer struct {
	done   chan struct{}
	engine *engine
	known  *known
	old    bool // known is recalled
	err    error
}

// ready reports whether there is an answer that counts.
func (a *answer) ready() bool {
	if a == nil {
		return false
	}
	select {
	case <-a.done:
		return a.err == nil
	default:
		return false
	}
}

// lesson is what an engine said of itself, to be remembered: Docker starts four
// programs for that, and Podman looks at every package of its machine, for a second
// and more. At and Server show that it is the same one.
type lesson struct {
	At      endpoint     `json:"at"`
	Server  string       `json:"server"`
	Version *versionInfo `json:"version"`
	System  *systemInfo  `json:"system"`
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

// engine returns the person's engine and what it said of itself. It is asked once, as
// soon as anybody wants to know, and again after an answer that did not come.
func (d *Driver) engine(ctx context.Context) (*engine, *known, error) {
	a := d.ask()
	select {
	case <-a.done:
		return a.engine, a.known, a.err
	case <-ctx.Done():
		at, _, _ := find(d.name, d.getenv)
		return nil, nil, d.noAnswer(at, context.Cause(ctx))
	}
}

// ask begins to ask, if nobody did.
func (d *Driver) ask() *answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.asked; a != nil {
		select {
		case <-a.done:
			if a.err == nil {
				return a
			}
		default:
			return a
		}
	}
	a, recalled := &answer{done: make(chan struct{})}, d.recalled
	d.asked = a
	go func() {
		defer close(a.done)
		// Of nobody's context: whoever wants to know next waits for the same answer.
		ctx, done := context.WithTimeout(context.Background(), 2*answerTime)
		defer done()
		if a.engine, a.err = d.reach(ctx); a.err == nil {
			a.known, a.old, a.err = d.about(ctx, a.engine, recalled)
		}
	}()
	return a
}

// reach connects to the person's engine, and learns no more of it than how to talk
// to it.
func (d *Driver) reach(ctx context.Context) (*engine, error) {
	at, _, err := find(d.name, d.getenv)
	if err != nil {
		return nil, err
	}
	return d.connect(ctx, at)
}

func (d *Driver) connect(ctx context.Context, at endpoint) (*engine, error) {
	if _, err := at.socket(); err != nil {
		return nil, err
	}
	e, err := connect(ctx, at)
	if err != nil {
		return nil, d.noAnswer(at, err)
	}
	return e, nil
}

// about asks an engine what it is, or recalls it.
func (d *Driver) about(ctx context.Context, e *engine, recalled *lesson) (k *known, old bool, err error) {
	if r := recalled; r != nil && r.At == e.at && r.Server == e.server && r.Server != "" {
		return &known{version: r.Version, system: r.System}, true, nil
	}
	ctx, done := context.WithTimeout(ctx, answerTime)
	defer done()
	v, err := e.versions(ctx)
	if err != nil {
		return nil, false, d.noAnswer(e.at, err)
	}
	var i systemInfo
	if err := e.call(ctx, http.MethodGet, "/info", nil, nil, &i); err != nil {
		return nil, false, d.noAnswer(e.at, err)
	}
	return &known{version: v, system: &i}, false, nil
}

// mistook reports, after a failure, whether the engine is another than was recalled: it
// may have been started anew with other settings behind the same socket.
func (d *Driver) mistook(ctx context.Context) bool {
	d.mu.Lock()
	a := d.asked
	d.mu.Unlock()
	if !a.ready() || !a.old {
		return false
	}
	d.Forget()
	_, k, err := d.engine(ctx)
	return err == nil && !reflect.DeepEqual(k, a.known)
}

// Learned implements backend.Learner.
func (d *Driver) Learned() []byte {
	d.mu.Lock()
	a := d.asked
	d.mu.Unlock()
	if !a.ready() {
		return nil
	}
	b, err := json.Marshal(lesson{At: a.engine.at, Server: a.engine.server, Version: a.known.version, System: a.known.system})
	if err != nil {
		return nil
	}
	return b
}

// Recall implements backend.Learner.
func (d *Driver) Recall(learned []byte) {
	var l *lesson
	if err := json.Unmarshal(learned, &l); err != nil || l != nil && (l.Version == nil || l.System == nil) {
		l = nil
	}
	d.mu.Lock()
	d.recalled = l
	d.mu.Unlock()
	d.ask()
}

// Forget implements backend.Learner.
func (d *Driver) Forget() {
	d.mu.Lock()
	d.asked, d.recalled = nil, nil
	d.mu.Unlock()
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
		return d.reach(ctx) // with an error it is not known whether it was asked
	}
	d.mu.Lock()
	a := d.asked
	d.mu.Unlock()
	if a.ready() && a.engine.at == at {
		return a.engine, nil
	}
	return d.connect(ctx, at)
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
	d.sweepTrials(ctx) // no record knows them
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
	e, err := d.reach(ctx)
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

var _ = sys.RegisterFaults("docker.folder", "docker.mapped", "docker.created", "docker.attached", "docker.started", "docker.answered", "docker.sockets", "docker.removed")
