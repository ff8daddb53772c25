//go:build linux

package egress

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// client is a real program, what it fetches by its own name with no word about a
// proxy, and what it must say then.
type client struct {
	name, program, line, want string
	saw                       string // of the world
	through                   string // with the variables the product sets: connect, http or direct; empty: it depends on its version
}

// alike are those that start slowly and, without variables, are one more of a kind
// that is tried.
var alike = []string{"pnpm", "yarn", "apt, HTTPS", "wget"}

// needs is what a person has to do for a program of the list, where that is
// something.
var needs = map[string]string{
	"node, fetch":           "nothing; before Node 24 it knows no proxy",
	"apt":                   "folders of its own (`-o Dir::State=…`, `Dir::Cache`, `Dir::Etc`): the machine's are root's; `apt-get download` and `dpkg -x`, for nobody inside is root",
	"apt, HTTPS":            "the same",
	"psql, by name":         "its port in `--allow`",
	"psql, on this machine": "`--allow 127.0.0.1:PORT`",
}

// aptLine is apt with folders of its own: those of the machine are not the task's.
const aptLine = "mkdir -p s/lists/partial c/archives/partial; touch s/status; echo 'deb [trusted=yes] %s://deb.test ./' >list; " +
	"O=\"-qq -o Dir::State=$PWD/s -o Dir::State::status=$PWD/s/status -o Dir::Cache=$PWD/c -o Dir::Etc=$PWD -o Dir::Etc::sourcelist=$PWD/list -o Dir::Etc::parts=none -o Debug::NoLocking=1\"; " +
	"apt-get $O update && apt-get $O download thing && cat thing_1.0_all.deb"

// The world has no database of checksums.
const goEnv = "export GOFLAGS=-modcacherw GONOSUMDB='*' GOTOOLCHAIN=local GOPATH=$PWD/gopath GOCACHE=$PWD/gocache; "

var clientList = []client{
	{"curl, HTTP/2", "curl", "curl -sS -m 60 https://a.test/proto", "HTTP/2.0 to a.test", "", "connect"},
	{"curl, plain HTTP", "curl", "curl -sS -m 60 http://a.test/proto", "HTTP/1.1 to a.test", "", "http"},
	{"wget", "wget", "wget -q -O - https://a.test/proto", "to a.test", "", "connect"},
	{"git clone and push", "git", "git clone -q https://git.test/repo.git c && cd c && echo more >more && git add more && git commit -q -m more && git push -q origin HEAD:refs/heads/$CLIENT && git ls-remote origin", "refs/heads/", "git /repo.git/git-receive-pack", "connect"},
	{"npm", "npm", "npm install --no-audit --no-fund --cache $PWD/cache thing && node -p 'require(\"thing\")'", "the thing", "registry " + npmHost + "/thing/-/thing-1.0.0.tgz", "connect"},
	{"pnpm", "pnpm", "pnpm add --store-dir $PWD/store thing && node -p 'require(\"thing\")'", "the thing", "registry " + npmHost + "/thing/-/thing-1.0.0.tgz", "connect"},
	{"yarn", "yarn", "echo '{}' >package.json && yarn add --no-progress --cache-folder $PWD/cache thing && node -p 'require(\"thing\")'", "the thing", "registry " + yarnHost + "/thing", "connect"},
	{"pip", "pip3", "python3 -m pip install --no-cache-dir --disable-pip-version-check -q --target lib thing && PYTHONPATH=lib python3 -c 'import thing'", "the thing", "registry " + wheelHost + "/thing", "connect"},
	{"python, urllib", "python3", "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://a.test/proto\").read().decode())'", "to a.test", "", "connect"},
	{"node, fetch", "node", "node --use-openssl-ca -e 'fetch(\"https://a.test/proto\").then(r => r.text()).then(t => console.log(t))'", "to a.test", "", ""},
	{"go", "go", goEnv + "go mod init x.test/x && go get thing.test/thing@latest && cat gopath/pkg/mod/thing.test/thing@v1.0.0/thing.go", "the thing", "registry " + goHost + "/thing.test/thing/@v/v1.0.0.zip", "connect"},
	{"cargo", "cargo", "export CARGO_HOME=$PWD/cargo; mkdir src; touch src/lib.rs; printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n[dependencies]\\nthing=\"1\"\\n' >Cargo.toml && cargo fetch -q && ls cargo/registry/src/*", "thing-1.0.0", "registry " + crateHost + "/crates/thing/1.0.0/download", "connect"},
	{"apt", "apt-get", fmt.Sprintf(aptLine, "http"), "the thing", "registry deb.test/thing_1.0_all.deb", "http"},
	{"apt, HTTPS", "apt-get", fmt.Sprintf(aptLine, "https"), "the thing", "registry deb.test/thing_1.0_all.deb", "connect"},
	{"psql, by name", "psql", "psql -X -h db.test -p 5433 -U tester -d postgres -Atc \"select 'the thing'\"", "the thing", "", "direct"},
	{"psql, on this machine", "psql", "psql -X -h 127.0.0.1 -p 5433 -U tester -d postgres -Atc \"select 'the thing'\" && psql -X -h localhost -p 5433 -U tester -d postgres -Atc \"select 'again'\"", "again", "", "direct"},
}

