package boundary

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/task"
)

// TestLocals: what a boundary gets at sockets for what its task is lent, and which
// hosts SSH knows in it.
func TestLocals(t *testing.T) {
	const key, other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPU3Xo8fM8a1m3Ew9m3WpF8K9d1YvBq3o2m1c8xUe0bQ"
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".ssh/known_hosts"), []byte("git.test "+key+"\n[git.test]:2222 "+other+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Manager{cfg: Config{Identity: task.Identity{Home: home}}}
	to := func(host string, port uint16) []broker.Dest { return []broker.Dest{{Host: host, Port: port}} }
	ssh := broker.Lent{Handle: broker.Handle{Name: "a", As: broker.SSH, To: to("git.test", 22)}}
	far := broker.Lent{Handle: broker.Handle{Name: "b", As: broker.SSH, To: to("unknown.invalid", 22)}}
	pinned := broker.Lent{Handle: broker.Handle{Name: "c", As: broker.SSH, To: to("git.test", 22), HostKeys: []string{other}}}
	bad := broker.Lent{Handle: broker.Handle{Name: "d", As: broker.SSH, To: to("git.test", 22), HostKeys: []string{"ssh-rsa AAAA"}}}
	git := broker.Lent{Handle: broker.Handle{Name: "e", As: broker.Git, User: "bot", To: []broker.Dest{{Host: "git.test", Port: 8443, Path: "/team/repo.git/"}}}, Placeholder: broker.Placeholder{Value: "ph"}}
	plain := broker.Lent{Handle: broker.Handle{Name: "f", As: broker.Bearer, To: to("git.test", 443)}}
	for name, c := range map[string]struct {
		lent           []broker.Lent
		closed         bool // it has no way out
		sockets, known string
		findings       int
		err            string
	}{
		"nothing":              {},
		"no socket for HTTP":   {lent: []broker.Lent{plain}},
		"a known host":         {lent: []broker.Lent{ssh}, sockets: "ssh", known: "git.test " + key + "\n"},
		"a host nobody knows":  {lent: []broker.Lent{far}, sockets: "ssh", findings: 1},
		"a key that is pinned": {lent: []broker.Lent{pinned}, sockets: "ssh", known: "git.test " + other + "\n"},
		"a pin that is none":   {lent: []broker.Lent{bad}, err: "host_keys"},
		"both":                 {lent: []broker.Lent{git, ssh, plain}, sockets: "ssh git", known: "git.test " + key + "\n"},
		"without a way out":    {lent: []broker.Lent{git, ssh}, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := backend.Spec{Way: &backend.Way{}}
			if c.closed {
				s.Way = nil
			}
			found, err := m.furnishLocals(&decided{lent: c.lent}, &s)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || task.HintOf(err) == "" {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			if err != nil || strings.Join(s.Local, " ") != c.sockets || s.KnownHosts != c.known || len(found) != c.findings {
				t.Errorf("%v, sockets %q, known %q, findings %v", err, s.Local, s.KnownHosts, found)
			}
			env := localEnv(s.Way, c.lent)
			if (env["SSH_AUTH_SOCK"] != "") != strings.Contains(c.sockets, "ssh") || (env["GIT_CONFIG_COUNT"] != "") != strings.Contains(c.sockets, "git") {
				t.Errorf("variables: %v", env)
			}
		})
	}
	env := localEnv(&backend.Way{}, []broker.Lent{git})
	if env["GIT_CONFIG_COUNT"] != "3" || env["GIT_CONFIG_KEY_1"] != "credential.https://git.test:8443/team/repo.git.helper" || env["GIT_CONFIG_VALUE_1"] != "cache --socket /run/boundary/lent/git" {
		t.Errorf("variables: %v", env)
	}
	if strings.Contains(strings.Join([]string{env["GIT_CONFIG_VALUE_0"], env["GIT_CONFIG_VALUE_1"], env["GIT_CONFIG_VALUE_2"]}, " "), "ph") {
		t.Errorf("the placeholder is among the settings: %v", env)
	}
}
