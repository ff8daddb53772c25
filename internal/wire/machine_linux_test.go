package wire

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestMachine looks at machines that are folders.
func TestMachine(t *testing.T) {
	const user = "/user.slice/user-1000.slice/user@1000.service"
	for _, c := range []struct {
		name     string
		files    map[string]string // by path; one that ends with / is a folder
		env      map[string]string
		programs []string
		uid      int
		want     map[string]string // "backend/feature" → "ok" or a part of the way to get it
		say      map[string]string // a part of what is said
	}{
		{name: "a bare machine, as a user", uid: 1000, want: map[string]string{
			"/setting": "ok", "/user-namespaces": "ok", "/cgroup-delegation": "systemd.unified_cgroup_hierarchy", "docker/docker-program": "docs.docker.com", "podman/podman-program": "install podman",
			"podman/subordinate-ids": "usermod --add-subuids", "podman/newuidmap": "uidmap", "podman/newgidmap": "uidmap", "podman/rootless-socket": "log in", "gvisor/runsc": "sha512sum -c", "gvisor/kvm": "", "oci:crun/crun": "crun", "oci:runc/runc": "runc",
		}},
		{name: "the same as root", uid: 0, want: map[string]string{"/cgroup-delegation": "ok", "podman/podman-program": "install podman"}},
		{name: "Debian with everything", uid: 1000, programs: []string{"apt-get", "podman", "dockerd", "newuidmap", "newgidmap", "runsc", "crun", "runc"},
			files: map[string]string{"/etc/subuid": "other:1:5\ntester:100000:65536\n", "/etc/subgid": "1000:100000:65536", "/sys/fs/cgroup/cgroup.controllers": "cpu memory pids", "/sys/fs/cgroup" + user + "/cgroup.controllers": "cpu memory pids"},
			want:  map[string]string{"/cgroup-delegation": "ok", "podman/podman-program": "ok", "docker/docker-program": "ok", "podman/subordinate-ids": "ok", "gvisor/runsc": "ok", "oci:crun/crun": "ok"}},
		{name: "too few ids", uid: 1000, files: map[string]string{"/etc/subuid": "tester:100000:65536", "/etc/subgid": "tester:100000:1000\nx:y\ntester:1:-5"}, want: map[string]string{"podman/subordinate-ids": "add-subgids"}, say: map[string]string{"podman/subordinate-ids": "/etc/subgid has 1000"}},
		{name: "systemd's own delegation", uid: 1000, files: map[string]string{"/sys/fs/cgroup/cgroup.controllers": "cpu memory pids", "/sys/fs/cgroup" + user + "/cgroup.controllers": "memory pids"}, want: map[string]string{"/cgroup-delegation": "Delegate=cpu"}, say: map[string]string{"/cgroup-delegation": "without cpu"}},
		{name: "none delegated", uid: 1000, files: map[string]string{"/sys/fs/cgroup/cgroup.controllers": "memory", "/proc/self/cgroup": "0::/"}, want: map[string]string{"/cgroup-delegation": "Delegate=cpu"}},
		{name: "no group of the user's", uid: 1000, files: map[string]string{"/sys/fs/cgroup/cgroup.controllers": "memory", "/proc/self/cgroup": "0::/gone"}, want: map[string]string{"/cgroup-delegation": "enable-linger tester"}},
		{name: "Ubuntu", uid: 1000, files: map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, want: map[string]string{"/user-namespaces": "apparmor_parser -r"}},
		{name: "Ubuntu with the profile", uid: 1000, files: map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "/etc/apparmor.d/caisson": ""}, want: map[string]string{"/user-namespaces": "ok"}},
		{name: "Ubuntu as root", uid: 0, files: map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, want: map[string]string{"/user-namespaces": "ok"}},
		{name: "old Debian", uid: 1000, files: map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"}, want: map[string]string{"/user-namespaces": "unprivileged_userns_clone=1"}},
		{name: "old Debian as root", uid: 0, files: map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"}, want: map[string]string{"/user-namespaces": "unprivileged_userns_clone=1"}},
		{name: "none for anybody", uid: 0, files: map[string]string{"/proc/sys/user/max_user_namespaces": "0"}, want: map[string]string{"/user-namespaces": "max_user_namespaces"}},
		{name: "in Docker, in CI", files: map[string]string{"/.dockerenv": ""}, env: map[string]string{"GITHUB_ACTIONS": "true", "CI": "true"}, want: map[string]string{"/setting": "ok"}, say: map[string]string{"/setting": "inside a Docker container, a job of GitHub Actions"}},
		{name: "in Podman", files: map[string]string{"/run/.containerenv": ""}, env: map[string]string{"CI": "1"}, say: map[string]string{"/setting": "inside a Podman container, a CI job"}},
		{name: "WSL", files: map[string]string{"/proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2"}, say: map[string]string{"/setting": "WSL 2"}},
		{name: "a variable that lies", env: map[string]string{"container": "\x1b[2Jx"}, say: map[string]string{"/setting": `inside a container (\x1b[2Jx`}},
		{name: "sockets", uid: 1000, files: map[string]string{"/run/docker.sock": "socket", "/run/u/podman/podman.sock": "socket"}, env: map[string]string{"XDG_RUNTIME_DIR": "/run/u"}, want: map[string]string{"docker/docker-socket": "ok", "podman/rootless-socket": "ok"}},
		{name: "a socket of root's", uid: 1000, files: map[string]string{"/run/docker.sock": "closed"}, want: map[string]string{"docker/docker-socket": "usermod -aG docker tester"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, err := os.MkdirTemp("", "m")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(root)
			closed := map[string]bool{}
			for p, text := range c.files {
				if err := os.MkdirAll(filepath.Dir(root+p), 0o755); err != nil {
					t.Fatal(err)
				}
				if text == "socket" || text == "closed" {
					l, err := net.Listen("unix", root+p)
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
					closed[root+p] = text == "closed"
				} else if err := os.WriteFile(root+p, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			g := ground{root: root, uid: c.uid, login: "tester", getenv: func(n string) string { return c.env[n] },
				look: func(p string) (string, error) {
					for _, have := range c.programs {
						if have == p {
							return "/usr/bin/" + p, nil
						}
					}
					return "", errors.New("none")
				},
				write: func(p string) bool { return !closed[p] && strings.HasPrefix(p, root) },
			}
			got := map[string]task.Feature{}
			for b, list := range g.features() {
				for _, f := range list {
					if f.Name == "" || f.Detail == "" || f.OK && f.Fix != "" {
						t.Errorf("%s: %+v", b, f)
					}
					got[b+"/"+f.Name] = f
				}
			}
			for k, want := range c.want {
				f, ok := got[k]
				if !ok || f.OK != (want == "ok") || want != "ok" && !strings.Contains(f.Fix, want) {
					t.Errorf("%s: %+v, want %s", k, f, want)
				}
			}
			for k, part := range c.say {
				if !strings.Contains(got[k].Detail, part) {
					t.Errorf("%s says %q, want %q", k, got[k].Detail, part)
				}
			}
		})
	}
}
