package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// RootlessPodman is the backend under test that is podman as an ordinary user has it.
const RootlessPodman = "podman-rootless"

// Backend is the one that suites which take one try: CAISSON_TEST_BACKEND, or linux.
func Backend() string {
	if b := os.Getenv("CAISSON_TEST_BACKEND"); b != "" {
		return b
	}
	return "linux"
}

// Product is the word after --backend for the backend under test.
func Product() string {
	if b := Backend(); b != RootlessPodman {
		return b
	}
	return "podman"
}

// Full reports whether suites try every member of what they are cut to a sample of
// otherwise.
func Full() bool { return os.Getenv("CAISSON_TEST_FULL") != "" }

// DriverOf is the package below internal/backend that makes the boundaries of a
// backend under test.
func DriverOf(backend string) string {
	switch backend {
	case "linux":
		return "linux"
	case "docker", "podman", RootlessPodman:
		return "docker"
	}
	return "oci"
}

// EngineOf is the engine of the backend under test; nil: it has none.
func EngineOf(t testing.TB) *Engine {
	t.Helper()
	switch Backend() {
	case "docker":
		return Docker(t)
	case "podman":
		return Podman(t)
	case RootlessPodman:
		e, _ := Rootless(t)
		return e
	}
	return nil
}

// who is an identity that suites take.
type who struct {
	name string
	uid  int
}

// identities are those that the backend under test is tried as. With an engine an
// ordinary user is enough, and with a runtime alone root: its driver is the same for
// everybody. Tests of what differs ask for both.
func identities(t testing.TB, both bool) []who {
	t.Helper()
	root, user := who{"root", 0}, who{"user", UserOf()}
	switch {
	case Backend() == RootlessPodman:
		_, uid := Rootless(t)
		return []who{{"rootless", uid}}
	case needsRoot(Backend()):
		if os.Getuid() != 0 {
			t.Skipf("the backend %s needs root, and says so", Backend())
		}
		return []who{root}
	case os.Getuid() != 0:
		return []who{user}
	case strings.HasPrefix(Backend(), "oci:") || DriverOf(Backend()) == "oci" && !both && !Full():
		return []who{root} // crun and runc are started by nobody else
	case Backend() == "linux" || both || Full():
		return []who{root, user}
	}
	return []who{user}
}

// NeedsGrant skips a test of a grant that the backend under test does not offer, as
// it says itself.
func NeedsGrant(t testing.TB, grant string) {
	t.Helper()
	if b := Backend(); grant == "userns" && b != "linux" {
		t.Skipf("the backend %s has no --grant userns, and says so", b)
	}
}

// OnlyLinux skips a test of what the backend under test has no part in.
func OnlyLinux(t testing.TB, why string) {
	t.Helper()
	if b := Backend(); b != "linux" {
		t.Skipf("not with the backend %s: %s", b, why)
	}
}

// Inside is the user id that commands of id have inside, as the inside counts.
func (id *Identity) Inside() int {
	switch Backend() {
	case "linux":
		return 1000
	case RootlessPodman, "gvisor":
		return 0 // of gvisor: the only user of the namespace in which its files are read
	}
	return id.UID
}

// engine reports whether id's boundaries may be an engine's.
func (id *Identity) engine() bool {
	return slices.ContainsFunc(id.Env, func(kv string) bool {
		return strings.HasPrefix(kv, "CAISSON_ENGINE=") || strings.HasPrefix(kv, "DOCKER_HOST=") || strings.HasPrefix(kv, "CONTAINER_HOST=")
	})
}

// atEngine lists what is at the engine that id's boundaries are required to be of:
// containers by name, volumes. Nothing is where there is none, or it does not answer.
func (id *Identity) atEngine() []string {
	i := slices.IndexFunc(id.Env, func(kv string) bool { return strings.HasPrefix(kv, "CAISSON_ENGINE=unix://") })
	if i < 0 {
		return nil
	}
	socket := strings.TrimPrefix(id.Env[i], "CAISSON_ENGINE=unix://")
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	c := &http.Client{Transport: tr, Timeout: time.Minute}
	ask := func(path string, to any) {
		r, err := c.Get("http://engine/v1.40" + path)
		if err != nil {
			return
		}
		defer r.Body.Close()
		_ = json.NewDecoder(r.Body).Decode(to)
	}
	var out []string
	var all []struct{ Names []string }
	ask("/containers/json?all=1", &all)
	for _, c := range all {
		out = append(out, "container "+strings.Join(c.Names, " "))
	}
	var volumes struct{ Volumes []struct{ Name string } }
	ask("/volumes", &volumes)
	for _, v := range volumes.Volumes {
		out = append(out, "volume "+v.Name)
	}
	return out
}

// backendEnv has the product require the backend under test, on an engine of the
// run.
func backendEnv(t testing.TB) []string {
	t.Helper()
	if Backend() == "linux" {
		return nil
	}
	env := []string{"CAISSON_BACKEND=" + Product()} // the product says what it needs
	if e := EngineOf(t); e != nil {
		env = append(env, "CAISSON_ENGINE="+e.Host)
	}
	return env
}

// userWithIDs finds an ordinary user of this machine who has subordinate ids.
func userWithIDs() (name string, uid, gid int, err error) {
	b, err := os.ReadFile("/etc/subuid")
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(line, ":")
		u, err := user.Lookup(name)
		if err != nil || u.Uid == "0" {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		return name, uid, gid, nil
	}
	return "nobody", 0, 0, errors.Join(err, errors.New("no user of this machine has subordinate ids (useradd gives a new one some)"))
}

// idsUser is who UserWithIDs makes: no file of the machine's is his.
const idsUser = 64322

// UserWithIDs has this test program run again where there is an ordinary user with
// subordinate ids: in a mount namespace of its own in which the lists of users have
// one more. It returns where there is one, or none can be made. It is the first thing
// that a TestMain does.
func UserWithIDs() {
	if _, _, _, err := userWithIDs(); err == nil || os.Getuid() != 0 {
		return
	}
	if err := again(); err != nil {
		fmt.Fprintln(os.Stderr, "harness: no user with subordinate ids can be made:", err)
	}
}

// again does not return when it succeeds.
func again() error {
	sh, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "user-")
	if err != nil {
		return err
	}
	script := "set -e; "
	for _, f := range []struct{ name, line string }{
		{"passwd", fmt.Sprintf("caisson-ids:x:%d:%d::/nonexistent:/bin/sh", idsUser, idsUser)},
		{"group", fmt.Sprintf("caisson-ids:x:%d:", idsUser)},
		{"subuid", "caisson-ids:300000:65536"}, {"subgid", "caisson-ids:300000:65536"},
	} {
		old, err := os.ReadFile("/etc/" + f.name)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("/etc/%s is not there to be covered", f.name)
		}
		path := filepath.Join(dir, f.name)
		if err = errors.Join(err, os.WriteFile(path, append(old, f.line+"\n"...), 0o644), os.Chmod(path, 0o644)); err != nil {
			return err
		}
		script += fmt.Sprintf("mount --bind %s /etc/%s; ", path, f.name)
	}
	// A bound file stays when its name goes.
	script += "rm -r " + dir + `; exec "$0" "$@"`
	return syscall.Exec(sh, append([]string{sh, "--mount", "--propagation", "private", "sh", "-c", script, self}, os.Args[1:]...), os.Environ())
}
