//go:build linux

package egress

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// gitRoot is where a.test has its repositories; nil: it has none.
var gitRoot atomic.Pointer[string]

// serveGit answers for git over HTTP, by git's own server.
func serveGit(w http.ResponseWriter, r *http.Request) {
	root := gitRoot.Load()
	if root == nil {
		http.NotFound(w, r)
		return
	}
	note("git %s %s %s", r.Method, r.URL.Path, r.URL.RawQuery)
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + *root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true", "GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*"}}
	h.ServeHTTP(w, r)
}

// remote makes a bare repository that a.test serves.
func (p *place) remote(name string) string {
	p.t.Helper()
	root := p.t.TempDir()
	gitRoot.Store(&root)
	p.t.Cleanup(func() { gitRoot.Store(nil) })
	if out, err := exec.Command("git", "init", "-q", "--bare", filepath.Join(root, name)).CombinedOutput(); err != nil {
		p.t.Fatalf("%s %v", out, err)
	}
	return filepath.Join(root, name)
}

// refs are those of a bare repository of this test.
func (p *place) refs(dir string) string {
	p.t.Helper()
	out, err := exec.Command("git", "-C", dir, "for-each-ref", "--format=%(refname)").CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s %v", out, err)
	}
	return strings.TrimSpace(string(out))
}

// whole is a question with what a person is shown of it.
type whole struct {
	ID, Tool, Script, Call, Rule, Digest string
	Argv                                 []string
}

// answered runs a line in a task whose question is answered so, and returns it.
func (p *place) answered(task, line string, answer ...string) (harness.Result, whole) {
	p.t.Helper()
	cmd := p.Command(context.Background(), p.repo, harness.Bin(), "exec", task, "--", "bash", "-c", line)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.question()
	l := harness.Decode[struct{ Questions []whole }](p.t, p.OK(p.t, p.repo, "approve", "--json"))
	if len(l.Questions) != 1 {
		p.t.Fatalf("%d questions", len(l.Questions))
	}
	q := l.Questions[0]
	p.OK(p.t, p.repo, append([]string{answer[0], q.ID}, answer[1:]...)...)
	_ = cmd.Wait()
	return harness.Result{Args: []string{line}, Stdout: out.String(), Stderr: errs.String(), Exit: cmd.ProcessState.ExitCode()}, q
}

const commit = "cd \"$(git rev-parse --show-toplevel)\" && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m more && "

// TestPush: git push over HTTP stops for a person who sees which refs it moves,
// and leaves as they said: once, or not at all.
func TestPush(t *testing.T) {
	each(t, func(p *place) {
		bare := p.remote("r.git")
		task := p.open(allow([]string{"a.test:80"})...)
		push := func(ref string) string {
			return commit + "git push -q http://a.test/git/r.git HEAD:refs/heads/" + ref
		}
		r, q := p.answered(task, push("denied"), "deny", "--reason", "not to this one")
		if r.Exit == 0 || p.refs(bare) != "" {
			p.t.Errorf("a push that was denied: %v %s", r, p.refs(bare))
		}
		if !strings.Contains(q.Script, "makes refs/heads/denied at ") || !strings.Contains(q.Tool, "push at http://a.test:80/git/r.git/git-receive-pack") {
			p.t.Errorf("a person is shown %+v", q)
		}
		taken()
		if r, q = p.answered(task, push("yes"), "approve"); r.Exit != 0 || p.refs(bare) != "refs/heads/yes" {
			p.t.Errorf("a push that was allowed: %v %s", r, p.refs(bare))
		}
		sent := 0
		for _, s := range taken() {
			if strings.HasPrefix(s, "git POST") {
				sent++
			}
		}
		if sent != 1 {
			p.t.Errorf("it was sent %d times", sent)
		}
		// Programs that know no proxy; a move; and a yes for the tool is for that push alone.
		if r, q = p.answered(task, "git config --global http.proxy ''; unset http_proxy HTTP_PROXY ALL_PROXY all_proxy; "+push("yes"), "approve", "--scope", "tool"); r.Exit != 0 || !strings.Contains(q.Script, "moves refs/heads/yes from ") {
			p.t.Errorf("%v %+v", r, q)
		}
		if r, q = p.answered(task, commit+"git push -q http://a.test/git/r.git :refs/heads/yes", "deny"); r.Exit == 0 || p.refs(bare) != "refs/heads/yes" || !strings.Contains(q.Script, "deletes refs/heads/yes") {
			p.t.Errorf("another push than the one that was allowed: %v %+v", r, q)
		}
		// What reads asks nobody.
		if r := p.sh(task, "git ls-remote http://a.test/git/r.git; git clone -q http://a.test/git/r.git /tmp/c"); r.Exit != 0 || !strings.Contains(r.Stdout, "refs/heads/yes") {
			p.t.Error(r)
		}
		// Nobody is there.
		alone := p.open(append(allow([]string{"a.test:80"}), "--unattended")...)
		if r := p.sh(alone, push("alone")); r.Exit == 0 || strings.Contains(p.refs(bare), "alone") {
			p.t.Errorf("nobody was asked: %v", r)
		}
		if r := p.sh(alone, "curl -sS -m 60 -X DELETE http://a.test/x"); !strings.Contains(r.Stdout, "nobody attends this task") {
			p.t.Error(r)
		}
		// Without a boundary the same line asks nobody.
		if r := p.outside(push("outside")); r.Exit != 0 || !strings.Contains(p.refs(bare), "refs/heads/outside") {
			p.t.Errorf("a dead test: %v", r)
		}
	})
}

