//go:build linux

package engines

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// between listens where id finds its engine, and answers with h.
func between(t *testing.T, id *harness.Identity, h http.Handler) {
	t.Helper()
	socket := filepath.Join(public(t), "engine.sock")
	l, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	id.Env = append(id.Env, "CAISSON_ENGINE=unix://"+socket)
}

// passing hands everything on to a real engine, but what change answers itself.
func passing(e *harness.Engine, change func(http.ResponseWriter, *http.Request) bool) http.Handler {
	to, _ := url.Parse("http://engine")
	p := httputil.NewSingleHostReverseProxy(to)
	p.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", strings.TrimPrefix(e.Host, "unix://"))
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !change(w, r) {
			p.ServeHTTP(w, r)
		}
	})
}

// nothingLeft expects that a task which could not be opened left nothing.
func nothingLeft(t *testing.T, e *harness.Engine, id *harness.Identity) {
	t.Helper()
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
	for _, pattern := range []string{"/engine/caisson-*", "/tasks/*/source"} {
		if left, _ := filepath.Glob(id.State + pattern); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// An engine that cannot be made sense of is given up, with what to do next.
func TestEngineTalksNonsense(t *testing.T) {
	t.Parallel()
	version := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/version") {
			_ = json.NewEncoder(w).Encode(map[string]string{"Version": "20.10", "ApiVersion": "1.41", "MinAPIVersion": "1.12"})
			return true
		}
		return false
	}
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		want string
	}{
		{"a page", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>hello</html>")) }, "cannot be read"},
		{"an error without end", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = w.Write([]byte(strings.Repeat("\x1b[31mx", 1<<20)))
		}, "does not answer"},
		{"nothing in it", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }, "speaks versions"},
		{"too old", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]string{"Version": "1.13", "ApiVersion": "1.26"})
		}, "20.10 or later"},
		{"it hangs up", func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = c.Close()
			}
		}, "does not answer"},
		{"another answer than was asked for", func(w http.ResponseWriter, r *http.Request) {
			if !version(w, r) {
				_, _ = w.Write([]byte(`[1,2,3]`))
			}
		}, "cannot be read"},
		{"it makes no container", func(w http.ResponseWriter, r *http.Request) {
			if !version(w, r) {
				_, _ = w.Write([]byte(`{}`))
			}
		}, "hint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			id := harness.NewIdentity(t, "user", harness.UserID)
			between(t, id, c.h)
			repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
			r := id.Caisson(t, repo, "run", "--backend", "docker", "--", "true")
			if r.Exit != 125 || !strings.Contains(r.Stderr, c.want) || !strings.Contains(r.Stderr, "hint") || strings.ContainsAny(r.Stderr, "\x1b") || len(r.Stderr) > 4000 {
				t.Errorf("%v", r)
			}
			if left, _ := filepath.Glob(id.State + "/engine/caisson-*"); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// An engine that takes a connection and says nothing is not waited for without end.
func TestEngineHangs(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "user", harness.UserID)
	hold := make(chan struct{})
	between(t, id, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	defer close(hold)
	repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
	r := id.Caisson(t, repo, "run", "--backend", "docker", "--", "true")
	if r.Exit != 125 || !strings.Contains(r.Stderr, "no answer within") || !strings.Contains(r.Stderr, "hint: ") {
		t.Errorf("%v", r)
	}
}

// What goes wrong between the engine and the container ends the attempt, with the
// engine's own reason, and leaves nothing.
func TestStartFails(t *testing.T) {
	e := harness.Docker(t)
	says := func(code int, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]string{"message": text})
		}
	}
	cut := func(w http.ResponseWriter) {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = c.Close()
		}
	}
	for _, c := range []struct {
		name, path string
		after      bool // the engine does it, and the answer does not come
		answer     func(http.ResponseWriter)
		want       string
	}{
		{"create is refused", "/containers/create", false, says(400, "invalid mount config: no way"), "no way"},
		{"create is done and not answered", "/containers/create", true, cut, "make the container"},
		{"attach is refused", "/attach", false, says(500, "no streams today"), "no streams today"},
		{"start fails", "/start", false, says(500, "OCI runtime create failed: runc did not terminate successfully"), "OCI runtime create failed"},
		{"start is done and not answered", "/start", true, cut, "start the container"},
		{"no room for a network", "/start", false, says(500, "could not find an available, non-overlapping IPv4 address pool among the defaults"), "address pool"},
		{"no space", "/containers/create", false, says(500, "mkdir /var/lib/docker/overlay2/x: no space left on device"), "docker system df"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := identity(t, e, "user", harness.UserID)
			var failing atomic.Bool
			between(t, id, passing(e, func(w http.ResponseWriter, r *http.Request) bool {
				if !failing.Load() || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, c.path) {
					return false
				}
				if c.after {
					rec := &discard{header: http.Header{}}
					passing(e, func(http.ResponseWriter, *http.Request) bool { return false }).ServeHTTP(rec, r)
				}
				_, _ = io.Copy(io.Discard, r.Body) // as an engine does; else the request may fail before the answer
				c.answer(w)
				return true
			}))
			repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
			id.OK(t, repo, "plan", "--backend", "docker", "--", "true") // what the engine can do was tried
			failing.Store(true)
			r := id.Caisson(t, repo, "run", "--backend", "docker", "--", "true")
			if r.Exit != 125 || !strings.Contains(r.Stderr, c.want) || !strings.Contains(r.Stderr, "hint") {
				t.Errorf("%v", r)
			}
			failing.Store(false)
			id.Caisson(t, repo, "reap")
			nothingLeft(t, e, id)
		})
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// A stranger's container that has the name which ours would get stays as it is, also
// with all our labels but the token.
func TestNameIsTaken(t *testing.T) {
	e := harness.Docker(t)
	id := identity(t, e, "user", harness.UserID)
	repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
	id.OK(t, repo, "run", "--backend", "docker", "--", "true") // so that an image is there
	image := strings.Fields(e.Run(t, "images", "--quiet", "localhost/caisson-root"))[0]
	var stranger atomic.Value
	between(t, id, passing(e, func(_ http.ResponseWriter, r *http.Request) bool {
		if name := r.URL.Query().Get("name"); strings.HasSuffix(r.URL.Path, "/containers/create") && stranger.Load() == nil && !strings.Contains(name, "trial") {
			instance := strings.Split(name, "-")[1]
			stranger.Store(e.Run(t, "create", "--name", name, "--label", "caisson.instance="+instance, "--label", "caisson.task="+strings.Split(name, "-")[2],
				"--label", "caisson.token=0123456789abcdef0123456789abcdef", "--network", "none", "--entrypoint", "/x", image))
		}
		return false
	}))
	r := id.Caisson(t, repo, "run", "--backend", "docker", "--", "true")
	if r.Exit != 125 || !strings.Contains(r.Stderr, "already in use") {
		t.Errorf("%v", r)
	}
	id.Caisson(t, repo, "reap")
	id.OK(t, repo, "run", "--backend", "docker", "--", "true")
	want, _ := stranger.Load().(string)
	if want == "" || e.Run(t, "inspect", "--format", "{{.Id}} {{.State.Status}}", want) != want+" created" {
		t.Errorf("the stranger's container is not as it was")
	}
	e.Run(t, "rm", "--force", want)
	nothingLeft(t, e, id)
}

