//go:build linux

package egress

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// read are rules for which TLS to a.test must be read, and b.test, which stays a
// tunnel.
var read = []string{"GET https://a.test/pub", "GET http://a.test:18080/pub", "b.test:443"}

// readLines are tried with and without a boundary.
var readLines = []struct {
	name, line, tool string
	want             string // in what is written; empty: it is refused
	reach            string // what the world sees of it outside
}{
	{"HTTP/1.1", "curl -sS -m 60 --http1.1 -w '%{http_version}' https://a.test/pub/x", "curl", "GET /pub/x, 0 bytes\n1.1", "https a.test 93.184.215.14:443 a.test /pub/x"},
	{"HTTP/2", "curl -sS -m 60 --http2 -w '%{http_version}' https://a.test/pub/x", "curl", "GET /pub/x, 0 bytes\n2", "https a.test 93.184.215.14:443 a.test /pub/x"},
	{"without a proxy, by the system's certificates", direct + "unset CURL_CA_BUNDLE SSL_CERT_FILE; curl -sS -m 60 https://a.test/pub/d", "curl", "GET /pub/d", "https a.test 93.184.215.14:443 a.test /pub/d"},
	{"SOCKS", direct + "curl -sS -m 60 ${CAISSON_TASK:+--socks5-hostname 127.0.0.1:61080} https://a.test/pub/s", "curl", "GET /pub/s", "https a.test 93.184.215.14:443 a.test /pub/s"},
	{"python", `python3 -c 'import urllib.request; print(urllib.request.urlopen("https://a.test/pub/py").read().decode())'`, "python3", "GET /pub/py", "https a.test 93.184.215.14:443 a.test /pub/py"},
	{"node", `NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt} node -e 'fetch("https://a.test/pub/js").then(r=>r.text()).then(console.log)'`, "node", "GET /pub/js", "https a.test 93.184.215.14:443 a.test /pub/js"},
	{"not the method", "curl -sS -m 60 -X POST -d x https://a.test/pub/x", "curl", "", "https a.test 93.184.215.14:443 a.test /pub/x"},
	{"not the method, HTTP/1.1, no proxy", direct + "curl -sS -m 60 --http1.1 -X PUT -d x https://a.test/pub/x", "curl", "", "https a.test 93.184.215.14:443 a.test /pub/x"},
	{"not the path", "curl -sS -m 60 https://a.test/private", "curl", "", "https a.test 93.184.215.14:443 a.test /private"},
	{"a path in disguise", "curl -sS -m 60 https://a.test/pub%2fx", "curl", "", "https a.test 93.184.215.14:443 a.test /pub/x"},
	{"another Host in TLS", "curl -sS -m 60 -H 'Host: b.test' https://a.test/pub/x", "curl", "", "https a.test 93.184.215.14:443 b.test /pub/x"},
	{"another Host in HTTP/1.1 in TLS", "curl -sS -m 60 --http1.1 -H 'Host: b.test' https://a.test/pub/x", "curl", "", "https a.test 93.184.215.14:443 b.test /pub/x"},
}

func (p *place) has(tool string) bool {
	_, err := exec.LookPath(tool)
	return err == nil
}

// TestReadTLS: programs in a task reach by TLS what rules about methods and paths
// allow, and nothing else of the same host.
func TestReadTLS(t *testing.T) {
	one(t, func(p *place) {
		if _, err := os.Stat(trust); err != nil {
			p.t.Skip("this machine keeps its certificates elsewhere, where the world does not add its own")
		}
		task := p.open(allow(read)...)
		for _, l := range readLines {
			if !p.has(l.tool) {
				p.t.Logf("%s: there is no %s", l.name, l.tool)
				continue
			}
			taken()
			if r := p.outside(l.line); !has(taken(), l.reach) {
				p.t.Errorf("%s: the control reaches nothing: %v", l.name, r)
				continue
			}
			r := p.sh(task, l.line)
			if got := taken(); l.want != "" && (!strings.Contains(r.Stdout, l.want) || !has(got, l.reach)) {
				p.t.Errorf("%s: %v, and the world saw %q", l.name, r, got)
			} else if l.want == "" && (has(got, "https") || !strings.Contains(r.Stdout, "caisson:")) {
				p.t.Errorf("%s: %v, and the world saw %q", l.name, r, got)
			}
		}
		// Methods and paths are ruled at other ports too, for who knows no proxy.
		taken()
		if r := p.sh(task, direct+"curl -sS -m 60 http://a.test:18080/private; curl -sS -m 60 http://a.test:18080/pub/x -d x"); strings.Count(r.Stdout, "caisson:") != 2 || has(taken(), "http") {
			p.t.Error(r)
		}
		// Who is named by no method stays who it is.
		r := p.sh(task, "for h in a.test/pub b.test/; do curl -sSv -m 60 https://$h 2>&1 | grep -i issuer:; done")
		if l := strings.Split(strings.TrimSpace(r.Stdout), "\n"); len(l) != 2 || !strings.Contains(l[0], "caisson, inside of "+task) || !strings.Contains(l[1], "authority of the world") {
			p.t.Errorf("they were vouched for by %q", l)
		}
		// A program that trusts something else gets nothing, and the record says why.
		taken()
		r = p.sh(task, "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /tmp/k -subj /CN=x -out /tmp/pin.pem 2>/dev/null; curl -sS -m 60 --cacert /tmp/pin.pem https://a.test/pub/x")
		if has(taken(), "https") || r.Exit == 0 {
			p.t.Error(r)
		}
		var tls, https bool
		for _, e := range p.crossings(task) {
			tls = tls || e.Body["reason"] == "tls" && e.Body["verdict"] == "deny"
			https = https || e.Body["proto"] == "https" && e.Body["verdict"] == "allow" && e.Body["method"] == "GET" && e.Body["path"] == "/pub/x" && e.Body["to"] == "a.test:443"
		}
		if !tls || !https {
			p.t.Errorf("on record: pinned %v, read %v\n%s", tls, https, p.OK(p.t, p.repo, "log", "--egress", task))
		}
	})
}

