//go:build linux

package egress

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/caisson-dev/caisson/test/harness"
)

// gitFolder is what git.test serves; nil: nothing.
var gitFolder atomic.Pointer[string]

// heard lets the stream of events go on.
var heard = make(chan struct{}, 1)

// realServers answers what is more than a line of text.
func realServers(mux *http.ServeMux) {
	mux.HandleFunc("git.test/", func(w http.ResponseWriter, r *http.Request) {
		at := gitFolder.Load()
		if at == nil {
			http.NotFound(w, r)
			return
		}
		note("git %s", r.URL.Path)
		core, err := exec.Command("git", "--exec-path").Output()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		(&cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"), InheritEnv: []string{"PATH"},
			Env: []string{"GIT_PROJECT_ROOT=" + *at, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}).ServeHTTP(w, r)
	})
	mux.HandleFunc("/cut", cut)
	mux.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
		_, _ = io.CopyN(w, zeros{}, n)
	})
	// The second event comes once somebody has said that the first one did.
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: first\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-heard:
			fmt.Fprint(w, "data: second\n\n")
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	})
	mux.HandleFunc("/heard", func(http.ResponseWriter, *http.Request) {
		select {
		case heard <- struct{}{}:
		default:
		}
	})
	mux.Handle("/ws", websocket.Server{Handler: func(c *websocket.Conn) {
		note("websocket %s", c.Request().Host)
		_, _ = io.Copy(c, c)
	}})
	mux.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		note("page %s %s", r.Host, r.Proto)
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, page)
	})
	// A page that asks for what other ports of the reader's machine have.
	mux.HandleFunc("/attack", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><img src=/hold><script>
const n = %q, tries = [];
for (const h of ['127.0.0.1', 'localhost', '5173.dev.localhost', 'local.test']) {
  const u = h + ':' + n;
  tries.push(fetch('http://' + u + '/secret', {mode: 'no-cors'}), fetch('http://' + u + '/api', {method: 'POST', mode: 'no-cors', body: 'x'}));
  tries.push(new Promise(done => { const s = new WebSocket('ws://' + u + '/ws'); s.onopen = s.onerror = s.onclose = done; }));
  tries.push(new Promise(done => { const i = new Image(); i.onload = i.onerror = done; i.src = 'http://' + u + '/picture'; }));
}
Promise.allSettled(tries).then(() => fetch('/result?tried'));
</script>`, r.URL.Query().Get("port"))
	})
	mux.HandleFunc("/result", func(w http.ResponseWriter, r *http.Request) {
		text, _ := url.QueryUnescape(r.URL.RawQuery)
		note("result %s", text)
		select {
		case held <- struct{}{}:
		default:
		}
	})
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-held:
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	})
	mux.HandleFunc("/proto", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s to %s", r.Proto, r.Host) })
}

// page echoes through a WebSocket, and asks for what is not allowed.
const page = `<!DOCTYPE html><title>page</title><img src=/hold><script>
const own = new Promise(done => {
  const s = new WebSocket((location.protocol == 'https:' ? 'wss://' : 'ws://') + location.host + '/ws');
  s.onopen = () => s.send('hello');
  s.onmessage = m => done('echoed ' + m.data);
  s.onerror = () => done('no echo');
});
const other = fetch('https://b.test/stolen', {mode: 'no-cors'}).then(() => 'reached', () => 'refused');
Promise.all([own, other]).then(r => fetch('/result?' + encodeURIComponent(r[0] + ', ' + r[1] + ' b.test')));
</script>`

// held keeps a page loading until it has told its result.
var held = make(chan struct{}, 1)

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// ordinary is who runs servers that refuse to be root, and to be nobody known.
func ordinary(t *testing.T) *harness.Identity {
	t.Helper()
	if os.Getuid() != 0 {
		return harness.NewIdentity(t, "server", os.Getuid())
	}
	return harness.NewIdentity(t, "server", 65534)
}

// daemon starts a server of this machine and ends it with the test.
func daemon(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // what postgres takes as a quick end
		done := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		done.Stop()
		if t.Failed() {
			t.Logf("%s said: %s", cmd.Args[0], out.String())
		}
	})
}

// until waits until f says yes.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(harness.Limit); !f(); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// program is where a program is, in the usual folders and some more; the test is
// skipped where it is not.
func program(t *testing.T, name, pkg string, more ...string) string {
	t.Helper()
	for _, dir := range append([]string{"/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"}, more...) {
		if hits, _ := filepath.Glob(filepath.Join(dir, name)); len(hits) > 0 {
			return hits[0]
		}
	}
	t.Skipf("no %s on this machine (Debian: apt-get install %s)", name, pkg)
	return ""
}

// postgres starts a database that answers at these addresses, on 5433.
func postgres(t *testing.T, at ...string) {
	t.Helper()
	id := ordinary(t)
	initdb := program(t, "initdb", "postgresql", "/usr/lib/postgresql/*/bin")
	initdb, err := filepath.EvalSymlinks(initdb)
	if err != nil {
		t.Fatal(err)
	}
	data := id.Tmp + "/data"
	if r := harness.Run(t, id.Command(context.Background(), id.Dir, initdb, "-D", data, "-A", "trust", "-U", "tester", "--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C")); r.Exit != 0 {
		t.Fatal(r)
	}
	id.Write(t, data+"/pg_hba.conf", "host all all 0.0.0.0/0 trust\n", 0o600)
	daemon(t, id.Command(context.Background(), id.Dir, filepath.Dir(initdb)+"/postgres", "-D", data, "-p", "5433", "-c", "listen_addresses="+strings.Join(at, ","), "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=1MB", "-c", "max_connections=20"))
	ready := program(t, "pg_isready", "postgresql-client", "/usr/lib/postgresql/*/bin")
	until(t, "the database never answered", func() bool {
		return exec.Command(ready, "-q", "-h", at[0], "-p", "5433").Run() == nil
	})
}
