//go:build linux

package credentials

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// agent starts OpenSSH's agent for a person, with two keys that both servers
// take, and has the person know both servers.
func (p *place) agent() {
	p.t.Helper()
	for _, n := range []string{"ssh-agent", "ssh-add", "ssh-keygen", "ssh"} {
		if _, err := exec.LookPath(n); err != nil {
			p.t.Skip("no " + n)
		}
	}
	if noSSHD != "" {
		p.t.Skip("no SSH server: " + noSSHD)
	}
	socket := p.Dir + "/a"
	cmd := p.Command(p.t.Context(), p.Dir, "ssh-agent", "-D", "-a", socket)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	harness.Eventually(p.t, "the agent listens", func() bool {
		c, err := net.DialTimeout("unix", socket, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	p.Env = append(p.Env, "SSH_AUTH_SOCK="+socket)
	if r := p.outside("mkdir -m 700 ~/.ssh && for k in deploy private; do ssh-keygen -q -t ed25519 -N '' -C $k -f ~/.ssh/$k && ssh-add -q ~/.ssh/$k || exit 1; done; cat ~/.ssh/*.pub"); r.Exit != 0 {
		p.t.Fatal(r)
	} else if err := os.WriteFile(filepath.Join(worldDir, "etc", "authorized"), []byte(r.Stdout), 0o644); err != nil {
		p.t.Fatal(err)
	}
	var known strings.Builder
	for name := range zone {
		known.WriteString(name + " " + hostKey(p.t, name) + "\n")
	}
	p.Write(p.t, p.Home+"/.ssh/known_hosts", known.String(), 0o600)
}

// lentSSH is a policy that lends one key for one host.
const lentSSH = `version: 1
credentials:
  deploy:
    from: {agent: true}
    as: ssh
    class: dev
    keys: [deploy]
    user: git
    sign: [git]
    to: [{host: git.test}]
`

const sshQuiet = "ssh -o BatchMode=yes -o ConnectTimeout=60 "

// TestGitOverSSH: git inside clones, pushes and signs with a key that stays
// outside, by a program that knows no proxy; other keys and hosts are not to be had.
func TestGitOverSSH(t *testing.T) {
	each(t, func(p *place) {
		p.agent()
		repo := "ssh" + p.Name + ".git"
		repository(p.t, repo)
		p.policy(lentSSH)
		task := p.open("--net", "allowlist", "--allow", "git.test:22", "--allow", "other.test:22", "--lend", "deploy")
		taken()
		if r := p.sh(task, "set -e; cd /tmp; git clone -q git@git.test:"+worldDir+"/repos/"+repo+" c; cd c; echo more >>a.txt; git commit -qam 'from inside'; git push -q origin HEAD:main; cat a.txt"); r.Exit != 0 || !strings.Contains(r.Stdout, "hello") {
			p.t.Fatal(r, p.OK(p.t, p.repo, "log", task))
		}
		if got := tip(p.t, repo); !strings.HasPrefix(got, "from inside") {
			p.t.Errorf("the server has %q", got)
		}
		// The server's log is read beside it, and may come later than what git says.
		got := taken()
		for end := time.Now().Add(harness.Limit); strings.Count(got, "ssh git.test publickey git") < 2 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			got += "\n" + taken()
		}
		if strings.Count(got, "ssh git.test publickey git") != 2 {
			p.t.Errorf("the server saw %q", got)
		}
		// A commit is signed with it, and the signature holds outside.
		if r := p.sh(task, `set -e; cd /tmp/c; ssh-add -L >/tmp/key.pub; git -c gpg.format=ssh -c user.signingkey=/tmp/key.pub commit -S -q --allow-empty -m signed; git push -q origin HEAD:main`); r.Exit != 0 {
			p.t.Error(r)
		}
		if r := p.outside("echo \"t@example.org namespaces=\\\"git\\\" $(cat ~/.ssh/deploy.pub)\" >~/signers; git clone -q git@git.test:" + worldDir + "/repos/" + repo + " ~/c && git -C ~/c -c gpg.ssh.allowedSignersFile=$HOME/signers log -1 --format='%s %G?'"); strings.TrimSpace(r.Stdout) != "signed G" {
			p.t.Error(r)
		}
		taken()
		for line, inside := range map[string]bool{ // whether it goes inside; outside each does
			sshQuiet + "git@git.test true":   true,
			sshQuiet + "git@other.test true": false,
			sshQuiet + "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null git@other.test true":                                    false,
			sshQuiet + "-A git@git.test ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null git@git.test true": false,
			"echo x | ssh-keygen -q -Y sign -n file -f <(ssh-add -L | head -n1)":                                                            false,
			"ssh-add -L | grep private":                                         false,
			"ssh-keygen -q -t ed25519 -N '' -f /tmp/k$$ && ssh-add -q /tmp/k$$": false,
		} {
			if r := p.sh(task, line); (r.Exit == 0) != inside {
				p.t.Errorf("inside: %v", r)
			}
			if r := p.outside(line); r.Exit != 0 {
				p.t.Errorf("the control: %v", r)
			}
		}
		for line, inside := range map[string]bool{"ssh-add -q -D": false, "ssh-add -x </dev/null": false} {
			if r := p.sh(task, line); (r.Exit == 0) != inside {
				p.t.Errorf("inside: %v", r)
			}
		}
		record := p.OK(p.t, p.repo, "log", task)
		for _, want := range []string{"git.test", "deploy", "was forwarded to another machine", "remove all keys"} {
			if !strings.Contains(record, want) {
				p.t.Errorf("%q is not on record:\n%s", want, record)
			}
		}
	})
}

// asks speaks to an agent without a client: it signs a login of its own making,
// and says a whole exchange again that it saw.
const asks = `import os, socket, struct, subprocess, sys, threading
real = os.environ["SSH_AUTH_SOCK"]
def s(b): return struct.pack(">I", len(b)) + b
def dial():
    c = socket.socket(socket.AF_UNIX); c.connect(real); return c
def recv(c, n):
    b = b""
    while len(b) < n:
        p = c.recv(n - len(b))
        if not p: raise EOFError
        b += p
    return b
def say(c, m):
    c.sendall(s(m)); return recv(c, struct.unpack(">I", recv(c, 4))[0])
c = dial()
keys = say(c, b"\x0b")
n = struct.unpack(">I", keys[5:9])[0]
blob = keys[9:9+n]
data = s(b"\x07" * 32) + b"\x32" + s(b"git") + s(b"ssh-connection") + s(b"publickey") + b"\x01" + s(b"ssh-ed25519") + s(blob)
print("unbound", say(c, b"\x0d" + s(blob) + s(data) + struct.pack(">I", 0))[0])
print("bytes", say(dial(), b"\x0d" + s(blob) + s(b"whatever") + struct.pack(">I", 0))[0])
heard = []
at = "/tmp/spy%d" % os.getpid()
l = socket.socket(socket.AF_UNIX); l.bind(at); l.listen(5)
def serve():
    while True:
        a, _ = l.accept()
        b = dial()
        try:
            while True:
                m = recv(a, struct.unpack(">I", recv(a, 4))[0])
                heard.append(m)
                a.sendall(s(say(b, m)))
        except EOFError:
            a.close(); b.close()
threading.Thread(target=serve, daemon=True).start()
r = subprocess.run(["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60", "git@git.test", "true"], env=dict(os.environ, SSH_AUTH_SOCK=at))
print("client", r.returncode, sum(m[0] == 13 for m in heard), sum(m[0] == 27 for m in heard))
last = None
c = dial()
for m in heard: last = say(c, m)
print("again", last[0])
last = None
for m in heard:
    if m[0] == 13: last = say(dial(), m)
print("alone", last[0])
`

// TestAgentAttacks: what is asked of the agent inside without being a login, or
// once more, is not signed; the person's own agent signs all of it.
func TestAgentAttacks(t *testing.T) {
	one(t, func(p *place) {
		if _, err := exec.LookPath("python3"); err != nil {
			p.t.Skip("no python3 to speak to an agent")
		}
		p.agent()
		p.policy(lentSSH)
		task := p.open("--net", "allowlist", "--allow", "git.test:22", "--lend", "deploy")
		script := "cat >/tmp/asks$$.py <<'EOF'\n" + asks + "EOF\npython3 /tmp/asks$$.py; rm /tmp/asks$$.py"
		const done = "client 0 1 1"
		if r := p.outside(script); strings.TrimSpace(r.Stdout) != "unbound 14\nbytes 14\n"+done+"\nagain 14\nalone 14" {
			p.t.Errorf("the control: %v", r)
		}
		if r := p.sh(task, script); strings.TrimSpace(r.Stdout) != "unbound 5\nbytes 5\n"+done+"\nagain 5\nalone 5" {
			p.t.Errorf("inside: %v\n%s", r, p.OK(p.t, p.repo, "log", task))
		}
	})
}

// TestProduction: each use of a key of class prod waits for a person who is shown
// the key, the host and the user; what the policy lends no more is not to be had
// from then on.
func TestProduction(t *testing.T) {
	one(t, func(p *place) {
		p.agent()
		prod := strings.Replace(lentSSH, "    class: dev\n", "", 1)
		p.policy(prod)
		task := p.open("--net", "allowlist", "--allow", "git.test:22", "--lend", "deploy")
		const line = sshQuiet + "git@git.test true"
		answer := func(verb string, flags ...string) {
			p.t.Helper()
			done := make(chan harness.Result, 1)
			go func() { done <- p.sh(task, line) }()
			p.answer(verb, "git.test as git with the SSH key SHA256:", flags...)
			if r := <-done; (r.Exit == 0) != (verb == "approve") {
				p.t.Errorf("after %s: %v", verb, r)
			}
		}
		answer("approve", "--scope", "tool") // which holds for no other use
		answer("deny")
		answer("approve")
		p.policy("version: 1\n")
		if r := p.sh(task, line); r.Exit == 0 {
			p.t.Error("what the policy does not lend any more is lent")
		}
		record := p.OK(p.t, p.repo, "log", "--json", task)
		if strings.Count(record, `"credential.signed"`) != 2 {
			p.t.Errorf("on record: %s", record)
		}
	})
}

// TestKeyFile: a private key can lie in a file, and a host be named by its key; a
// loan ends after the uses that it has.
func TestKeyFile(t *testing.T) {
	one(t, func(p *place) {
		p.agent()
		p.Write(p.t, p.Home+"/.ssh/known_hosts", "", 0o600)
		for i, kv := range p.Env {
			if strings.HasPrefix(kv, "SSH_AUTH_SOCK=") {
				p.Env[i] = "SSH_AUTH_SOCK="
			}
		}
		p.policy(`version: 1
credentials:
  deploy:
    from: {file: ~/.ssh/deploy}
    as: ssh
    class: dev
    uses: 2
    host_keys: ["` + hostKey(p.t, "git.test") + `"]
    to: [{host: git.test}]
`)
		task := p.open("--net", "allowlist", "--allow", "git.test:22", "--lend", "deploy")
		for i, inside := range []bool{true, true, false} {
			if r := p.sh(task, sshQuiet+"git@git.test true"); (r.Exit == 0) != inside {
				p.t.Errorf("use %d: %v", i+1, r)
			}
		}
		private, err := os.ReadFile(p.Home + "/.ssh/deploy")
		if err != nil {
			p.t.Fatal(err)
		}
		text := strings.Split(string(private), "\n")[2]
		if record := p.OK(p.t, p.repo, "log", "--json", task); strings.Contains(record, text) || !strings.Contains(record, "used 2 times") {
			p.t.Errorf("on record: %s", record)
		}
		if r := p.sh(task, "env; grep -rsF '"+text+"' /run /etc /tmp ~; ls -la ~/.ssh"); strings.Contains(r.Stdout, text) || strings.Contains(r.Stdout, "deploy") {
			p.t.Errorf("the key is inside: %v", r)
		}
		// A file that others can read is none.
		if err := os.Chmod(p.Home+"/.ssh/deploy", 0o644); err != nil {
			p.t.Fatal(err)
		}
		task = p.open("--net", "allowlist", "--allow", "git.test:22", "--lend", "deploy")
		if r := p.sh(task, sshQuiet+"git@git.test true"); r.Exit == 0 {
			p.t.Error("a key that others can read is lent")
		}
	})
}
