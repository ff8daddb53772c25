//go:build linux

package credentials

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// answers is all that one host of the world serves: an API below /api, and git.
func answers(name string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", gitServer(name))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) { apiServer(w, r, name) })
	return mux
}

// apiServer notes all of a request, and gives back what it was sent in every form
// in which a careless server does.
func apiServer(w http.ResponseWriter, r *http.Request, name string) {
	body, _ := io.ReadAll(r.Body)
	scheme := "http"
	if r.TLS != nil {
		scheme = r.Proto
	}
	note("%s %s %s %s ?%s auth %q key %q body %q", scheme, name, r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Values("Authorization"), r.Header.Values("X-Api-Key"), body)
	if to := r.URL.Query().Get("to"); to != "" {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if strings.HasPrefix(token, "Basic ") {
		_, token, _ = r.BasicAuth()
	}
	w.Header().Set("X-Echo", "you are "+token)
	w.Header().Set("Trailer", "X-Late")
	js, _ := json.Marshal(map[string]string{"token": token})
	text := fmt.Sprintf("plain %s\nbase64 %s\nbasic %s\nurl %s\njson %s\n", token, base64.StdEncoding.EncodeToString([]byte(token)), r.Header.Get("Authorization"), url.QueryEscape(token), js)
	for _, c := range []byte(text) { // in pieces
		w.Write([]byte{c})
		if c == '\n' || c == '/' {
			w.(http.Flusher).Flush()
		}
	}
	w.Header().Set("X-Late", token)
}

// apiPolicy lends a token for one part of one host, from a file.
const apiPolicy = `version: 1
credentials:
  api:
    from: {file: "~/.config/api-token"}
    as: bearer
    class: dev
    to: [{host: git.test, path: /api/mine, methods: [GET, POST]}]
    env: [API_TOKEN]
    form: tok_
  prod:
    from: {file: "~/.config/api-token"}
    as: header
    header: X-Api-Key
    to: [{host: git.test, path: /api/prod}]
    env: [PROD_KEY]
`

const apiSecret = "tok_real/secret+of=the person!"

// armed is a task that is lent the token.
func (p *place) armed(policy string, flags ...string) string {
	p.t.Helper()
	p.Write(p.t, p.Home+"/.config/api-token", apiSecret+"\n", 0o600)
	p.policy(policy)
	return p.open(append([]string{"--allow", "git.test:443", "--allow", "git.test:80", "--allow", "other.test:443"}, flags...)...)
}

// spelled says whether the secret can be read in a text, in one of the forms of
// the server.
func spelled(text string) bool {
	for _, s := range []string{apiSecret, url.QueryEscape(apiSecret), url.PathEscape(apiSecret), base64.StdEncoding.EncodeToString([]byte(apiSecret)), "real/secret", strings.TrimRight(base64.StdEncoding.EncodeToString([]byte("me:" + apiSecret))[8:], "=")} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return strings.Contains(strings.ToLower(text), "real%2fsecret")
}

const curl = "curl -sS -m 120 "

// strays are requests that must not get the secret, whatever they hold. Outside,
// with the secret in the variable, each carries it to where it is seen.
var strays = []struct{ name, line string }{
	{"another host", curl + `-H "Authorization: Bearer $API_TOKEN" https://other.test/api/mine`},
	{"another path", curl + `-H "Authorization: Bearer $API_TOKEN" https://git.test/api/other`},
	{"a path that begins alike", curl + `-H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine2`},
	{"another method", curl + `-X PATCH -H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine`},
	{"plain HTTP", curl + `-H "Authorization: Bearer $API_TOKEN" http://git.test/api/mine`},
	{"another field", curl + `-H "X-Api-Key: $API_TOKEN" https://git.test/api/mine`},
	{"the body", curl + `--data-raw "token=$API_TOKEN" https://git.test/api/mine`},
	{"the query", curl + `-G --data-urlencode "token=$API_TOKEN" https://git.test/api/mine`},
	{"twice", curl + `-H "Authorization: Bearer $API_TOKEN" -H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine`},
	{"with a password's scheme", curl + `-u "me:$API_TOKEN" https://git.test/api/mine`},
	{"where a redirect leads", curl + `-L --location-trusted -H "Authorization: Bearer $API_TOKEN" -G --data-urlencode to=https://other.test/api/mine https://git.test/api/other`},
}

// TestOnlyThere is probe P45: the placeholder is replaced in one field of requests
// to one destination, and nowhere else.
func TestOnlyThere(t *testing.T) {
	each(t, func(p *place) {
		task := p.armed(apiPolicy, "--lend", "api")
		inside := strings.TrimSpace(p.sh(task, "echo $API_TOKEN").Stdout)
		if !strings.HasPrefix(inside, "tok_") || len(inside) < 30 || spelled(inside) {
			p.t.Fatalf("inside is %q", inside)
		}
		for _, how := range []string{"--http1.1 ", "--http2 ", "--noproxy '*' ", "--socks5-hostname 127.0.0.1:61080 "} {
			taken()
			r := p.sh(task, curl+how+`-H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine/x`)
			if got := taken(); !strings.Contains(got, fmt.Sprintf("GET /api/mine/x ? auth %q", []string{"Bearer " + apiSecret})) {
				p.t.Errorf("%s: the server saw %s\n%v", how, got, r)
			} else if spelled(r.Stdout) || !strings.Contains(r.Stdout, "plain ") {
				p.t.Errorf("%s: it came back: %v", how, r)
			}
		}
		for _, c := range strays {
			taken()
			outside := "API_TOKEN='" + apiSecret + "'; " + c.line
			if r := p.outside(outside); !spelled(taken()) {
				p.t.Errorf("%s: a dead control: %v", c.name, r)
				continue
			}
			r := p.sh(task, c.line)
			got := taken()
			if spelled(got) || spelled(r.Stdout+r.Stderr) {
				p.t.Errorf("%s: the secret left: %s\n%v", c.name, got, r)
			}
			if !strings.Contains(got, inside) && !strings.Contains(got, base64.StdEncoding.EncodeToString([]byte("me:"+inside))) && c.name != "twice" {
				p.t.Errorf("%s: the placeholder did not arrive as it is: %s\n%v", c.name, got, r)
			}
		}
		// A redirect from where it is lent: the client's next request is judged by itself.
		taken()
		p.sh(task, curl+`-L --location-trusted -H "Authorization: Bearer $API_TOKEN" -G --data-urlencode to=https://other.test/api/mine https://git.test/api/mine`)
		if got := strings.Split(taken(), "\n"); len(got) != 2 || !strings.Contains(got[0], apiSecret) || spelled(got[1]) || !strings.Contains(got[1], inside) {
			p.t.Errorf("a redirect: %q", got)
		}
		// Paths in disguise, fields that change the method, and what the proxy is told.
		for _, line := range []string{
			curl + `--path-as-is -H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine/../other`,
			curl + `--path-as-is -H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine/%2e%2e/other`,
			curl + `-H "X-Original-URL: /api/other" -H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine`,
			curl + `--proxy-header "Authorization: Bearer $API_TOKEN" https://git.test/api/mine`,
			curl + `-x http://127.0.0.1:61080 -U "me:$API_TOKEN" https://git.test/api/mine`,
			curl + `-H "Host: other.test" -H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine`,
		} {
			taken()
			if r := p.sh(task, line); spelled(taken()) || spelled(r.Stdout) {
				p.t.Errorf("%s: %v", line, r)
			}
		}
		log := p.OK(p.t, p.repo, "log", "--json", task)
		for _, want := range []string{`"type":"credential.lent"`, `"type":"credential.used"`, `"type":"credential.astray"`, `"uses":5`, `"where":"git.test: the field X-Api-Key"`, `"type":"credential.refused"`} {
			if !strings.Contains(log, want) {
				p.t.Errorf("%s is not on record", want)
			}
		}
		if n := strings.Count(log, `"where":"git.test: the query"`); n != 1 {
			p.t.Errorf("a placeholder in the query is on record %d times", n)
		}
		if s := p.OK(p.t, p.repo, "log", "--egress", task); !strings.Contains(s, "credential used") {
			p.t.Errorf("log --egress shows no use:\n%s", s)
		}
		p.OK(p.t, p.repo, "close", "--discard", task)
		p.nowhere(task)
	})
}

// nowhere looks for the secret where it must not be: in the record, the state, the
// runtime folder, and arguments and environments of processes.
func (p *place) nowhere(task string) {
	p.t.Helper()
	_ = filepath.WalkDir(p.Home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, "api-token") {
			return nil
		}
		if i, err := d.Info(); err != nil || i.Size() > 64<<20 {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && spelled(string(b)) {
			p.t.Errorf("%s has the secret", path)
		}
		return nil
	})
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		for _, f := range []string{"cmdline", "environ"} {
			if b, err := os.ReadFile(filepath.Join(dir, f)); err == nil && spelled(string(b)) && strings.Contains(string(b), "caisson") {
				p.t.Errorf("%s/%s has the secret", dir, f)
			}
		}
	}
	if task != "" && !strings.Contains(p.OK(p.t, p.repo, "log", "--json", task), `"type":"credential.back"`) {
		p.t.Error("it is not on record that it was taken back")
	}
}