// bare takes away every variable that the product sets about a proxy.
const bare = `unset $(env | sed -n 's/^\([A-Za-z_]*[Pp][Rr][Oo][Xx][Yy]\)=.*/\1/p'); `

// TestClients: programs that people use fetch what was allowed, from its own
// name, with the variables that a task has and without one of them.
func TestClients(t *testing.T) {
	one(t, func(p *place) {
		p.Env = append(slices.DeleteFunc(p.Env, func(s string) bool { return strings.HasPrefix(s, "PATH=") }), "PATH="+tools+":/usr/local/bin:/usr/bin:/bin")
		p.repository()
		if _, err := os.Stat("/usr/lib/postgresql"); err == nil {
			postgres(p.t, "127.0.0.1", dbHost)
		}
		flags := []string{"--net", "registries"}
		for _, s := range []string{"a.test:80", "a.test:443", "git.test:443", "deb.test:80", "deb.test:443", "db.test:5433", "127.0.0.1:5433"} {
			flags = append(flags, "--allow", s)
		}
		task := p.open(flags...)
		met := regexp.MustCompile(`"proto":"(connect|http|direct|socks5)"`)
		for i, c := range clientList {
			p.t.Run(c.name, func(t *testing.T) {
				if r := p.outside("command -v " + c.program); r.Exit != 0 {
					t.Skipf("%s is not on this machine", c.program)
				}
				for j, how := range []string{"", bare} {
					if how != "" && slices.Contains(alike, c.name) && os.Getenv("CAISSON_TEST_FULL") == "" {
						continue
					}
					taken()
					before := len(p.crossings(task))
					r := p.sh(task, fmt.Sprintf("mkdir -p /tmp/c%d && cd /tmp/c%d && export CLIENT=c%d NODE_EXTRA_CA_CERTS=%s; %s%s", i*2+j, i*2+j, i*2+j, trust, how, c.line))
					got := taken()
					if r.Exit != 0 || !strings.Contains(r.Stdout, c.want) {
						t.Errorf("%q: %v\nthe world saw %q", how, r, got)
					}
					if c.saw != "" && !has(got, c.saw) {
						t.Errorf("%q: the world saw %q", how, got)
					}
					var by []string
					for _, e := range p.crossings(task)[before:] {
						if s, _ := e.Body["proto"].(string); e.Body["verdict"] == "allow" && met.MatchString(`"proto":"`+s+`"`) && !slices.Contains(by, s) {
							by = append(by, s)
						}
					}
					want := c.through
					if how != "" && c.through != "http" {
						want = "direct"
					}
					if want != "" && !slices.Equal(by, []string{want}) {
						t.Errorf("%q: it left by %q, not by %s", how, by, want)
					}
				}
			})
		}
	})
}

// repository makes what git.test serves.
func (p *place) repository() {
	top := p.Dir + "/served"
	p.Mkdir(p.t, top)
	p.Git(p.t, top, "clone", "-q", "--bare", p.repo, top+"/repo.git")
	p.Git(p.t, top+"/repo.git", "config", "http.receivepack", "true")
	for d := top; d != filepath.Dir(p.Dir); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	gitFolder.Store(&top)
	p.t.Cleanup(func() { gitFolder.Store(nil) })
}

// tools are folders of programs that are not in the usual place, in the world.
const tools = "/usr/local/go/bin:/srv/cargo/bin:/srv/managers/bin"

// lendTools puts what is a person's own (cargo of rustup), or was fetched for
// these tests, where a task sees it.
func lendTools() {
	if dir := os.Getenv(managersEnv); dir != "" {
		// As they lie where they are installed for all of a machine.
		lend(dir, "/srv/managers/lib/node_modules")
		if os.Mkdir("/srv/managers/bin", 0o755) == nil {
			_ = os.Symlink("../lib/node_modules/pnpm/bin/pnpm.cjs", "/srv/managers/bin/pnpm")
			_ = os.Symlink("../lib/node_modules/yarn/bin/yarn.js", "/srv/managers/bin/yarn")
		}
	}
	out, err := exec.Command("rustup", "which", "cargo").Output()
	if err != nil {
		return
	}
	top := filepath.Dir(filepath.Dir(strings.TrimSpace(string(out))))
	lend(top, "/srv/cargo")
}
