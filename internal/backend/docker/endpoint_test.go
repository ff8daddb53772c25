//go:build linux

package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// The engine is where its own command line would find it, and CAISSON_ENGINE is
// before all of that; one on another machine is refused with the way.
func TestFind(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	context := func(dir, name, host string) {
		sum := sha256.Sum256([]byte(name))
		d := filepath.Join(dir, "contexts/meta", hex.EncodeToString(sum[:]))
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "meta.json"), []byte(`{"Name":"`+name+`","Endpoints":{"docker":{"Host":"`+host+`"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(home, ".docker")
	for name, host := range map[string]string{"mine": "unix:///mine.sock", "far": "ssh://user@far.example", "tls": "tcp://192.0.2.1:2376", "nothing": ""} {
		context(config, name, host)
	}
	context(other, "elsewhere", "unix:///elsewhere.sock")
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"currentContext":"mine"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, env string // K=V, separated by spaces
		want      string // the place, or a part of the refusal
	}{
		{"the context of the configuration", "", "unix:///mine.sock"},
		{"a context by its variable", "DOCKER_CONTEXT=far", "not on this machine"},
		{"one over TLS", "DOCKER_CONTEXT=tls", "not on this machine"},
		{"one that is not there", "DOCKER_CONTEXT=lost", "cannot be read"},
		{"one without an engine", "DOCKER_CONTEXT=nothing", "names no engine"},
		{"a configuration elsewhere", "DOCKER_CONFIG=" + other + " DOCKER_CONTEXT=elsewhere", "unix:///elsewhere.sock"},
		{"a host is before a context", "DOCKER_HOST=unix:///host.sock DOCKER_CONTEXT=far", "unix:///host.sock"},
		{"a far host", "DOCKER_HOST=tcp://192.0.2.1:2375", "not on this machine"},
		{"our own variable is before both", "CAISSON_ENGINE=unix:///own.sock DOCKER_HOST=tcp://192.0.2.1:2375 DOCKER_CONTEXT=far", "unix:///own.sock"},
		{"another's variable", "CONTAINER_HOST=unix:///podman.sock", "unix:///mine.sock"},
		{"no address", "DOCKER_HOST=unix://relative", "not an engine's address"},
	} {
		env := map[string]string{"HOME": home}
		for _, kv := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		at, _, err := find(Docker, func(k string) string { return env[k] })
		got := at.String()
		if err == nil {
			_, err = at.socket()
		}
		if err != nil {
			got = err.Error()
			if task.HintOf(err) == "" {
				t.Errorf("%s: %v has no next step", c.name, err)
			}
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if at, _, err := find(Podman, func(k string) string {
		return map[string]string{"HOME": home, "CONTAINER_HOST": "unix:///podman.sock"}[k]
	}); err != nil || at != "unix:///podman.sock" {
		t.Errorf("podman: %s %v", at, err)
	}
}
