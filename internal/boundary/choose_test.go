package boundary

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// stand is a backend that promises what it is told to, and makes nothing.
type stand struct {
	backend.Driver
	name   string
	caps   backend.Capabilities
	probed *[]string
}

func (s stand) Name() string                                                    { return s.name }
func (s stand) FindImage(_ context.Context, ref string, _ bool) (string, error) { return ref, nil }

func (s stand) Probe(context.Context) (backend.Capabilities, error) {
	*s.probed = append(*s.probed, s.name)
	return s.caps, nil
}

// TestChoose lets backends of different strength stand beside each other.
func TestChoose(t *testing.T) {
	repo := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "x"}} {
		if out, err := exec.Command("git", append([]string{"-C", repo}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	ordinary := task.Vector{task.PRC: 3, task.FS: 2, task.NET: 4, task.RES: 2, task.KRN: 1, task.CPL: 2, task.CHN: 2}
	strong := ordinary.Join(task.Vector{task.KRN: 3, task.RES: 3, task.FS: 3})
	usable := func(v task.Vector) backend.Capabilities { return backend.Capabilities{Usable: true, Levels: v} }
	images := usable(ordinary)
	images.Images = true
	closed := usable(ordinary)
	closed.Inward = backend.Variant{Why: "no way in", Fix: "another one"}
	broken := backend.Capabilities{Why: "no namespaces", Fix: "allow them"}
	at := policy.Origin{Source: task.SourceOperator, Where: "p:1"}
	names := func(n ...string) policy.Set[[]string] { return policy.Set[[]string]{Value: n, From: at} }
	for _, c := range []struct {
		name    string
		drivers map[string]backend.Capabilities // linux, docker, podman in this order
		req     task.Request
		rules   policy.Rules
		want    string    // the backend of the plan
		missing bool      // and something is missing
		code    task.Code // instead: refused
		probed  string
		why     map[string]string // of backends: a part of what is said
	}{
		{name: "the first is enough: nothing else is tried", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(strong)}, want: "linux", probed: "linux",
			why: map[string]string{"docker": "not looked at: linux comes before it", "host": "no execution boundary"}},
		{name: "a level that only another gives", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(ordinary), "podman": usable(strong)}, req: task.Request{Need: task.Vector{task.KRN: 3}},
			want: "podman", probed: "linux docker podman", why: map[string]string{"linux": "does not give everything", "docker": "does not give everything", "podman": "every level"}},
		{name: "the weaker one of two that are enough", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(strong), "podman": usable(strong)}, req: task.Request{Need: task.Vector{task.KRN: 2}},
			want: "docker", probed: "linux docker", why: map[string]string{"podman": "not looked at: docker comes before it"}},
		{name: "none is enough", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(ordinary)}, req: task.Request{Need: task.Vector{task.KRN: 4}},
			want: "linux", missing: true, probed: "linux docker", why: map[string]string{"linux": "does not give everything", "docker": "does not give everything"}},
		{name: "one was asked for and is not enough", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(strong)}, req: task.Request{Backend: "linux", Need: task.Vector{task.KRN: 3}},
			want: "linux", missing: true, why: map[string]string{"docker": "--backend linux was asked for"}},
		{name: "one was asked for", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(strong)}, req: task.Request{Backend: "docker"}, want: "docker", probed: "docker"},
		{name: "one was asked for and cannot be used", drivers: map[string]backend.Capabilities{"linux": broken, "docker": usable(ordinary)}, req: task.Request{Backend: "linux"}, code: task.CodeUnavailable},
		{name: "the first cannot be used", drivers: map[string]backend.Capabilities{"linux": broken, "docker": usable(ordinary)}, want: "docker", why: map[string]string{"linux": "not usable here: no namespaces"}},
		{name: "the policy prefers", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(ordinary), "podman": usable(ordinary)}, rules: policy.Rules{Prefer: names("podman", "docker")},
			want: "podman", why: map[string]string{"docker": "not looked at: podman", "linux": "not looked at: podman"}},
		{name: "what the policy prefers is not enough", drivers: map[string]backend.Capabilities{"linux": usable(strong), "docker": usable(strong), "podman": usable(ordinary)}, rules: policy.Rules{Prefer: names("podman", "docker")}, req: task.Request{Need: task.Vector{task.KRN: 3}},
			want: "docker", why: map[string]string{"podman": "does not give everything", "linux": "not looked at: docker"}},
		{name: "what the policy does not allow is not taken", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(strong)}, rules: policy.Rules{Allowed: names("linux")}, req: task.Request{Need: task.Vector{task.KRN: 3}},
			want: "linux", missing: true, why: map[string]string{"docker": "the policy does not allow it"}},
		{name: "an image leads to one that takes images", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": images}, req: task.Request{Image: "x"}, want: "docker", why: map[string]string{"linux": "takes no images"}},
		{name: "an image, and one that takes none was asked for", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": images}, req: task.Request{Image: "x", Backend: "linux"}, code: task.CodeUnsupported},
		{name: "an image, and none takes one", drivers: map[string]backend.Capabilities{"linux": usable(ordinary), "docker": usable(ordinary)}, req: task.Request{Image: "x"}, code: task.CodeUnsupported},
		{name: "a published port leads to one that can be reached", drivers: map[string]backend.Capabilities{"linux": closed, "docker": usable(ordinary)}, req: task.Request{Publish: []string{"8080"}}, want: "docker", why: map[string]string{"linux": "--publish 8080: no way in"}},
		{name: "a published port, and one that cannot be reached was asked for", drivers: map[string]backend.Capabilities{"linux": closed, "docker": usable(ordinary)}, req: task.Request{Publish: []string{"8080"}, Backend: "linux"}, code: task.CodeUnsupported},
		{name: "one that there is not", drivers: map[string]backend.Capabilities{"linux": usable(ordinary)}, req: task.Request{Backend: "vm"}, code: task.CodeUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := t.TempDir()
			db, err := inventory.Open(t.Context(), filepath.Join(state, "state.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var probed []string
			cfg := Config{
				StateDir: state, RuntimeDir: state, DB: db, Environ: os.Environ(), Identity: task.Identity{UID: os.Getuid(), GID: os.Getgid(), Login: "t", Home: "/home/t"},
				Toolchains: func(context.Context, string, string) ([]backend.Mount, []task.Tool, []task.Finding, error) {
					return nil, nil, nil, nil
				},
				CheckPaths: func(backend.Spec) error { return nil },
				Defaults:   func(l task.Limits) task.Limits { return l },
				Policy: func(context.Context, Subject) (policy.Governing, error) {
					g := policy.Governing{Familiar: "the test"}
					if c.rules.Prefer.Value != nil || c.rules.Allowed.Value != nil {
						r := c.rules
						g.Rules = &r
					}
					return g, nil
				},
			}
			for _, n := range []string{"linux", "docker", "podman"} {
				if caps, ok := c.drivers[n]; ok {
					cfg.Drivers = append(cfg.Drivers, stand{name: n, caps: caps, probed: &probed})
				}
			}
			c.req.Repo, c.req.Person, c.req.Origin = repo, true, map[string]string{}
			p, err := New(cfg).Plan(t.Context(), c.req, []string{"true"})
			if c.code != "" {
				if task.CodeOf(err) != c.code {
					t.Fatalf("%v, want %s", err, c.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.Backend != c.want || len(p.Missing) > 0 != c.missing {
				t.Errorf("backend %s, missing %v", p.Backend, p.Missing)
			}
			if c.probed != "" && strings.Join(slices.Compact(probed), " ") != c.probed {
				t.Errorf("tried %v, want %s", probed, c.probed)
			}
			said, chosen := map[string]string{}, []string{}
			for _, x := range p.Considered {
				if said[x.Backend] != "" {
					t.Errorf("%s is told twice", x.Backend)
				}
				if said[x.Backend] = x.Why; x.Chosen {
					chosen = append(chosen, x.Backend)
				}
			}
			if len(said) != len(c.drivers)+1 {
				t.Errorf("told: %v", said)
			}
			if !slices.Equal(chosen, []string{c.want}) && !(c.missing && len(chosen) == 0) {
				t.Errorf("chosen: %v, want %s", chosen, c.want)
			}
			for n, part := range c.why {
				if !strings.Contains(said[n], part) {
					t.Errorf("of %s is said %q, want %q", n, said[n], part)
				}
			}
		})
	}
}