// TestComesBackClean is probe P46: a server that gives back what it was sent gives
// nothing away, in whatever form, in header, body and trailer.
func TestComesBackClean(t *testing.T) {
	one(t, func(p *place) {
		task := p.armed(apiPolicy, "--lend", "api")
		for _, how := range []string{"--http1.1", "--http2"} {
			line := curl + how + ` -i -H "Authorization: Bearer $API_TOKEN" -H 'Range: bytes=3-9' https://git.test/api/mine`
			out := p.outside("API_TOKEN='" + apiSecret + "'; " + line)
			if n := strings.Count(out.Stdout, "real/secret"); n < 4 {
				p.t.Errorf("%s: a dead control, %d times: %v", how, n, out)
			}
			r := p.sh(task, line)
			for _, want := range []string{"plain ***", "base64 ***", "X-Late: ***", "X-Echo: you are ***", "url ", "json ", "200"} {
				if !strings.Contains(strings.ToLower(r.Stdout), strings.ToLower(want)) {
					p.t.Errorf("%s: without %q: %v", how, want, r)
				}
			}
			if spelled(r.Stdout + r.Stderr) {
				p.t.Errorf("%s: it came back: %v", how, r)
			}
		}
	})
}

// TestTakenBack: uses are counted over a resume, a policy that lends no more takes
// back what is held, and the end does.
func TestTakenBack(t *testing.T) {
	each(t, func(p *place) {
		policy := strings.Replace(apiPolicy, "form: tok_", "form: tok_\n    uses: 3", 1)
		task := p.armed(policy, "--lend", "api")
		use := curl + `-o /dev/null -w '%{http_code}' -H "Authorization: Bearer $API_TOKEN" https://git.test/api/mine`
		status := func() string { return strings.TrimSpace(p.sh(task, use).Stdout) }
		first := p.sh(task, "echo $API_TOKEN").Stdout
		if s := status(); s != "200" {
			p.t.Fatal(s)
		}
		if show := p.OK(p.t, p.repo, "show", "--json", task); !strings.Contains(show, `"kind": "loan"`) || !strings.Contains(show, `"value": "api"`) {
			p.t.Errorf("show has no loan: %s", show)
		}
		// A core file of who holds it would have it. The control is this process.
		v := harness.Decode[struct{ Supervisor struct{ PID int } }](p.t, p.OK(p.t, p.repo, "show", "--json", task))
		limits := func(pid string) string {
			b, err := os.ReadFile("/proc/" + pid + "/limits")
			if err != nil {
				p.t.Fatal(err)
			}
			return strings.Join(regexp.MustCompile(`(?m)^Max core file size +(\S+) +(\S+)`).FindStringSubmatch(string(b))[1:], " ")
		}
		if own, its := limits("self"), limits(fmt.Sprint(v.Supervisor.PID)); its != "1 1" && !strings.HasSuffix(own, " 0") {
			p.t.Errorf("the supervisor may leave a core file: %s, as this process: %s", its, own)
		}
		p.Caisson(p.t, p.repo, "close", "--keep", "always", task)
		p.nowhere(task)
		p.OK(p.t, p.repo, "resume", task)
		if second := p.sh(task, "echo $API_TOKEN").Stdout; second == first {
			p.t.Error("the placeholder is the same after a resume")
		}
		for i, want := range []string{"200", "200", "403"} {
			if s := status(); s != want {
				p.t.Errorf("use %d after the resume: %s, want %s", i, s, want)
			}
		}
		p.policy(strings.Replace(apiPolicy, "path: /api/mine", "path: /api/elsewhere", 1))
		p.eventually(task, "nothing is lent where the policy says another path", func() bool { taken(); status(); return !spelled(taken()) })
		p.policy(strings.Replace(policy, "uses: 3", "uses: 30", 1))
		p.eventually(task, "it is lent again", func() bool { return status() == "200" })
		p.policy(policy + "deny: {credentials: [api]}\n")
		p.eventually(task, "it is taken back, and nobody used it", func() bool {
			log := p.OK(p.t, p.repo, "log", "--json", task)
			return strings.LastIndex(log, `"type":"credential.back"`) > strings.LastIndex(log, `"type":"credential.lent"`)
		})
		taken()
		if r := p.sh(task, use); spelled(taken()) {
			p.t.Errorf("it is lent after it was denied: %v", r)
		}
		p.policy(policy)
		p.OK(p.t, p.repo, "close", "--discard", task)
		if show := p.OK(p.t, p.repo, "show", "--json", task); strings.Contains(show, `"state": "present"`) {
			p.t.Errorf("something is left: %s", show)
		}
	})
}

