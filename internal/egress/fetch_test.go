package egress

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestFetchByTool: redirections are followed and each is decided about, what is
// too long is cut, and a certificate that nobody vouches for is none.
func TestFetchByTool(t *testing.T) {
	var port int
	port = web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/to-b":
			http.Redirect(w, r, fmt.Sprintf("http://b.test:%d/", port), http.StatusFound)
		case "/again":
			http.Redirect(w, r, "/again", http.StatusFound)
		case "/once":
			http.Redirect(w, r, "/end", http.StatusMovedPermanently)
		case "/odd":
			w.Header().Set("Location", "javascript:alert(1)")
			w.WriteHeader(http.StatusFound)
		case "/long":
			fmt.Fprint(w, strings.Repeat("x", 1000))
		default:
			fmt.Fprintf(w, "%s %s %s", r.Method, r.URL, r.Header.Get("Authorization"))
		}
	}))
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("an unknown server was asked") }))
	defer secure.Close()
	acts := func(p Point) Answer {
		if a := only("a.test")(p); a.Verdict != task.VerdictAllow || p.Path != "/asked" {
			return a
		}
		return Answer{Verdict: task.VerdictAsk, Rule: "asked"}
	}
	w := open(t, Config{Judge: acts})
	at := fmt.Sprintf("http://a.test:%d", port)
	for path, want := range map[string]string{
		at + "/x?y=1#z": "GET /x?y=1", at + "/once": "GET /end", at + "/long": strings.Repeat("x", 100), at: "GET /",
		at + "/to-b": "rule", at + "/again": "protocol", at + "/odd": "form", at + "/asked": "ask",
		fmt.Sprintf("http://b.test:%d/", port): "rule", "ftp://a.test/": "form", "http://u:p@a.test/": "form", at + "/\r\nX: y": "form", "": "form",
		fmt.Sprintf("https://a.test:%d/", portOf(secure.Listener.Addr().String())): "tls",
	} {
		f, err := w.Fetch(context.Background(), "GET", path, 100)
		got := string(ReasonOf(err))
		if err == nil {
			got = strings.TrimSpace(string(f.Body))
			if f.Truncated != strings.HasSuffix(path, "/long") {
				t.Errorf("%s: truncated: %v", path, f.Truncated)
			}
		}
		if got != want {
			t.Errorf("%s: %q %v, want %q", path, got, err, want)
		}
	}
	if f, err := w.Fetch(context.Background(), "HEAD", at+"/x", 100); err != nil || f.Status != 200 || len(f.Body) != 0 {
		t.Errorf("%+v %v", f, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.Fetch(ctx, "GET", at, 100); err == nil {
		t.Error("fetched for nobody")
	}
}
