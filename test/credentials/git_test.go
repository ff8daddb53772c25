//go:build linux

package credentials

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestGitOverHTTPS: git inside clones and pushes with a password that stays
// outside, without a word of configuration; other repositories of the same host
// and other hosts get nothing of it, whatever leads to them.
func TestGitOverHTTPS(t *testing.T) {
	each(t, func(p *place) {
		if _, err := exec.LookPath("git"); err != nil {
			p.t.Skip("no git")
		}
		one, two := "https"+p.Name+".git", "second"+p.Name+".git"
		repository(p.t, "team/"+one)
		repository(p.t, "team/"+two)
		p.policy(`version: 1
credentials:
  repo:
    from: {env: GIT_TOKEN}
    as: git
    class: dev
    user: bot
    to: [{host: git.test, path: /team/` + one + `}]
`)
		p.Env = append(p.Env, "GIT_TOKEN="+secret, "GIT_TERMINAL_PROMPT=0")
		task := p.open("--net", "allowlist", "--allow", "git.test:443", "--allow", "other.test:443", "--lend", "repo")
		taken()
		at := "https://git.test/team/" + one
		if r := p.sh(task, "set -e; cd /tmp; git clone -q "+at+" c; cd c; echo more >>a.txt; git commit -qam 'from inside'"); r.Exit != 0 {
			p.t.Fatal(r, taken(), p.OK(p.t, p.repo, "log", task))
		}
		// What others see waits for a person, lent or not.
		done := make(chan harness.Result, 1)
		go func() { done <- p.sh(task, "cd /tmp/c && git push -q origin HEAD:main") }()
		p.answer("approve", "git-receive-pack")
		if r := <-done; r.Exit != 0 {
			p.t.Fatal(r, taken(), p.OK(p.t, p.repo, "log", task))
		}
		if got := tip(p.t, "team/"+one); !strings.HasPrefix(got, "from inside") {
			p.t.Errorf("the server has %q", got)
		}
		if got := taken(); !strings.Contains(got, "git-receive-pack by bot") || strings.Contains(got, "wrong password") {
			p.t.Errorf("the server saw %s", got)
		}
		// Inside is a placeholder, for that repository alone.
		fill := func(path string) string {
			return "printf 'url=https://git.test/" + path + "\\n\\n' | git credential fill 2>/dev/null | sed -n s/^password=//p"
		}
		place := strings.TrimSpace(p.sh(task, fill("team/"+one)).Stdout)
		if place == "" || place == secret {
			p.t.Errorf("git is told %q", place)
		}
		for _, path := range []string{"team/" + two, "team", "", "team/" + one + "/../" + two, "team/" + one + "x"} {
			if r := p.sh(task, fill(path)); strings.TrimSpace(r.Stdout) != "" {
				p.t.Errorf("for %s git is told %v", path, r)
			}
		}
		if r := p.sh(task, "env; git config --list --show-origin; grep -rs "+secret[:5]+" /run/boundary /etc ~ /proc/self/environ"); strings.Contains(r.Stdout+r.Stderr, secret[:5]) {
			p.t.Error("the password is inside")
		}
		taken()
		curl := func(url string) string {
			return `curl -sS -m 100 -o /dev/null -w '%{http_code}' -u "bot:$PLACE" ` + url + ` | grep -q 200`
		}
		sub := "set -e; d=$(mktemp -d); cd $d; git init -q s; cd s; git -c protocol.file.allow=always submodule --quiet add %s m"
		// The raw helper of a person gives the password to whoever is asked for.
		const raw = `export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=credential.helper GIT_CONFIG_VALUE_0='!f() { echo username=bot; echo password=$GIT_TOKEN; }; f' PLACE=$GIT_TOKEN; `
		for line, inside := range map[string]bool{ // whether it goes inside; with the raw helper each does
			"git ls-remote " + at: true,
			"git -c http.followRedirects=true ls-remote https://git.test/team/" + two:                                 false,
			"git -c http.followRedirects=true ls-remote https://git.test/moved/" + two:                                false,
			"git -c http.followRedirects=true ls-remote https://git.test/away/" + one:                                 false,
			"git ls-remote https://other.test/team/" + one:                                                            false,
			strings.Replace(sub, "%s", "https://git.test/team/"+two, 1):                                               false,
			curl("https://git.test/team/" + one + "/info/refs?service=git-upload-pack"):                               true,
			curl("https://git.test/team/" + two + "/info/refs?service=git-upload-pack"):                               false,
			curl("--path-as-is 'https://git.test/team/" + one + "/../" + two + "/info/refs?service=git-upload-pack'"): false,
			curl("https://other.test/team/" + one + "/info/refs?service=git-upload-pack"):                             false,
		} {
			if r := p.sh(task, "PLACE="+place+"; "+line); (r.Exit == 0) != inside {
				p.t.Errorf("inside: %v", r)
			}
			got := taken()
			for seen := range strings.Lines(got) {
				if strings.Contains(seen, " by bot") && !strings.Contains(seen, "https git.test") || strings.Contains(seen, " by bot") && !strings.Contains(seen, " /team/"+one+"/") {
					p.t.Errorf("%s: the password came to %s", line, seen)
				}
			}
			if r := p.outside(raw + line); r.Exit != 0 && !strings.Contains(line, "..") {
				p.t.Errorf("the control: %v", r)
			}
			taken()
		}
		// What a server says back is without it.
		if r := p.sh(task, "curl -sS -m 100 -u 'bot:"+place+"' https://git.test/team/"+two+"/"); strings.Contains(r.Stdout, secret) {
			p.t.Error(r)
		}
		record := p.OK(p.t, p.repo, "log", "--json", task)
		if strings.Contains(record, secret) || !strings.Contains(record, "credential.used") {
			p.t.Errorf("on record:\n%s", record)
		}
	})
}