func (p *place) eventually(task, what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(harness.Limit); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not: %s\n%s", what, p.OK(p.t, p.repo, "log", "--egress", task))
		}
	}
}

// TestProductionKey: each use of a credential of production is a question that shows
// method and URL; a yes is for that one; where nobody is there it is a no.
func TestProductionKey(t *testing.T) {
	one(t, func(p *place) {
		task := p.armed(apiPolicy, "--lend", "prod")
		use := func(task string) (out string) {
			cmd := p.Command(context.Background(), p.repo, harness.Bin(), "exec", task, "--", "bash", "-c", curl+`-m 300 -o /dev/null -w '%{http_code}' -H "X-Api-Key: $PROD_KEY" 'https://git.test/api/prod/x?y=z'`)
			var b strings.Builder
			cmd.Stdout = &b
			if err := cmd.Start(); err != nil {
				p.t.Fatal(err)
			}
			defer func() { _ = cmd.Wait(); out = strings.TrimSpace(b.String()) }()
			if task == "alone" {
				return
			}
			var q []struct{ ID, Tool, Call, Rule, Script string }
			p.eventually(task, "somebody is asked", func() bool {
				l := harness.Decode[struct {
					Questions []struct{ ID, Tool, Call, Rule, Script string }
				}](p.t, p.OK(p.t, p.repo, "approve", "--json"))
				q = l.Questions
				return len(q) > 0
			})
			if !strings.Contains(q[0].Tool, "GET https://git.test/api/prod/x") || !strings.Contains(q[0].Rule, "prod") || spelled(fmt.Sprint(q)) ||
				!strings.Contains(q[0].Script, "x?y=z") || strings.Contains(q[0].Call+q[0].Tool, "y=z") { // the query is for the person, not for the record
				p.t.Errorf("%+v", q)
			}
			p.OK(p.t, p.repo, "approve", q[0].ID, "--scope", "tool")
			return
		}
		taken()
		for range 2 { // a yes for the rest of the task is none for another use
			if s, got := use(task), taken(); s != "200" || !strings.Contains(got, fmt.Sprintf("key %q", []string{apiSecret})) {
				p.t.Errorf("after a yes: %s, and the server saw %s", s, got)
			}
		}
		p.armed(apiPolicy, "--lend", "prod", "--unattended", "--name", "alone")
		if s, got := use("alone"), taken(); s != "403" || got != "" {
			p.t.Errorf("nobody was asked: %s, and the server saw %s", s, got)
		}
		if plan := p.OK(p.t, p.repo, "plan", "--lend", "prod", "--allow", "git.test:443", "--", "true"); !strings.Contains(plan, "R6/production") || !strings.Contains(plan, "lend-prod") {
			p.t.Error(plan)
		}
	})
}
