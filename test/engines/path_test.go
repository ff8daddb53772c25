//go:build linux

package engines

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// both runs f with engines as root and as an ordinary user who may use it.
func both(t *testing.T, on func(*testing.T, func(*testing.T, *harness.Engine)), f func(t *testing.T, e *harness.Engine, id *harness.Identity)) {
	on(t, func(t *testing.T, e *harness.Engine) {
		for _, w := range []struct {
			name string
			uid  int
		}{{"user", harness.UserID}, {"root", 0}} {
			if w.uid == 0 && e.Backend != "docker" && os.Getenv("CAISSON_TEST_FULL") == "" {
				continue // the driver is the same
			}
			t.Run(w.name, func(t *testing.T) { f(t, e, identity(t, e, w.name, w.uid)) })
		}
		if left := e.Containers(t); len(left) > 0 {
			t.Errorf("containers are left: %v", left)
		}
	})
}

func code(t *testing.T, r harness.Result) string {
	t.Helper()
	var e struct{ Error struct{ Code string } }
	if err := json.Unmarshal([]byte(r.Stdout), &e); err != nil {
		_ = json.Unmarshal([]byte(r.Stderr), &e)
	}
	return e.Error.Code
}

// The main job: a change is made inside and brought out, exactly.
func TestPath(t *testing.T) {
	both(t, each, func(t *testing.T, e *harness.Engine, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
		open := id.Open(t, repo, "--backend", e.Backend, "work")
		r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", `echo three >new.txt; rm dir/b.txt; echo more >>a.txt; printf 'x\n' >"odd
name"; chmod 755 a.txt; git add -A && git commit -qm inside && echo later >later.txt; exit 3`)
		if r.Exit != 3 {
			t.Fatal(r)
		}
		out := id.OK(t, repo, "diff", "--name-status", "-z", open)
		for _, want := range []string{"M\x00a.txt\x00", "D\x00dir/b.txt\x00", "A\x00new.txt\x00", "A\x00odd\nname\x00", "A\x00later.txt\x00"} {
			if !strings.Contains(out, want) {
				t.Errorf("the change lacks %q: %q", want, out)
			}
		}
		// Who owns a file inside is who owns it outside.
		v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
		for _, f := range []string{"new.txt", "a.txt"} {
			st, err := os.Stat(filepath.Join(v.TaskDir, "source", f))
			if err != nil || int(ownerOf(st)) != id.UID {
				t.Errorf("%s belongs to %d, want %d (%v)", f, ownerOf(st), id.UID, err)
			}
		}
		if v.Channel != "uid-split" || v.Backend != e.Backend {
			t.Errorf("channel %s of backend %s", v.Channel, v.Backend)
		}
		// Input, output and statuses pass as they are.
		cmd := id.Command(t.Context(), repo, harness.Bin(), "exec", open, "--", "sh", "-c", "wc -c; seq 1 200000 | md5sum; kill -9 $$")
		cmd.Stdin = strings.NewReader(strings.Repeat("0123456789", 50000))
		if r := harness.Run(t, cmd); r.Exit != 137 || r.Stdout != "500000\n"+sumOfSeq(t)+"\n" {
			t.Errorf("streams: %v", r)
		}
		if r := id.Caisson(t, repo, "exec", open, "--", "no-such-program"); r.Exit != 127 {
			t.Errorf("a program that is not there: %v", r)
		}
		id.OK(t, repo, "apply", "--allow-risky", open)
		if b, err := os.ReadFile(repo + "/later.txt"); err != nil || string(b) != "later\n" {
			t.Errorf("applied: %q %v", b, err)
		}
		id.OK(t, repo, "close", open)
		if refs := id.Git(t, repo, "for-each-ref", "refs/caisson/"+open); !strings.Contains(refs, "commit") {
			t.Errorf("the commit was not brought out: %q", refs)
		}
	})
}

