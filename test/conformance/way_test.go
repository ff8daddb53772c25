//go:build linux

package conformance

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestWayOut is P40 and P41 where a way out was given: what is allowed is reached,
// nothing else is, however it is asked for. test/egress has the whole of it.
func TestWayOut(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl here to ask with")
	}
	server := func(t *testing.T) (string, *atomic.Int32) {
		var n atomic.Int32
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n.Add(1)
			_, _ = w.Write([]byte("hello\n"))
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().(*net.TCPAddr).String(), &n
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		allowed, came := server(t)
		denied, strayed := server(t)
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		task := id.Open(t, repo, "--allow", allowed)
		curl := func(args ...string) harness.Result {
			return id.Caisson(t, repo, append([]string{"exec", task, "--", "curl", "-sS", "-m", "60"}, args...)...)
		}
		if r := curl("--noproxy", "*", "http://"+allowed+"/"); r.Stdout != "hello\n" || came.Load() != 1 {
			t.Errorf("what is allowed: %v", r)
		}
		_, port, _ := strings.Cut(denied, ":")
		for _, how := range [][]string{
			{"--noproxy", "*", "http://" + denied + "/"},
			{"--noproxy", "", "-x", "http://127.0.0.1:61080", "http://" + denied + "/"},
			{"--noproxy", "", "-p", "-x", "http://127.0.0.1:61080", "http://" + denied + "/"},
			{"--noproxy", "", "-x", "http://127.0.0.1:61080", "-H", "Host: " + allowed, "http://" + denied + "/"},
			{"--noproxy", "*", fmt.Sprintf("http://2130706433:%s/", port)},
			{"--noproxy", "", "-x", "http://127.0.0.1:61080", fmt.Sprintf("http://[::ffff:127.0.0.1]:%s/", port)},
		} {
			if r := curl(how...); strings.Contains(r.Stdout, "hello") || strayed.Load() != 0 {
				t.Errorf("what is not allowed, by %q: %v", how, r)
			}
		}
		// Control: outside it is there.
		if r := harness.Run(t, id.Command(t.Context(), repo, "curl", "-sS", "-m", "60", "--noproxy", "*", "http://"+denied+"/")); r.Stdout != "hello\n" {
			t.Errorf("a dead test: %v", r)
		}
		id.OK(t, repo, "close", "--discard", task)
	})
}
