package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// endpoint is where an engine listens, such as unix:///run/docker.sock.
type endpoint string

func (e endpoint) String() string { return string(e) }

// errRemote says that a way to an engine is none of this version's.
func errRemote(e endpoint) error {
	return task.Errorf(task.CodeUnsupported, "docker.endpoint", "the engine at %s is not on this machine: its containers would not see this machine's files", e).
		WithHint("use an engine of this machine (DOCKER_HOST=unix://PATH, or docker context use default); nothing was created")
}

// socket is the path of its socket. Only sockets of this machine are taken.
func (e endpoint) socket() (string, error) {
	p, ok := strings.CutPrefix(string(e), "unix://")
	if !ok {
		return "", errRemote(e)
	}
	if !filepath.IsAbs(p) {
		return "", task.Errorf(task.CodeUsage, "docker.endpoint", "%q is not an engine's address", string(e)).WithHint("for example unix:///run/docker.sock")
	}
	return p, nil
}

func (e endpoint) dial(ctx context.Context) (net.Conn, error) {
	p, err := e.socket()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", p)
}

// find says where the engine of a name is, as its own command line would, and why
// there. It looks at the person's environment and files alone.
func find(name string, getenv func(string) string) (endpoint, string, error) {
	home, run := getenv("HOME"), getenv("XDG_RUNTIME_DIR")
	variable, socket := "DOCKER_HOST", "docker.sock"
	if name == Podman {
		variable, socket = "CONTAINER_HOST", "podman/podman.sock"
	}
	if v := getenv(OwnVariable); v != "" {
		return endpoint(v), OwnVariable, nil
	}
	if v := getenv(variable); v != "" {
		return endpoint(v), variable, nil
	}
	if name == Docker {
		if e, from, err := contextOf(home, getenv); err != nil || e != "" {
			return e, from, err
		}
	}
	var places []string
	if os.Geteuid() != 0 && name == Podman {
		places = []string{filepath.Join(run, socket)}
	} else {
		places = []string{"/var/run/" + socket, "/run/" + socket}
		if run != "" {
			places = append(places, filepath.Join(run, socket))
		}
	}
	for _, p := range places {
		if st, err := os.Stat(p); err == nil && st.Mode()&os.ModeSocket != 0 && filepath.IsAbs(p) {
			return endpoint("unix://" + p), "its usual place", nil
		}
	}
	return "", "", task.Errorf(task.CodeUnavailable, "docker.endpoint", "no socket of %s is at %s", name, strings.Join(places, ", ")).
		WithHint("%s", map[string]string{
			Docker: "start the engine (sudo systemctl start docker), or name its socket in DOCKER_HOST",
			Podman: "start its service (systemctl --user start podman.socket, or podman system service --time 0), or name its socket in CONTAINER_HOST",
		}[name])
}

// contextOf is the engine of the context that a person selected.
func contextOf(home string, getenv func(string) string) (endpoint, string, error) {
	dir := getenv("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(home, ".docker")
	}
	name := getenv("DOCKER_CONTEXT")
	if name == "" {
		var c struct {
			CurrentContext string `json:"currentContext"`
		}
		b, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil || json.Unmarshal(b, &c) != nil {
			return "", "", nil
		}
		name = c.CurrentContext
	}
	if name == "" || name == "default" {
		return "", "", nil
	}
	sum := sha256.Sum256([]byte(name))
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	b, err := os.ReadFile(filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"))
	if err == nil {
		err = json.Unmarshal(b, &meta)
	}
	if err == nil && meta.Endpoints["docker"].Host == "" {
		err = errors.New("it names no engine")
	}
	if err != nil {
		return "", "", task.Errorf(task.CodeUnavailable, "docker.endpoint", "the docker context %q cannot be read: %v", printable(name, 80), err).
			WithHint("docker context use default, or DOCKER_HOST=unix://PATH")
	}
	return endpoint(meta.Endpoints["docker"].Host), "docker context " + printable(name, 80), nil
}
