// Package backendtest is the suite that every backend passes: what the
// contract in package backend promises, tried.
//
// Its limit: it knows no technology; what only one backend promises is tested
// beside that backend.
package backendtest

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// Config is what the suite needs of a driver under test.
type Config struct {
	// New returns a driver, as a new process would make it. It skips the test,
	// with the reason, where the driver cannot be used.
	New func(t *testing.T) backend.Driver
	// Spec returns a valid spec with folders, task and token of its own and
	// the given installation.
	Spec func(t *testing.T, instance string) backend.Spec
}

// suite are its parts.
var suite = []struct {
	name string
	run  func(*testing.T, Config)
}{
	{"probe leaves nothing behind", probe},
	{"resources are named before they exist", resources},
	{"lifecycle", lifecycle},
	{"the channel can be taken once", dialOnce},
	{"another process can find and destroy", attach},
	{"a cancelled create leaves nothing", cancelled},
	{"a create that fails leaves nothing", failing},
	{"what is not ours is not touched", foreign},
	{"several at once", several},
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	for _, x := range suite {
		t.Run(x.name, func(t *testing.T) { x.run(t, c) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// instanceName gives each test an installation of its own, so that what it
// lists is what it made.
func instanceName() string { return task.NewToken()[:8] }

func list(t *testing.T, d backend.Driver, inst string) []string {
	t.Helper()
	rs, err := d.List(t.Context(), inst)
	must(t, err)
	return names(rs)
}

func names(rs []backend.Resource) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Kind+" "+r.Name)
	}
	sort.Strings(out)
	return out
}

func create(t *testing.T, d backend.Driver, s backend.Spec) backend.Instance {
	t.Helper()
	i, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatalf("create: %v (%s)", err, task.HintOf(err))
	}
	t.Cleanup(func() {
		if err := i.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	return i
}

func probe(t *testing.T, c Config) {
	d := c.New(t)
	for range 2 {
		caps, err := d.Probe(t.Context())
		must(t, err)
		if !caps.Usable || len(caps.Levels) == 0 || len(caps.Features) == 0 {
			t.Fatalf("usable a moment ago, now %+v", caps)
		}
		for a, l := range caps.Levels {
			if l < 0 || l > task.MaxLevel(a) {
				t.Errorf("level %s %d is off its chain", a, l)
			}
			if l > 0 && caps.How[a] == "" {
				t.Errorf("%s is promised without saying how", a)
			}
		}
	}
}

func resources(t *testing.T, c Config) {
	d, inst := c.New(t), instanceName()
	s := c.Spec(t, inst)
	rs := d.Resources(s)
	if len(rs) == 0 || !slices.Equal(names(rs), names(d.Resources(s))) {
		t.Fatalf("not deterministic: %v", names(rs))
	}
	for _, r := range rs {
		if r.Token != s.Token || r.External != "" {
			t.Errorf("%s %s: token or external are wrong before it exists", r.Kind, r.Name)
		}
	}
	if l := list(t, d, inst); len(l) != 0 {
		t.Errorf("naming made %v", l)
	}
	if _, err := d.Attach(t.Context(), rs); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("attach to nothing: %v", err)
	}
	i := create(t, d, s)
	if got := names(i.Resources()); !slices.Equal(got, names(rs)) {
		t.Errorf("made %v, announced %v", got, names(rs))
	}
	for _, r := range i.Resources() {
		if r.External == "" {
			t.Errorf("%s %s exists without an identity", r.Kind, r.Name)
		}
	}
}

func lifecycle(t *testing.T, c Config) {
	d, inst := c.New(t), instanceName()
	i := create(t, d, c.Spec(t, inst))
	o, err := i.Observe(t.Context())
	must(t, err)
	if !o.Alive || o.Levels.At(task.RES) == 0 {
		t.Errorf("observed %+v", o)
	}
	for range 2 {
		must(t, i.Destroy(t.Context()))
	}
	if o, err := i.Observe(t.Context()); err != nil || o.Alive {
		t.Errorf("after destroy: %+v, %v", o, err)
	}
	if l := list(t, d, inst); len(l) != 0 {
		t.Errorf("left behind: %v", l)
	}
	if _, err := d.Attach(t.Context(), i.Resources()); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("attach after destroy: %v", err)
	}
}

