//go:build linux

package egress

import (
	"context"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/test/harness"
)

// fakeNPM is a package manager that fetches from the registry and then tries what
// an evil one would.
var fakeNPM = strings.ReplaceAll(`#!/bin/bash
echo "npm $*"
case "$*" in *fail*) echo "it failed" >&2; exit 4;; *hang*) exec curl -sSk -o /dev/null https://REGISTRY/endless;; esac
curl -sSk -m 60 -o node_modules/fetched https://REGISTRY/pkg || exit 9
mkdir -p "$npm_config_cache" && echo cached >"$npm_config_cache/one"
echo secret=$SECRET
echo changed >package.json && echo "source is writable"
echo hook >.git/config && echo "git is writable"
echo out >/run/boundary/out/x && echo "output is writable"
curl -fsS -m 20 http://b.test/ && echo "reached b.test"
curl -fsS -m 20 http://a.test/ && echo "reached a.test"
curl -fsS -m 20 http://169.254.169.254/ && echo "reached metadata"
(setsid sleep 600 &)
exit 0
`, "REGISTRY", registry)

// registry is a host that may be reached in the phase.
var registry = string(policy.Registries[0])

func npmProject(p *place) (env []string) {
	for name, text := range map[string]string{"package.json": "{}\n", "package-lock.json": "{}\n", ".gitignore": "node_modules/\n"} {
		p.Write(p.t, p.repo+"/"+name, text, 0o644)
	}
	p.Git(p.t, p.repo, "add", "-A")
	p.Git(p.t, p.repo, "commit", "-q", "-m", "npm")
	p.Write(p.t, p.Dir+"/tools/bin/npm", fakeNPM, 0o755)
	return []string{"PATH=" + p.Dir + "/tools/bin:/usr/local/bin:/usr/bin:/bin", "SECRET=hunter2"}
}

// with runs the product with more environment.
func (p *place) with(env []string, args ...string) harness.Result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := p.Command(ctx, p.repo, harness.Bin(), args...)
	cmd.Env = append(cmd.Env, env...)
	return harness.Run(p.t, cmd)
}

func checkInstalled(p *place, text string) {
	p.t.Helper()
	for _, no := range []string{"writable", "reached", "hunter2"} {
		if strings.Contains(text, no) {
			p.t.Errorf("an installation was more than that (%s): %s", no, text)
		}
	}
	got := taken()
	if !has(got, "https "+registry+" 93.184.215.20:443") {
		p.t.Errorf("the registry saw nothing: %q", got)
	}
	for _, s := range got {
		if strings.Contains(s, ".test") || strings.Contains(s, metadata) {
			p.t.Errorf("an installation reached %q", s)
		}
	}
}

// TestInstallTool: dependencies come from a boundary of their own, which fills
// their folder and nothing else; the task that uses them has no network, and
// nothing of the installation goes on.
func TestInstallTool(t *testing.T) {
	each(t, func(p *place) {
		env := npmProject(p)
		r := p.with(env, "open", "--name", "inst", "--phase", "install", "--env", "SECRET")
		if r.Exit != 0 {
			p.t.Fatal(r)
		}
		taken()
		r = p.with(env, "tool", "inst", "install_dependencies", "{}")
		if r.Exit != 0 || !strings.Contains(r.Stdout, "npm ci") {
			p.t.Fatal(r)
		}
		checkInstalled(p, r.Stdout)
		r = p.sh("inst", `cat node_modules/fetched; cat /run/boundary/deps/npm/one; cat package.json; echo mine >node_modules/own && echo "still writable"; env | grep -i _proxy; pgrep -x sleep; curl -sS -m 20 http://`+registry+"/")
		for _, want := range []string{"GET /pkg", "cached", "{}", "still writable"} {
			if !strings.Contains(r.Stdout, want) {
				p.t.Errorf("%q is not there: %v", want, r)
			}
		}
		if strings.Contains(r.Stdout, "proxy") || has(taken(), "http") {
			p.t.Errorf("the task has a network: %v", r)
		}
		// A failure is an answer, a link in the place of the folder a refusal.
		if r := p.with(env, "tool", "inst", "install_dependencies", `{"manager": "npm", "args": ["fail"]}`); !strings.Contains(r.Stdout, `"exit": 4`) {
			p.t.Error(r)
		}
		p.sh("inst", "rm -rf node_modules; ln -s "+p.Home+" node_modules")
		if r := p.with(env, "tool", "inst", "install_dependencies", "{}"); r.Exit == 0 || !strings.Contains(r.Stderr, "is no folder") {
			p.t.Error(r)
		}
		if r := p.with(env, "tool", "inst", "install_dependencies", `{"manager": "rm"}`); r.Exit == 0 {
			p.t.Error(r)
		}
		log := p.OK(p.t, p.repo, "log", "inst", "--json")
		for _, want := range []string{`"install.intent"`, `"install.outcome"`, `"phase":"install"`} {
			if !strings.Contains(log, want) {
				p.t.Errorf("%s is not on record", want)
			}
		}
	})
}

