//go:build linux

package engines

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// server answers at a port of this machine's loopback and counts who came.
func server(t *testing.T) (port int, came *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came = new(atomic.Int64)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		came.Add(1)
		_, _ = io.WriteString(w, "hello\n")
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().(*net.TCPAddr).Port, came
}

// Whose sockets are inside, what the worker had to make them, and what is left of
// that: with every engine, also a user's own.
func TestWay(t *testing.T) {
	try := func(t *testing.T, e *harness.Engine, id *harness.Identity) {
		if _, err := exec.LookPath("curl"); err != nil {
			t.Skip("no curl here to ask with")
		}
		allowed, came := server(t)
		denied, strayed := server(t)
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		open := id.Open(t, repo, "--backend", e.Backend, "--allow", fmt.Sprintf("127.0.0.1:%d", allowed), "--publish", "3000")
		sh := func(line string) harness.Result { return id.Caisson(t, repo, "exec", open, "--", "bash", "-c", line) }
		ask := "curl -sS -m 60 --noproxy '*' http://127.0.0.1:%d/"
		if r := sh(fmt.Sprintf(ask, allowed)); r.Stdout != "hello\n" || came.Load() != 1 {
			t.Errorf("what is allowed: %v", r)
		}
		if r := sh(fmt.Sprintf(ask, denied)); r.Exit == 0 || strayed.Load() != 0 {
			t.Errorf("what is not allowed: %v", r)
		}
		if r := sh(fmt.Sprintf("curl -sS -m 60 --noproxy '' -x http://127.0.0.1:61080 http://127.0.0.1:%d/", denied)); strings.Contains(r.Stdout, "hello") || strayed.Load() != 0 {
			t.Errorf("what is not allowed, by the proxy: %v", r)
		}
		// What the worker had is gone, and the door is closed.
		if r := sh("grep -h ^CapBnd: /proc/1/status /proc/self/status; grep ^CapEff: /proc/1/status; ls -A /run/boundary/door; touch /run/boundary/door/s 2>/dev/null && echo made"); r.Stdout != "CapBnd:\t0000000000000000\nCapBnd:\t0000000000000000\nCapEff:\t00000000000000e0\n" {
			t.Errorf("what is left inside: %v", r)
		}
		v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
		for _, l := range v.Levels {
			if l.Axis == task.NET && l.Proved != 2 {
				t.Errorf("the network was proved to be %d: %s", l.Proved, l.How)
			}
		}
		// A way in, to a server of the task's own.
		if r := sh("command -v python3 >/dev/null || exit 9; cd /tmp && echo inside >x && (python3 -m http.server --bind 127.0.0.1 3000 >/dev/null 2>&1 &) ; for i in $(seq 600); do (exec 3<>/dev/tcp/127.0.0.1/3000) 2>/dev/null && exit 0; sleep 0.1; done; exit 1"); r.Exit == 9 {
			t.Log("no python3 to be a server inside")
		} else if r.Exit != 0 {
			t.Error(r)
		} else {
			ports := harness.Decode[struct {
				Ports []struct{ Inside, Host int }
			}](t, id.OK(t, repo, "ports", "--json", open)).Ports
			if len(ports) != 1 || ports[0].Inside != 3000 {
				t.Fatalf("published: %v", ports)
			}
			cmd := id.Command(t.Context(), repo, "curl", "-sS", "-m", "60", "--noproxy", "*", fmt.Sprintf("http://127.0.0.1:%d/x", ports[0].Host))
			if r := harness.Run(t, cmd); r.Stdout != "inside\n" {
				t.Errorf("a server inside: %v", r)
			}
		}
		id.OK(t, repo, "close", "--discard", open)
	}
	each(t, func(t *testing.T, e *harness.Engine) {
		try(t, e, identity(t, e, "user", harness.UserID))
	})
	t.Run("podman of a user", func(t *testing.T) {
		e, uid := harness.Rootless(t)
		try(t, e, identity(t, e, "rootless", uid))
	})
}

// An image knows nothing of the boundary: what is mounted over its /etc is enough for
// names and for programs that know no proxy.
func TestWayOfAnImage(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no static busybox here to make an image of")
	}
	first(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "user", harness.UserID)
		root := t.TempDir()
		data, err := os.ReadFile(busybox)
		if err == nil {
			err = os.Mkdir(filepath.Join(root, "bin"), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(root, "bin/busybox"), data, 0o755)
		}
		for _, n := range []string{"sh", "wget", "cat", "nslookup"} {
			if err == nil {
				err = os.Symlink("busybox", filepath.Join(root, "bin", n))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		e.Import(t, root, "way:1")
		ref := "way:1"
		if e.Backend == "podman" {
			ref = "localhost/way:1"
		}
		port, came := server(t)
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		line := fmt.Sprintf("unset http_proxy; wget -q -O - http://127.0.0.1:%d/; nslookup -type=a names.example 127.0.0.1; cat /etc/resolv.conf", port)
		begun := time.Now()
		r := id.Caisson(t, repo, "run", "--backend", e.Backend, "--image", ref, "--allow", fmt.Sprintf("127.0.0.1:%d", port), "--allow", "names.example:443", "--", "sh", "-c", line)
		if r.Exit != 0 || !strings.HasPrefix(r.Stdout, "hello\n") || !strings.Contains(r.Stdout, "198.18.") || !strings.HasSuffix(r.Stdout, "nameserver 127.0.0.1\n") || came.Load() != 1 {
			t.Errorf("after %v: %v", time.Since(begun), r)
		}
	})
}