// TestTrustOfATask: the certificate that a boundary trusts is there alone, is new
// after a resume, and leaves nothing behind.
func TestTrustOfATask(t *testing.T) {
	one(t, func(p *place) {
		if plan := p.OK(p.t, p.repo, append([]string{"plan"}, allow(read)...)...); !strings.Contains(plan, "tls-read") || !strings.Contains(plan, "a.test:443 /pub") {
			p.t.Errorf("the plan does not say what is read:\n%s", plan)
		}
		without := p.open(allow([]string{"a.test:443"})...)
		if r := p.sh(without, "ls /run/boundary/trust.pem; env | grep -c CA_BUNDLE; grep -c caisson /proc/self/mounts"); !strings.HasPrefix(r.Stdout, "0\n") {
			p.t.Errorf("a task whose TLS nobody reads: %v", r)
		}
		task := p.open(append(allow(read), "--keep", "always")...)
		if s := p.OK(p.t, p.repo, "show", task); !strings.Contains(s, "tls-read") {
			p.t.Errorf("show does not say what is read:\n%s", s)
		}
		last := "awk '/BEGIN/{b=\"\"} {b=b $0} END{print b}' "
		own := func() string {
			r := p.sh(task, last+"$SSL_CERT_FILE; for f in $SSL_CERT_FILE "+trust+"; do echo x 2>/dev/null >>$f && echo written; done")
			if strings.Contains(r.Stdout, "written") || len(r.Stdout) < 200 {
				p.t.Fatal(r)
			}
			return strings.TrimSpace(r.Stdout)
		}
		first := own()
		if r := p.outside(last + trust); strings.Contains(r.Stdout, first) {
			p.t.Error("this machine trusts the certificate of a task")
		}
		if r := p.sh(without, last+trust); strings.Contains(r.Stdout, first) {
			p.t.Error("another task trusts it")
		}
		p.Caisson(p.t, p.repo, "close", task)
		p.OK(p.t, p.repo, "resume", task)
		second := own()
		if first == second {
			p.t.Error("it is the same after a resume")
		}
		if r := p.sh(task, "curl -sS -m 60 https://a.test/pub/again"); !strings.Contains(r.Stdout, "GET /pub/again") {
			p.t.Error(r)
		}
		p.OK(p.t, p.repo, "close", "--discard", task)
		// A piece of each, as it would stand in a file.
		pieces := []string{first[len(first)/2:][:40], second[len(second)/2:][:40], "PRIVATE KEY"}
		_ = filepath.Walk(p.Home, func(path string, st os.FileInfo, err error) error {
			if err != nil || !st.Mode().IsRegular() || st.Size() > 64<<20 {
				return nil
			}
			b, err := os.ReadFile(path)
			if err == nil && slices.ContainsFunc(pieces, func(s string) bool { return strings.Contains(string(b), s) }) {
				p.t.Errorf("%s keeps something of a certificate", path)
			}
			return nil
		})
	})
}

// TestGitInReadTLS: git works over TLS that is read.
func TestGitInReadTLS(t *testing.T) {
	one(t, func(p *place) {
		p.remote("read.git")
		rules := []string{"GET https://a.test/git/read.git", "POST https://a.test/git/read.git/git-upload-pack"}
		task := p.open(allow(rules)...)
		if r := p.sh(task, "git clone -q https://a.test/git/read.git /tmp/r && echo cloned"); !strings.Contains(r.Stdout, "cloned") {
			p.t.Error(r)
		}
		taken()
		r := p.sh(task, "cd /tmp/r && git commit -q --allow-empty -m x && git push -q origin HEAD:refs/heads/x")
		if r.Exit == 0 || slices.ContainsFunc(taken(), func(s string) bool { return strings.HasPrefix(s, "git POST") }) {
			p.t.Errorf("a push, of which only reading is allowed: %v", r)
		}
	})
}

// TestInstallInReadTLS: an installation has a certificate of its own where a rule
// about a registry names methods.
func TestInstallInReadTLS(t *testing.T) {
	one(t, func(p *place) {
		p.userPolicy("version: 1\ndeny: {egress: [{host: " + registry + ", methods: [PUT]}]}\n")
		env := npmProject(p)
		if r := p.with(env, "open", "--name", "inst", "--phase", "install", "--env", "SECRET"); r.Exit != 0 {
			p.t.Fatal(r)
		}
		taken()
		r := p.with(env, "tool", "inst", "install_dependencies")
		if r.Exit != 0 {
			p.t.Fatal(r)
		}
		checkInstalled(p, r.Stdout)
		read := 0
		for _, e := range p.crossings("inst") {
			if e.Body["proto"] == "https" && e.Body["phase"] == "install" && e.Body["verdict"] == "allow" {
				read++
			}
		}
		if read == 0 {
			p.t.Errorf("nothing was read:\n%s", p.OK(p.t, p.repo, "log", "--egress", "inst"))
		}
	})
}
