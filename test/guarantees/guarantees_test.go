//go:build linux

package guarantees

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const docs = "../../docs/"

// write says that the documents are made anew.
func write() bool { return os.Getenv("CAISSON_GUARANTEES") == "write" }

// pages are the documents, with what they are made from.
var pages = []struct {
	page, data string
	render     func([]measured) string
	columns    []string // what may be there, in this order; those with a ? need not
}{
	{"GUARANTEES.md", "guarantees.json", renderGuarantees, []string{"linux", "linux, root", "docker", "docker, root", "?podman, its user's own", "podman, root", "?gvisor", "?oci:crun", "?oci:crun, root"}},
	{"comparison.md", "comparison.json", renderComparison, []string{"caisson linux", "caisson docker", "?caisson gvisor", "docker run", "bwrap", "devcontainer-like"}},
}

func load(t *testing.T, name string) []measured {
	t.Helper()
	data, err := os.ReadFile(docs + name)
	if err != nil {
		t.Fatal(err)
	}
	var ms []measured
	if err := json.Unmarshal(data, &ms); err != nil {
		t.Fatal(err)
	}
	return ms
}

// TestPages holds the documents to their runs, and these to the attacks.
func TestPages(t *testing.T) {
	for _, p := range pages {
		ms := load(t, p.data)
		text, err := os.ReadFile(docs + p.page)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != p.render(ms) {
			t.Errorf("docs/%s is not what its runs say: CAISSON_GUARANTEES=render go test ./test/guarantees -run Render, or make guarantees", p.page)
		}
		var names []string
		for _, m := range ms {
			names = append(names, m.Name)
			if m.Why != "" {
				t.Errorf("%s: %s: nothing was measured: %s", p.page, m.Name, m.Why)
			}
			if m.Target.Kind == "backend" && len(m.Levels) != len(task.Axes) {
				t.Errorf("%s: %s has %d levels", p.page, m.Name, len(m.Levels))
			}
			have := map[string]task.VerifyProbe{}
			for _, v := range m.Probes {
				have[v.ID] = v
			}
			for _, a := range attack.Properties {
				v, ok := have[a.ID]
				if !ok || v.Text != a.Text || v.Axis != a.Axis {
					t.Errorf("%s: %s knows nothing of %s as it is now; make guarantees", p.page, m.Name, a.ID)
				}
				if v.Result == task.VerifyHeld && v.Shown == 0 {
					t.Errorf("%s: %s: %s held without a control", p.page, m.Name, a.ID)
				}
			}
			if len(have) != len(attack.Properties) {
				t.Errorf("%s: %s has %d properties, there are %d", p.page, m.Name, len(have), len(attack.Properties))
			}
		}
		var want []string
		for _, c := range p.columns {
			name, may := strings.CutPrefix(c, "?")
			if !may || slices.Contains(names, name) {
				want = append(want, name)
			}
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: the columns are %q, not %q", p.page, names, want)
		}
	}
}