func sumOfSeq(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "seq 1 200000 | md5sum").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// A user's own engine: commands are user 0 of its namespace, who is that user, and
// the worker is another.
func TestRootless(t *testing.T) {
	e, uid := harness.Rootless(t)
	id := identity(t, e, "rootless", uid)
	repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
	open := id.Open(t, repo, "--backend", "podman")
	if r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", "id -un; id -u; grep ^Uid: /proc/1/status; echo new >b.txt"); r.Exit != 0 || !strings.HasSuffix(r.Stdout, "\n0\nUid:\t1\t1\t1\t0\n") || strings.HasPrefix(r.Stdout, "root") {
		t.Errorf("inside: %v", r)
	}
	v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
	st, err := os.Stat(filepath.Join(v.TaskDir, "source", "b.txt"))
	if err != nil || int(ownerOf(st)) != uid {
		t.Errorf("the file belongs to %d, want %d (%v)", ownerOf(st), uid, err)
	}
	if v.Channel != "uid-split" {
		t.Errorf("the channel is %s", v.Channel)
	}
	id.OK(t, repo, "apply", open)
	if b, err := os.ReadFile(repo + "/b.txt"); err != nil || string(b) != "new\n" {
		t.Errorf("applied: %q %v", b, err)
	}
	id.OK(t, repo, "close", open)
}

// What a container gets is what was asked for, as the engine says it.
func TestShape(t *testing.T) {
	both(t, first, func(t *testing.T, e *harness.Engine, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		open := id.Open(t, repo, "--backend", e.Backend, "--memory", "300m", "--pids", "150", "--cpus", "0.5")
		var all []struct {
			Config     struct{ Labels map[string]string }
			HostConfig struct {
				Privileged, ReadonlyRootfs bool
				NetworkMode, PidMode       string
				Memory, MemorySwap         int64
				PidsLimit                  int64
				CapAdd, CapDrop            []string
				LogConfig                  struct{ Type string }
				Binds                      []string
			}
			Mounts []struct {
				Source, Destination string
				RW                  bool
			}
		}
		if err := json.Unmarshal([]byte(e.Run(t, "inspect", e.Container(t, open))), &all); err != nil || len(all) != 1 {
			t.Fatal(err)
		}
		c := all[0]
		h := c.HostConfig
		if h.Privileged || !h.ReadonlyRootfs || h.NetworkMode != "none" || h.PidMode == "host" || h.Memory != 300<<20 || h.MemorySwap != 300<<20 || h.PidsLimit != 150 || h.LogConfig.Type != "none" {
			t.Errorf("the container is %+v", h)
		}
		for _, c := range h.CapAdd {
			switch strings.TrimPrefix(strings.ToUpper(c), "CAP_") {
			case "SETUID", "SETGID", "SETPCAP", "KILL":
			default:
				t.Errorf("it has the capability %s", c)
			}
		}
		for _, m := range c.Mounts {
			if strings.HasSuffix(m.Source, ".sock") || m.RW && m.Destination != repo && m.Destination != "/run/boundary/out" {
				t.Errorf("mounted: %+v", m)
			}
		}
		for _, l := range []string{"caisson.task", "caisson.instance", "caisson.token", "caisson.owner", "caisson.boot"} {
			if c.Config.Labels[l] == "" {
				t.Errorf("there is no label %s", l)
			}
		}
		// The token is the host's alone.
		if r := id.Caisson(t, repo, "exec", open, "--", "grep", "-rlsF", "--exclude-dir=proc", c.Config.Labels["caisson.token"], "/run", "/etc", id.Home, repo, "/sys"); r.Exit == 0 || r.Stdout != "" {
			t.Errorf("the token can be read inside: %v", r)
		}
		id.OK(t, repo, "close", "--discard", open)
	})
}

