package harness

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// RootlessDocker starts a Docker Engine of an ordinary user of this machine who has
// subordinate ids, and returns that user's id. It ends with the test, which it skips
// where there is none.
func RootlessDocker(t testing.TB) (*Engine, int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to become a user with subordinate ids needs root")
	}
	name, uid, gid, err := userWithIDs()
	var e *Engine
	if err == nil {
		e, err = rootlessDocker(uid, gid)
	}
	if err != nil {
		t.Skipf("Docker cannot be started as an ordinary user (%s): %v", name, err)
	}
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
	return e, uid
}

// A user's Docker lives in namespaces that rootlesskit makes, with files of its own
// where it would write into /run.
const inRootlesskit = `rm -f /run/docker /run/containerd /run/xtables.lock; exec dockerd --rootless "$@"`

func rootlessDocker(uid, gid int) (*Engine, error) {
	for _, name := range []string{"dockerd", "docker", "containerd", "runc", "rootlesskit", "newuidmap"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	e, err := newEngine("docker")
	if err != nil {
		return nil, err
	}
	e.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	conf := filepath.Join(e.Dir, "daemon.json")
	text, err := json.Marshal(map[string]any{"bridge": "none", "iptables": false, "ip-masq": false})
	err = errors.Join(err, os.WriteFile(conf, text, 0o644))
	for _, d := range []string{"home", "xdg", "data"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(e.Dir, d), 0o700), os.Chown(filepath.Join(e.Dir, d), uid, gid))
	}
	if err = errors.Join(err, os.Chown(e.Dir, uid, gid)); err != nil {
		return nil, err
	}
	e.env = []string{"HOME=" + filepath.Join(e.Dir, "home"), "XDG_RUNTIME_DIR=" + filepath.Join(e.Dir, "xdg"), "TMPDIR=" + filepath.Join(e.Dir, "xdg"), "PATH=/usr/sbin:/usr/bin:/sbin:/bin:" + os.Getenv("PATH")}
	e.args = []string{"rootlesskit", "--state-dir", filepath.Join(e.Dir, "xdg/kit"), "--net=host", "--copy-up=/etc", "--copy-up=/run", "--propagation=rslave", "sh", "-c", inRootlesskit, "dockerd",
		"--config-file", conf, "--data-root", filepath.Join(e.Dir, "data"), "--exec-root", filepath.Join(e.Dir, "xdg/exec"), "-H", e.Host, "--pidfile", filepath.Join(e.Dir, "xdg/pid")}
	if err := e.Start(); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

// Remapped starts a Docker Engine that shows its containers other user ids than the
// machine's. It ends with the test.
func Remapped(t testing.TB) *Engine {
	t.Helper()
	name, _, _, err := userWithIDs()
	if err != nil {
		t.Skipf("Docker cannot be started with user ids of its own (%s): %v", name, err)
	}
	return DockerWith(t, map[string]any{"userns-remap": name + ":" + name}, 0)
}