// An engine whose disk is full cannot make a container, says so, and leaves nothing;
// a task that runs goes on. It keeps containers over its own end (live-restore), and
// has no address left for another network, which no container of ours has.
func TestFullDiskAndLiveRestore(t *testing.T) {
	e := harness.DockerWith(t, map[string]any{"live-restore": true, "storage-driver": "vfs", "default-address-pools": []map[string]any{{"base": "198.18.0.0/30", "size": 30}}}, 48)
	id := identity(t, e, "user", harness.UserID)
	repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
	open := id.Open(t, repo, "--backend", "docker")
	exhausted := ""
	for _, name := range []string{"one", "two", "three"} {
		if out, err := e.Command("network", "create", name).CombinedOutput(); err != nil {
			exhausted = string(out)
		}
	}
	if exhausted == "" {
		t.Error("there are addresses left for networks")
	}
	t.Logf("a network of the engine's: %s", exhausted)
	id.OK(t, repo, "run", "--backend", "docker", "--", "true")
	fill := filepath.Join(e.Dir, "data", "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(b)
	}
	_ = f.Close()
	if r := id.Caisson(t, repo, "run", "--backend", "docker", "--", "true"); r.Exit != 125 || !strings.Contains(r.Stderr, "no space left") || !strings.Contains(r.Stderr, "docker system df") {
		t.Errorf("a full disk: %v", r)
	}
	if r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", "echo on >on.txt; cat on.txt"); r.Stdout != "on\n" {
		t.Errorf("the open task: %v", r)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	id.OK(t, repo, "run", "--backend", "docker", "--", "true")
	id.OK(t, repo, "close", "--discard", open)
	nothingLeft(t, e, id)
	lost(t, e, id, func(string) {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
	})
}

// What the kernel ends at the limit says which limit that was.
func TestOutOfMemory(t *testing.T) {
	e := harness.Docker(t)
	id := identity(t, e, "user", harness.UserID)
	repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
	open := id.Open(t, repo, "--backend", "docker", "--memory", "64m")
	r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", `x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`)
	if r.Exit != 137 || !strings.Contains(r.Stderr, "OOM") || !strings.Contains(r.Stderr, "67108864") {
		t.Errorf("%v", r)
	}
	v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
	if v.State != task.Ready {
		t.Errorf("the task is %s", v.State)
	}
	id.OK(t, repo, "close", "--discard", open)
}

// An engine that was set up without a system call filter is told of, and tools have
// this program's all the same.
func TestEngineWithoutFilter(t *testing.T) {
	e := harness.DockerWith(t, map[string]any{"seccomp-profile": allowAll(t)}, 0)
	id := identity(t, e, "user", harness.UserID)
	repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
	open := id.Open(t, repo, "--backend", e.Backend)
	out := id.OK(t, repo, "exec", open, "--", "sh", "-c", "grep ^Seccomp: /proc/self/status; unshare --user true 2>&1 || echo refused; keyctl show 2>&1 | head -1")
	if !strings.Contains(out, "Seccomp:\t2") || !strings.Contains(out, "refused") {
		t.Errorf("inside: %q", out)
	}
	id.OK(t, repo, "close", "--discard", open)
}

// allowAll is a profile of an engine's that refuses nothing.
func allowAll(t *testing.T) string {
	t.Helper()
	return put(t, public(t), "profile.json", []byte(`{"defaultAction":"SCMP_ACT_ALLOW"}`))
}
