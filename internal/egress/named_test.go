package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

func TestNamedHost(t *testing.T) {
	for s, want := range map[string]string{
		"3000.web.localhost:19000": "web 3000", "3000.Web.LOCALHOST.:19000": "web 3000", "3000.a.b_c.localhost:19000": "a.b_c 3000", "db.web.localhost:19000": "web db",
		"web.localhost:19000": "", "localhost:19000": "", ".web.localhost:19000": "", "3000..localhost:19000": "", "3000.web.localhost": "", "3000.web.localhost:1": "",
		"3000.web.localhost.evil.test:19000": "", "3000.web.evil.test:19000": "", "127.0.0.1:19000": "", "": "",
	} {
		got := ""
		if task, port, ok := NamedHost(s, 19000); ok {
			got = task + " " + port
		}
		if got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

// TestNamed: a name leads to the port of that task alone, and pages of others are
// refused.
func TestNamed(t *testing.T) {
	server := listening(t)
	go http.Serve(server, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	l := listening(t)
	mine := true
	n := &Named{Listener: l, Peer: func(net.Conn) error {
		if mine {
			return nil
		}
		return errors.New("another user")
	}, Find: func(_ context.Context, task, port string) int {
		if task == "web" && port == "3000" {
			return server.Addr().(*net.TCPAddr).Port
		}
		return 0
	}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := n.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(host, origin string) (int, string) {
		r, err := http.NewRequest("GET", "http://"+at+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		res, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(b)
	}
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"3000.web.localhost:" + port, "", 200}, {"3000.web.localhost:" + port, "http://3000.web.localhost:" + port, 200}, {"3000.web.localhost:" + port, "http://5173.web.localhost:" + port, 200},
		{"3000.web.localhost:" + port, "http://3000.other.localhost:" + port, 403}, {"3000.web.localhost:" + port, "http://evil.test", 403}, {"3000.web.localhost:" + port, "null", 403}, {"3000.web.localhost:" + port, "http://localhost:" + port, 403},
		{"3001.web.localhost:" + port, "", 404}, {"3000.other.localhost:" + port, "", 404}, {"localhost:" + port, "", 404}, {"evil.test:" + port, "", 404}, {at, "", 404},
	} {
		if code, body := get(c.host, c.origin); code != c.want || code == 200 && body != c.host {
			t.Errorf("%s from %q: %d %s", c.host, c.origin, code, body)
		}
	}
	mine = false
	if code, _ := get("3000.web.localhost:"+port, ""); code != 0 {
		t.Errorf("another user got %d", code)
	}
	cancel()
	wg.Wait()
}