// Nothing of an image runs unasked, and what is not there is not fetched.
func TestImage(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no static busybox here to make an image of")
	}
	both(t, first, func(t *testing.T, e *harness.Engine, id *harness.Identity) {
		root := t.TempDir()
		for _, d := range []string{"bin", "etc", "data"} {
			if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		data, err := os.ReadFile(busybox)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, "bin/busybox"), data, 0o755)
		}
		for _, n := range []string{"sh", "cat", "id", "ls", "touch"} {
			if err == nil {
				err = os.Symlink("busybox", filepath.Join(root, "bin", n))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		name := "engines-" + id.Name + ":1"
		e.Import(t, root, name)
		ref := name
		if e.Backend == "podman" {
			ref = "localhost/" + name
		}
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		run := func(image string, argv ...string) harness.Result {
			return id.Caisson(t, repo, append([]string{"run", "--backend", e.Backend, "--image", image, "--"}, argv...)...)
		}
		if r := run(ref, "sh", "-c", "ls /; cat a.txt; touch b.txt; touch /data/x 2>/dev/null || echo read-only"); r.Exit != 0 || !strings.Contains(r.Stdout, "one\nread-only") || strings.Contains(r.Stdout, "usr") {
			t.Errorf("an image by name: %v", r)
		}
		digest := strings.TrimSpace(e.Run(t, "inspect", "--type", "image", "--format", "{{.Id}}", ref))
		if r := run(digest, "cat", "a.txt"); r.Exit != 0 || r.Stdout != "one\n" {
			t.Errorf("an image by id: %v", r)
		}
		if r := run("registry.example/none:1", "cat", "a.txt"); r.Exit != 125 || !strings.Contains(r.Stderr, e.Backend+" pull registry.example/none:1") {
			t.Errorf("an image that is not there: %v", r)
		}
		for _, bad := range []string{"../x", "-x", "a b", "x?y"} {
			if r := id.Caisson(t, repo, "run", "--backend", e.Backend, "--image="+bad, "--", "true"); r.Exit == 0 {
				t.Errorf("%q is taken for an image: %v", bad, r)
			}
		}
		if r := id.Caisson(t, repo, "run", "--backend", e.Backend, "--image", ref, "--rootfs", root, "--", "true"); r.Exit != 125 {
			t.Errorf("two roots: %v", r)
		}
		// What an image says of its volumes loses nothing of what tools write.
		for _, v := range []struct {
			at   string
			exit int
		}{{`["/data/", "` + repo + `/"]`, 0}, {repo + "/.git", 1}} {
			with := name + "v" // of the name the last counts
			e.Import(t, root, with, "--change", "VOLUME "+v.at)
			if e.Backend == "podman" {
				with = "localhost/" + with
			}
			r := id.Caisson(t, repo, "open", "--backend", e.Backend, "--image", with, "--name", "volumes")
			if r.Exit != v.exit || v.exit != 0 && !strings.Contains(r.Stderr, "volume at") {
				t.Errorf("a volume at %s: %v", v.at, r)
			}
			if r.Exit != 0 {
				continue
			}
			id.OK(t, repo, "exec", "volumes", "--", "sh", "-c", "echo two >v.txt")
			if r := id.Caisson(t, repo, "diff", "volumes"); !strings.Contains(r.Stdout, "v.txt") {
				t.Errorf("what was written under a volume at %s is lost: %v", v.at, r)
			}
			id.OK(t, repo, "close", "--discard", "volumes")
		}
		// A prepared folder is a root without an image of its own.
		if err := os.Chmod(root, 0o755); err != nil {
			t.Fatal(err)
		}
		if r := id.Caisson(t, repo, "run", "--backend", e.Backend, "--rootfs", root, "--", "sh", "-c", "ls /data && cat a.txt"); id.UID == 0 && (r.Exit != 0 || r.Stdout != "one\n") {
			t.Errorf("--rootfs: %v", r)
		}
	})
}

// What an engine cannot give is refused by name before anything is made.
func TestRefusals(t *testing.T) {
	first(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "user", harness.UserID)
		repo := id.Repo(t, map[string]string{"a.txt": "one\n", ".env": "OTHER=1\n"})
		for _, flags := range [][]string{{"--grant", "userns"}} {
			r := id.Caisson(t, repo, append([]string{"open", "--json", "--backend", e.Backend}, flags...)...)
			if r.Exit == 0 || code(t, r) != "unsupported" || !strings.Contains(r.Stdout+r.Stderr, flags[0]) {
				t.Errorf("%q: %v", flags, r)
			}
		}
		// An engine that is elsewhere, none at all, and one that a repository names.
		for _, c := range []struct{ host, want string }{{"tcp://192.0.2.1:2375", "not on this machine"}, {"ssh://nobody@192.0.2.1", "not on this machine"}, {"unix://" + id.Tmp + "/none.sock", "does not answer"}} {
			env := id.Env
			id.Env = append(append([]string(nil), id.Env...), strings.SplitN(e.Variable(), "=", 2)[0]+"="+c.host)
			if r := id.Caisson(t, repo, "run", "--backend", e.Backend, "--", "true"); r.Exit != 125 || !strings.Contains(r.Stderr, c.want) {
				t.Errorf("%s: %v", c.host, r)
			}
			id.Env = env
		}
		id.Write(t, repo+"/.env", e.Variable()+"\n", 0o644)
		if r := id.Caisson(t, repo, "run", "--backend", e.Backend, "--", "true"); r.Exit != 125 || !strings.Contains(r.Stderr, "also defines it") {
			t.Errorf("a variable of the workspace's: %v", r)
		}
		if left := e.Containers(t); len(left) > 0 {
			t.Errorf("containers are left: %v", left)
		}
	})
}