// TestActsAsked: what a person is asked about is the whole request, and what is
// on record has no query; rules say which further ones are asked about.
func TestActsAsked(t *testing.T) {
	one(t, func(p *place) {
		p.userPolicy("version: 1\noutward: {ask: [{host: a.test, methods: [POST], path: /v1/charges}]}\n")
		task := p.open(allow(granted)...)
		taken()
		r, q := p.answered(task, `curl -sS -X DELETE -d $'{"a":"\e[31mred\u202e"}' 'http://a.test/thing?token=s3cret'`, "approve")
		if !strings.Contains(r.Stdout, "DELETE /thing") || !strings.Contains(q.Script, "token=s3cret") || strings.ContainsAny(q.Script, "\x1b\u202e") || !strings.Contains(q.Script, "red") {
			p.t.Errorf("%v %+v", r, q)
		}
		if strings.Contains(q.Call+q.Tool, "s3cret") {
			p.t.Errorf("what goes on record has a query: %+v", q)
		}
		// A rule of the policy; the same path by GET is not meant.
		if r := p.sh(task, "curl -sS -m 60 http://a.test/v1/charges/1"); !strings.Contains(r.Stdout, "GET /v1/charges/1") {
			p.t.Error(r)
		}
		if r, q = p.answered(task, "curl -sS -d amount=5 http://a.test/v1/charges", "deny", "--reason", "too much"); !strings.Contains(r.Stdout, "a person denied it: too much") || !strings.Contains(q.Script, "amount=5") {
			p.t.Errorf("%v %+v", r, q)
		}
		// The very same again is asked about again; another body is another request.
		_, first := p.answered(task, "curl -sS -d amount=5 http://a.test/v1/charges", "approve")
		_, other := p.answered(task, "curl -sS -d amount=6 http://a.test/v1/charges", "deny")
		if first.Digest != q.Digest || other.Digest == q.Digest {
			p.t.Errorf("digests %s %s %s", q.Digest, first.Digest, other.Digest)
		}
		acts := 0
		log := ""
		for line := range strings.SplitSeq(p.OK(p.t, p.repo, "log", "--json", task), "\n") {
			if strings.Contains(line, `"type":"approval.`) || strings.Contains(line, `"type":"egress.`) {
				log += line + "\n"
			}
		}
		for _, e := range p.crossings(task) {
			if e.Body["act"] == "delete" && e.Body["request"] != nil && e.Body["asked"] == true {
				acts++
			}
		}
		if acts != 1 || strings.Contains(log, "s3cret") || strings.Contains(log, "amount=5") {
			p.t.Errorf("%d acts on record\n%s", acts, log)
		}
		p.OK(p.t, p.repo, "close", "--discard", task)

		for verdict, want := range map[string]string{"deny": "outward.verdict is deny", "allow": "DELETE /x"} {
			p.userPolicy("version: 1\noutward: {verdict: " + verdict + "}\n")
			task := p.open(allow(granted)...)
			if r := p.sh(task, "curl -sS -m 60 -X DELETE http://a.test/x"); !strings.Contains(r.Stdout, want) {
				p.t.Errorf("%s: %v", verdict, r)
			}
			p.OK(p.t, p.repo, "close", "--discard", task)
		}
		var plan struct{ Notes []string }
		if err := json.Unmarshal([]byte(p.OK(p.t, p.repo, "plan", "--json", "--allow", "a.test:80")), &plan); err != nil || !strings.Contains(strings.Join(plan.Notes, " "), "inside any other TLS, and in SSH, nobody sees them") {
			p.t.Errorf("%v %q", err, plan.Notes)
		}
	})
}