func dialOnce(t *testing.T, c Config) {
	i := create(t, c.New(t), c.Spec(t, instanceName()))
	conn, err := i.Dial(t.Context())
	must(t, err)
	defer conn.Close()
	if second, err := i.Dial(t.Context()); err == nil {
		second.Close()
		t.Error("the channel was given out twice")
	}
}

func attach(t *testing.T, c Config) {
	inst := instanceName()
	i := create(t, c.New(t), c.Spec(t, inst))
	d := c.New(t)
	found, err := d.Attach(t.Context(), i.Resources())
	must(t, err)
	if !slices.Equal(names(found.Resources()), names(i.Resources())) {
		t.Errorf("found %v", names(found.Resources()))
	}
	if conn, err := found.Dial(t.Context()); err == nil {
		conn.Close()
		t.Error("a found boundary gave out its channel")
	}
	must(t, found.Destroy(t.Context()))
	if o, err := i.Observe(t.Context()); err != nil || o.Alive {
		t.Errorf("still alive for who made it: %+v, %v", o, err)
	}
	if l := list(t, d, inst); len(l) != 0 {
		t.Errorf("left behind: %v", l)
	}
}

func cancelled(t *testing.T, c Config) {
	d, inst := c.New(t), instanceName()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if i, err := d.Create(ctx, c.Spec(t, inst)); err == nil {
		_ = i.Destroy(context.Background())
		t.Error("created all the same")
	}
	if l := list(t, d, inst); len(l) != 0 {
		t.Errorf("left behind: %v", l)
	}
}

func failing(t *testing.T, c Config) {
	d, inst := c.New(t), instanceName()
	s := c.Spec(t, inst)
	s.RO = append(s.RO, backend.Mount{Source: s.Source.Source + "/absent", Target: "/opt/absent"})
	if i, err := d.Create(t.Context(), s); err == nil {
		_ = i.Destroy(context.Background())
		t.Error("a folder that does not exist was mounted")
	} else if task.CodeOf(err) == task.CodeInternal {
		t.Errorf("untyped error: %v", err)
	}
	if l := list(t, d, inst); len(l) != 0 {
		t.Errorf("left behind: %v", l)
	}
}

func foreign(t *testing.T, c Config) {
	d := c.New(t)
	mine, other := create(t, d, c.Spec(t, instanceName())), create(t, d, c.Spec(t, instanceName()))
	// The names of one with the token of the other prove nothing.
	forged := mine.Resources()
	for i := range forged {
		forged[i].Name, forged[i].External = other.Resources()[i].Name, ""
	}
	if i, err := d.Attach(t.Context(), forged); err == nil {
		_ = i.Destroy(t.Context())
	}
	if o, err := other.Observe(t.Context()); err != nil || !o.Alive {
		t.Errorf("a stranger's boundary was ended: %+v, %v", o, err)
	}
}

func several(t *testing.T, c Config) {
	d, inst := c.New(t), instanceName()
	var specs []backend.Spec
	for range 6 {
		specs = append(specs, c.Spec(t, inst))
	}
	var wg sync.WaitGroup
	for _, s := range specs {
		wg.Go(func() {
			i, err := d.Create(t.Context(), s)
			if err != nil {
				t.Error(err)
				return
			}
			if o, err := i.Observe(t.Context()); err != nil || !o.Alive {
				t.Errorf("%+v, %v", o, err)
			}
			if err := i.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if l := list(t, d, inst); len(l) != 0 {
		t.Errorf("left behind: %v", l)
	}
}
