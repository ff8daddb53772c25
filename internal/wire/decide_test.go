//go:build linux

package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

func hookOf(timeout time.Duration, argv ...string) policy.Set[policy.Hook] {
	return policy.Set[policy.Hook]{Value: policy.Hook{Exec: argv, Timeout: policy.Duration(timeout)}, From: policy.Origin{Source: task.SourceUser, Where: "policy.yaml:3"}}
}

// TestDecideProgram asks programs, among them such as must not be asked. Each
// would answer none, which leaves the call allowed.
func TestDecideProgram(t *testing.T) {
	top := t.TempDir()
	if f, err := sys.OpenTrusted(top, os.Geteuid()); errors.Is(err, sys.ErrNotTrusted) {
		t.Skipf("others may write on the way to the test's folder: %v", err)
	} else if err == nil {
		_ = f.Close()
	}
	t.Setenv("STOLEN_TOKEN", "sesame")
	t.Setenv("LD_PRELOAD_X", "x")
	h := &house{who: task.Identity{UID: os.Geteuid()}}
	repo := filepath.Join(top, "repo")
	script := func(name, body string, mode os.FileMode) string {
		p := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("#!/bin/sh\ncat >/dev/null\n"+body+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	none := `echo '{"verdict":"none"}'`
	inRepo := script("repo/hook", none, 0o755)
	link := filepath.Join(top, "link")
	if err := os.Symlink(inRepo, link); err != nil {
		t.Fatal(err)
	}
	open := script("open/hook", none, 0o755)
	if err := os.Chmod(filepath.Dir(open), 0o777); err != nil {
		t.Fatal(err)
	}
	const long = 30 * time.Second
	for name, c := range map[string]struct {
		hook policy.Set[policy.Hook]
		want string // the verdict, or a part of the error
	}{
		"none":                         {hookOf(long, script("none", none, 0o755)), "none"},
		"deny":                         {hookOf(long, script("deny", `echo '{"verdict":"deny","reason":"no"}'`, 0o755)), "deny"},
		"ask":                          {hookOf(long, script("ask", `echo '{"verdict":"ask"}'`, 0o755)), "ask"},
		"words":                        {hookOf(long, script("words", `echo "{\"verdict\":\"$1\"}"`, 0o755), "ask"), "ask"},
		"allow is no answer":           {hookOf(long, script("allow", `echo '{"verdict":"allow"}'`, 0o755)), "must be deny, ask or none"},
		"nothing":                      {hookOf(long, script("nothing", `true`, 0o755)), "cannot be read"},
		"garbage":                      {hookOf(long, script("garbage", `echo ok`, 0o755)), "cannot be read"},
		"two answers":                  {hookOf(long, script("two", none+"; "+none, 0o755)), "behind the answer"},
		"another key":                  {hookOf(long, script("key", `echo '{"verdict":"none","allow":true}'`, 0o755)), "cannot be read"},
		"a status":                     {hookOf(long, script("status", none+"; exit 3", 0o755)), "exit status 3"},
		"too long an answer":           {hookOf(long, script("long", none+"; head -c 200000 /dev/zero | tr '\\0' ' '", 0o755)), "longer than"},
		"too late":                     {hookOf(300*time.Millisecond, script("late", "sleep 60; "+none, 0o755)), "took longer"},
		"a child that holds on":        {hookOf(300*time.Millisecond, script("holds", "sleep 60 & "+none, 0o755)), "took longer"},
		"absent":                       {hookOf(long, filepath.Join(top, "absent")), "no such file"},
		"no program":                   {hookOf(long, script("plain", none, 0o644)), "permission denied"},
		"a folder":                     {hookOf(long, top), "is no program"},
		"a relative name":              {hookOf(long, "true"), "absolute path"},
		"none at all":                  {policy.Set[policy.Hook]{}, "absolute path"},
		"in the repository":            {hookOf(long, inRepo), "can change it"},
		"a link into the repository":   {hookOf(long, link), "can change it"},
		"a script of the repository":   {hookOf(long, "/bin/sh", inRepo), "can change it"},
		"one that others may write":    {hookOf(long, script("w", none, 0o757)), "others may change it"},
		"in a folder of others":        {hookOf(long, open), "others may change it"},
		"no secrets of the caller":     {hookOf(long, script("env", `env | grep -q -e STOLEN -e LD_ && echo leaked && exit 1; [ "$PWD" = / ] && `+none, 0o755)), "none"},
		"an empty environment in part": {hookOf(long, script("path", `[ -z "$USER" ] && `+none, 0o755)), "none"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := h.decide(context.Background(), c.hook, policy.HookQuestion{Repo: repo}, []string{repo, "", filepath.Join(top, "state")})
			switch got := a.Verdict; {
			case err == nil && got != c.want:
				t.Errorf("%q, want %q", got, c.want)
			case err != nil && (a != policy.HookAnswer{} || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%+v, %v; want %q", a, err, c.want)
			}
		})
	}
	// The operator's program is root's: one of a user's does not count as that.
	if os.Geteuid() != 0 {
		s := hookOf(long, filepath.Join(top, "none"))
		s.From.Source = task.SourceOperator
		if a, err := h.decide(context.Background(), s, policy.HookQuestion{}, nil); !errors.Is(err, sys.ErrNotTrusted) {
			t.Errorf("a user's program speaks for the operator: %+v, %v", a, err)
		}
	}
}

// TestDecideServer has servers answer, and others that get between.
func TestDecideServer(t *testing.T) {
	t.Parallel()
	none := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"verdict":"none"}`) }
	serve := func(f http.HandlerFunc) *httptest.Server {
		s := httptest.NewServer(f)
		t.Cleanup(s.Close)
		return s
	}
	elsewhere := serve(none)
	redirects := serve(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	tls := httptest.NewTLSServer(http.HandlerFunc(none))
	t.Cleanup(tls.Close)
	status := func(n int) string {
		return serve(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(n); none(w, r) }).URL
	}
	var asked policy.HookQuestion
	for name, c := range map[string]struct {
		url     string
		timeout time.Duration
		want    string
	}{
		"none": {elsewhere.URL, 30 * time.Second, "none"},
		"what it is asked": {serve(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && json.NewDecoder(r.Body).Decode(&asked) == nil && asked.Kind == "tool" {
				_, _ = io.WriteString(w, `{"verdict":"deny"}`)
			}
		}).URL, 30 * time.Second, "deny"},
		"another status": {status(500), 30 * time.Second, "500"},
		"not found":      {status(404), 30 * time.Second, "404"},
		"a redirect":     {redirects.URL, 30 * time.Second, "307"},
		"garbage":        {serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }).URL, 30 * time.Second, "cannot be read"},
		"no end": {serve(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, `{"verdict":"none"}`, strings.Repeat(" ", 1<<20))
		}).URL, 30 * time.Second, "longer than"},
		"too late": {serve(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done() // which ends when the client has gone
		}).URL, 300 * time.Millisecond, "took longer"},
		"a certificate of nobody's": {tls.URL, 30 * time.Second, "certificate"},
		"nobody there":              {"http://" + unanswered(t), 30 * time.Second, "refused"},
	} {
		s := policy.Set[policy.Hook]{Value: policy.Hook{HTTP: c.url, Timeout: policy.Duration(c.timeout)}}
		a, err := (&house{}).decide(context.Background(), s, policy.HookQuestion{Kind: "tool"}, nil)
		if err == nil && a.Verdict != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, a, err, c.want)
		}
	}
	// The control: a client that follows gets the answer that allows.
	if r, err := http.Post(redirects.URL, "application/json", nil); err != nil || r.StatusCode != 200 {
		t.Errorf("the redirect leads nowhere: %v", err)
	} else {
		_ = r.Body.Close()
	}
}

// unanswered is an address at which nobody listens and nobody else will.
func unanswered(t *testing.T) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

// TestDecideNoProxy: a proxy of the caller's environment is never asked.
func TestDecideNoProxy(t *testing.T) {
	proxied := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied++
		_, _ = io.WriteString(w, `{"verdict":"none"}`)
	}))
	defer proxy.Close()
	denies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, `{"verdict":"deny"}`) }))
	defer denies.Close()
	for _, n := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(n, proxy.URL)
	}
	s := policy.Set[policy.Hook]{Value: policy.Hook{HTTP: denies.URL}}
	if a, err := (&house{}).decide(context.Background(), s, policy.HookQuestion{}, nil); err != nil || a.Verdict != "deny" || proxied != 0 {
		t.Errorf("%+v, %v, %d times through the proxy", a, err, proxied)
	}
	// The control: through the proxy it would be another answer.
	u, _ := url.Parse(proxy.URL)
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u)}}
	if r, err := c.Post(denies.URL, "application/json", nil); err != nil || proxied != 1 {
		t.Errorf("the proxy is none: %v", err)
	} else {
		_ = r.Body.Close()
	}
}