// TestRender writes the pages anew from the runs that there are.
func TestRender(t *testing.T) {
	if how := os.Getenv("CAISSON_GUARANTEES"); how != "render" && how != "write" {
		t.Skip("the pages are only compared: CAISSON_GUARANTEES=render writes them")
	}
	if write() {
		measure(t)
	}
	for _, p := range pages {
		if err := os.WriteFile(docs+p.page, []byte(p.render(load(t, p.data))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// ground is where runs are made: identities, a project, a home with secrets, engines.
type ground struct {
	root, user     *harness.Identity
	docker, podman *harness.Engine
	project        string
}

func measure(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the runs need root, to start engines")
	}
	t.Cleanup(func() {
		if t.Skipped() {
			t.Error("not made anew: all of it is to be attacked, runsc, crun and a Podman of a user's own as well (useradd gives a new user what that needs)")
		}
	})
	harness.NeedsRuntime(t, "gvisor")
	harness.NeedsRuntime(t, "oci:crun")
	g := &ground{root: harness.NewIdentity(t, "root", 0), user: harness.NewIdentity(t, "user", harness.UserID), docker: harness.Docker(t), podman: harness.Podman(t)}
	for _, id := range []*harness.Identity{g.root, g.user} {
		id.Env = append(id.Env, "TMPDIR="+id.Tmp, g.docker.Variable(), g.podman.Variable())
		for _, f := range []string{"/.ssh/id_ed25519", "/.aws/credentials", "/.netrc"} {
			id.Write(t, id.Home+f, "secret\n", 0o600)
		}
	}
	g.project = g.user.Repo(t, map[string]string{"a.txt": "a\n"})
	image := t.TempDir()
	for _, d := range []string{"bin", "etc", "tmp", "proc", "dev", "home", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(image, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(image, "tmp"), 0o1777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image+"/etc/passwd", []byte("root:x:0:0::/:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	g.docker.Import(t, image, "base")
	// The engine of the tests has no bridge; this is one as docker0 would be.
	g.docker.Run(t, "network", "create", "bridge0")
	t.Cleanup(func() { g.docker.Run(t, "network", "rm", "bridge0") })

	backend := func(id *harness.Identity, name, b string) measured {
		m := g.run(t, id, "--backend", b)
		m.Name, m.Command = name, "caisson verify --backend "+b
		return m
	}
	linux, docker, gvisor := backend(g.user, "linux", "linux"), backend(g.user, "docker", "docker"), backend(g.user, "gvisor", "gvisor")
	save(t, "guarantees.json", []measured{
		linux, backend(g.root, "linux, root", "linux"),
		docker, backend(g.root, "docker, root", "docker"), g.rootless(t, backend), backend(g.root, "podman, root", "podman"),
		gvisor, backend(g.user, "oci:crun", "oci:crun"), backend(g.root, "oci:crun, root", "oci:crun"),
	})

	ours := func(m measured) measured {
		m.Name = "caisson " + m.Name
		return m
	}
	version := func(program string, args ...string) string {
		out, err := exec.Command(program, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	dockers := "docker " + g.docker.Run(t, "version", "--format", "{{.Server.Version}}")
	other := func(name, command, with string, notes ...string) measured {
		// What names this machine's folders and the tests' network is not shown.
		m := g.run(t, g.user, "--command", command)
		shown := strings.NewReplacer(g.project, "PROJECT", " --network bridge0", "", " base ", " IMAGE ").Replace(command)
		m.Name, m.Command, m.Notes = name, fmt.Sprintf("caisson verify --command %q", shown), notes
		m.Target.Name, m.Target.Version = shown, with
		return m
	}
	run := "docker run --rm --network bridge0 -v {dir}:{dir}:ro -v " + g.project + ":" + g.project + " -w " + g.project
	save(t, "comparison.json", []measured{
		ours(linux), ours(docker), ours(gvisor),
		other("docker run", run+" base {}", dockers, "the project and the program are mounted, nothing else is said: the command of many a recipe"),
		other("bwrap", "bwrap --new-session --die-with-parent --unshare-pid --unshare-net --ro-bind / / --dev /dev --proc /proc --bind "+g.project+" "+g.project+" --chdir "+g.project+" {}", version("bwrap", "--version"),
			"as sandboxes of agents call it: everything may be read, the project may be written, no network"),
		other("devcontainer-like", run+` -v "$SSH_AUTH_SOCK:$SSH_AUTH_SOCK" -e SSH_AUTH_SOCK -e GITHUB_TOKEN --cap-add SYS_PTRACE --security-opt seccomp=unconfined base {}`, dockers,
			"a development container with what templates for compiled languages and for git add: the agent of SSH, a token, ptrace and no filter"),
	})
}

// rootless is a run with a Podman of the user's own.
func (g *ground) rootless(t *testing.T, backend func(*harness.Identity, string, string) measured) measured {
	t.Helper()
	engine, uid := harness.Rootless(t)
	id := harness.NewIdentity(t, "rootless", uid)
	id.Env = append(id.Env, "TMPDIR="+id.Tmp, engine.Variable())
	return backend(id, "podman, its user's own", "podman")
}

// run is one `caisson verify` by id.
func (g *ground) run(t *testing.T, id *harness.Identity, args ...string) measured {
	t.Helper()
	r := id.Caisson(t, id.Dir, append([]string{"verify", "--json"}, args...)...)
	var all task.VerifyAll
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || len(all.Reports) != 1 {
		t.Fatalf("%v: %v", err, r)
	}
	if all.Reports[0].Verdict == task.VerifyNotTried {
		t.Errorf("%q: %s", args, all.Reports[0].Why)
	}
	return measured{VerifyReport: slim(all.Reports[0])}
}

func save(t *testing.T, name string, ms []measured) {
	t.Helper()
	data, err := json.MarshalIndent(ms, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(docs+name, append(data, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