// TestCutIsTold: of an address that is too long to be shown it is said how much is
// hidden, and where all of it is; the terminal and the record agree.
func TestCutIsTold(t *testing.T) {
	one(t, func(p *place) {
		task := p.open(allow(granted)...)
		const long = `$(printf %09000d 0)`
		r, q := p.answered(task, `curl -sS -X DELETE "http://a.test/pad`+long+`?x=`+long+`&really=this"`, "approve")
		if !strings.Contains(r.Stdout, "DELETE /pad") {
			p.t.Error(r)
		}
		for in, want := range map[string]string{q.Script: "more bytes are not shown: `caisson approve --json` has all of it]", q.Call: "more bytes are not shown]", q.Tool: "more bytes are not shown]"} {
			if !strings.Contains(in, want) {
				p.t.Errorf("%q is not in %s", want, in)
			}
		}
		if len(q.Argv) != 2 || !strings.HasSuffix(q.Argv[1], "&really=this") || strings.Contains(q.Script, "really") {
			p.t.Errorf("all of it is not there, or too much: %q", q.Argv)
		}
	})
}

// TestPushInTLS: a push inside TLS stops where the policy has that host read, and
// nowhere else, which the plan says.
func TestPushInTLS(t *testing.T) {
	one(t, func(p *place) {
		bare := p.remote("r.git")
		push := func(ref string) string {
			return commit + "git push -q https://a.test/git/r.git HEAD:refs/heads/" + ref
		}
		tunnel := p.open("--allow", "a.test:443")
		if r := p.sh(tunnel, push("unseen")); r.Exit != 0 || p.refs(bare) != "refs/heads/unseen" {
			p.t.Fatalf("nobody reads this, so nobody is asked: %v", r)
		}
		p.OK(p.t, p.repo, "close", "--discard", tunnel)
		p.userPolicy("version: 1\noutward: {read: [a.test], ask: [{host: a.test, methods: [POST], path: /v1/charges}]}\n")
		if s := p.OK(p.t, p.repo, "plan", "--allow", "a.test:443"); !strings.Contains(s, "plain HTTP, TLS to a.test") {
			p.t.Error(s)
		}
		task := p.open("--allow", "a.test:443")
		r, q := p.answered(task, push("denied"), "deny", "--reason", "not this branch")
		if r.Exit == 0 || strings.Contains(p.refs(bare), "denied") || !strings.Contains(q.Script, "makes refs/heads/denied at ") || !strings.Contains(q.Tool, "push at https://a.test:443/git/r.git/git-receive-pack") {
			p.t.Errorf("%v %+v", r, q)
		}
		if r, _ = p.answered(task, push("yes"), "approve"); r.Exit != 0 || !strings.Contains(p.refs(bare), "refs/heads/yes") {
			p.t.Errorf("%v %s", r, p.refs(bare))
		}
		for _, version := range []string{"--http1.1", "--http2"} {
			if r, q = p.answered(task, "curl -sS "+version+" -d amount=5 https://a.test/v1/charges", "deny", "--reason", "too much"); !strings.Contains(r.Stdout, "a person denied it: too much") || !strings.Contains(q.Script, "amount=5") {
				p.t.Errorf("%s: %v %+v", version, r, q)
			}
			if r, q = p.answered(task, "curl -sS "+version+" -X DELETE https://a.test/x?y=1", "approve"); !strings.Contains(r.Stdout, "DELETE /x") || !strings.Contains(q.Script, "DELETE https://a.test:443/x?y=1") {
				p.t.Errorf("%s: %v %+v", version, r, q)
			}
		}
		if r := p.sh(task, "git ls-remote https://a.test/git/r.git"); r.Exit != 0 || !strings.Contains(r.Stdout, "refs/heads/yes") {
			p.t.Error(r)
		}
	})
}

// TestHeldDies: what waits for an answer when its task is killed is sent never, and
// nothing of it stays.
func TestHeldDies(t *testing.T) {
	one(t, func(p *place) {
		task := p.open(allow(granted)...)
		taken()
		cmd := p.begin("exec", task, "--", "bash", "-c", "head -c 3000000 /dev/zero | curl -sS -X DELETE -T - http://a.test/x")
		q := p.question()
		p.killSupervisor(task)
		_ = cmd.Wait()
		if r := p.Caisson(p.t, p.repo, "approve", q.ID); r.Exit == 0 {
			p.t.Errorf("an answer to a question of a dead task: %v", r)
		}
		p.Caisson(p.t, p.repo, "reap")
		if got := taken(); len(got) > 0 {
			p.t.Errorf("the world saw %q", got)
		}
	})
}