// TestInstallKilled: of an installation whose supervisor dies nothing goes on.
func TestInstallKilled(t *testing.T) {
	one(t, func(p *place) {
		env := npmProject(p)
		if r := p.with(env, "open", "--name", "killed", "--phase", "install"); r.Exit != 0 {
			p.t.Fatal(r)
		}
		taken()
		cmd := p.begin("tool", "killed", "install_dependencies", `{"args": ["hang"]}`)
		saw(p.t, "endless begins")
		p.killSupervisor("killed")
		saw(p.t, "endless ends")
		_ = cmd.Wait()
		p.OK(p.t, p.repo, "reap")
		if v := harness.Decode[struct{ State string }](p.t, p.OK(p.t, p.repo, "show", "--json", "killed")); v.State != "kept" && v.State != "closed" {
			p.t.Errorf("the task is %s", v.State)
		}
	})
}

// TestInstallRun: run installs first and then runs offline; without the phase
// nothing is installed, and a policy may forbid it.
func TestInstallRun(t *testing.T) {
	one(t, func(p *place) {
		env := npmProject(p)
		taken()
		r := p.with(env, "run", "--phase", "install", "--keep", "never", "--", "bash", "-c", "cat node_modules/fetched; curl -sS -m 20 https://"+registry+"/")
		if !strings.Contains(r.Stdout, "GET /pkg") {
			p.t.Fatal(r)
		}
		checkInstalled(p, r.Stdout+r.Stderr)
		r = p.with(env, "open", "--name", "plain")
		if r = p.with(env, "tool", "plain", "install_dependencies", "{}"); r.Exit == 0 || !strings.Contains(r.Stderr, "--phase install") {
			p.t.Error(r)
		}
		p.userPolicy("version: 1\nnet: allowlist\n")
		if r := p.with(env, "run", "--phase", "install", "--", "true"); r.Exit == 0 || !strings.Contains(r.Stderr, "more than the policy allows") {
			p.t.Error(r)
		}
		p.userPolicy("version: 1\ndeny: {egress: [{host: " + registry + "}]}\n")
		taken()
		if r := p.with(env, "run", "--phase", "install", "--", "true"); r.Exit == 0 || has(taken(), "https") {
			p.t.Errorf("a denied registry was reached: %v", r)
		}
		p.userPolicy("version: 1\n")
		// One that ends by a signal, or that hangs until it is stopped.
		p.Write(p.t, p.Dir+"/tools/bin/npm", "#!/bin/bash\nkill -9 $$\n", 0o755)
		if r := p.with(env, "run", "--phase", "install", "--", "true"); r.Exit == 0 || !strings.Contains(r.Stderr, "signal 9 ended it") || !strings.Contains(r.Stderr, "log --egress") {
			p.t.Error(r)
		}
		p.Write(p.t, p.Dir+"/tools/bin/npm", "#!/bin/bash\nexec sleep 600\n", 0o755)
		if r := p.with(env, "run", "--timeout", "5s", "--phase", "install", "--", "true"); r.Exit == 0 || !strings.Contains(r.Stderr, "log --egress") {
			p.t.Error(r)
		}
		p.Git(p.t, p.repo, "rm", "-q", "package-lock.json")
		p.Git(p.t, p.repo, "commit", "-q", "-m", "none")
		if r := p.with(env, "run", "--phase", "install", "--", "true"); r.Exit == 0 || !strings.Contains(r.Stderr, "names dependencies") {
			p.t.Error(r)
		}
	})
}
