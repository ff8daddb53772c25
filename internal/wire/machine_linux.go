package wire

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// ground is what a look at the machine rests on; tests give another.
type ground struct {
	root   string // before absolute paths; empty
	getenv func(string) string
	look   func(program string) (string, error)
	write  func(path string) bool // may be written by this user
	uid    int
	login  string
}

// machine says what this machine has that backends need, under the name of each, and
// under "" what they share. What a backend itself tries stands in its own report.
func (h *house) machine(context.Context) map[string][]task.Feature {
	return ground{
		getenv: os.Getenv, look: exec.LookPath, uid: os.Getuid(), login: h.who.Login,
		write: func(p string) bool { return unix.Access(p, unix.W_OK) == nil },
	}.features()
}

func (g ground) features() map[string][]task.Feature {
	return map[string][]task.Feature{
		"":         {g.setting(), g.namespaces(), g.groups()},
		"docker":   g.docker(),
		"podman":   g.podman(),
		"gvisor":   {g.runtime("runsc", installRunsc), g.kvm()},
		"oci:crun": {g.runtime("crun", g.install("crun"))},
		"oci:runc": {g.runtime("runc", g.install("runc"))},
	}
}

func (g ground) read(path string) string {
	b, err := os.ReadFile(g.root + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (g ground) is(path string, kind fs.FileMode) bool {
	fi, err := os.Stat(g.root + path)
	return err == nil && fi.Mode().Type() == kind
}

func (g ground) has(path string) bool { _, err := os.Stat(g.root + path); return err == nil }

// install is the command that gets a package here.
func (g ground) install(pkg string) string {
	for _, m := range [][2]string{{"apt-get", "sudo apt-get install -y "}, {"dnf", "sudo dnf install -y "}, {"zypper", "sudo zypper install -y "}, {"pacman", "sudo pacman -S "}, {"apk", "sudo apk add "}} {
		if _, err := g.look(m[0]); err == nil {
			return m[1] + pkg
		}
	}
	return "install " + pkg
}

// setting says where this runs. It is no trial and never a fault: what it means for a
// backend, the backend says.
func (g ground) setting() task.Feature {
	f := task.Feature{Name: "setting", OK: true}
	var where []string
	switch {
	case g.has("/.dockerenv"):
		where = append(where, "inside a Docker container")
	case g.has("/run/.containerenv"):
		where = append(where, "inside a Podman container")
	case g.getenv("KUBERNETES_SERVICE_HOST") != "":
		where = append(where, "inside a Kubernetes pod")
	case g.getenv("container") != "":
		where = append(where, "inside a container ("+short(g.getenv("container"))+")")
	}
	for name, what := range map[string]string{"GITHUB_ACTIONS": "GitHub Actions", "GITLAB_CI": "GitLab CI", "BUILDKITE": "Buildkite", "JENKINS_URL": "Jenkins", "CIRCLECI": "CircleCI"} {
		if g.getenv(name) != "" {
			where = append(where, "a job of "+what)
		}
	}
	if v := g.getenv("CI"); v != "" && v != "false" && !slices.ContainsFunc(where, func(s string) bool { return strings.HasPrefix(s, "a job of") }) {
		where = append(where, "a CI job")
	}
	if strings.Contains(strings.ToLower(g.read("/proc/sys/kernel/osrelease")), "microsoft") {
		where = append(where, "WSL 2")
	}
	if f.Detail = strings.Join(where, ", "); f.Detail == "" {
		f.Detail = "no container and no CI job is seen around this process"
	}
	return f
}

func short(s string) string {
	s = strconv.Quote(s)
	return s[1 : min(len(s), 30)-1]
}

// namespaces says what settings of the kernel allow; the linux backend tries it.
func (g ground) namespaces() task.Feature {
	f := task.Feature{Name: "user-namespaces", OK: true, Detail: "no setting of the kernel is in the way"}
	switch {
	case g.read("/proc/sys/user/max_user_namespaces") == "0":
		f.OK, f.Detail, f.Fix = false, "user.max_user_namespaces is 0: nobody may make one", "echo user.max_user_namespaces=15000 | sudo tee /etc/sysctl.d/60-userns.conf && sudo sysctl --system"
	case g.read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		f.OK, f.Detail, f.Fix = false, "kernel.unprivileged_userns_clone is 0: only root may make one, and nobody one within another", "echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-userns.conf && sudo sysctl --system"
	case g.uid != 0 && g.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && !g.has("/etc/apparmor.d/caisson"):
		f.OK, f.Detail = false, "AppArmor takes the rights of user namespaces from programs without a profile (kernel.apparmor_restrict_unprivileged_userns is 1, as on Ubuntu since 23.10)"
		f.Fix = "save the profile of docs/guide.md (\"User namespaces are not available\") as /etc/apparmor.d/caisson, then: sudo apparmor_parser -r /etc/apparmor.d/caisson"
	}
	return f
}

// groups says which control groups this user may fill: the limits of RES 2.
func (g ground) groups() task.Feature {
	f := task.Feature{Name: "cgroup-delegation"}
	if !g.has("/sys/fs/cgroup/cgroup.controllers") {
		f.OK, f.Detail = g.uid == 0, "control groups of version 1"
		if !f.OK {
			f.Detail += ": an unprivileged user has none of their own, so memory and processes are bounded per process only"
			f.Fix = "boot with systemd.unified_cgroup_hierarchy=1, or use a backend whose engine has root's rights"
		}
		return f
	}
	if g.uid == 0 {
		f.OK, f.Detail = true, "version 2, as root"
		return f
	}
	path := ""
	for _, line := range strings.Split(g.read("/proc/self/cgroup"), "\n") {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			path = p
		}
	}
	// The service manager of the user owns the group above the session's.
	own := fmt.Sprintf("/user.slice/user-%d.slice/user@%d.service", g.uid, g.uid)
	for _, p := range []string{path, own} {
		dir := filepath.Join("/sys/fs/cgroup", p)
		if p == "" || !g.has(dir) || !g.write(g.root+dir) {
			continue
		}
		var lack []string
		have := strings.Fields(g.read(dir + "/cgroup.controllers"))
		for _, c := range []string{"memory", "pids", "cpu"} {
			if !slices.Contains(have, c) {
				lack = append(lack, c)
			}
		}
		if len(lack) == 0 {
			f.OK, f.Detail = true, "version 2, "+p+" is this user's, with memory, pids and cpu"
			return f
		}
		f.Detail = fmt.Sprintf("version 2, %s is this user's, without %s", p, strings.Join(lack, ", "))
		f.Fix = "sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload, then log in again"
		return f
	}
	f.Detail = "version 2, and none of the groups is this user's"
	f.Fix = "log in through a session of systemd (not su), or: sudo loginctl enable-linger " + g.login + ", then: systemd-run --user --scope -p Delegate=yes caisson …"
	return f
}

func (g ground) program(name, program, fix string) task.Feature {
	f := task.Feature{Name: name}
	if p, err := g.look(program); err == nil {
		f.OK, f.Detail = true, p
		return f
	}
	for _, dir := range []string{"/usr/local/sbin/", "/usr/sbin/", "/sbin/"} { // of an administrator's PATH
		if g.has(dir + program) {
			f.OK, f.Detail = true, dir+program
			return f
		}
	}
	f.Detail, f.Fix = program+" is not on PATH", fix
	return f
}

// runtime is a runtime's program, which a variable may name.
func (g ground) runtime(program, fix string) task.Feature {
	if at := g.getenv("CAISSON_" + strings.ToUpper(program)); at != "" && g.has(at) {
		return task.Feature{Name: program, OK: true, Detail: at}
	}
	return g.program(program, program, fix)
}

const installRunsc = "curl -fsSLO https://storage.googleapis.com/gvisor/releases/release/latest/$(uname -m)/runsc && curl -fsSLO https://storage.googleapis.com/gvisor/releases/release/latest/$(uname -m)/runsc.sha512 && sha512sum -c runsc.sha512 && sudo install -m 0755 runsc /usr/local/bin/"

// kvm is what virtual machines need, and one platform of gVisor; its other one does
// without.
func (g ground) kvm() task.Feature {
	f := task.Feature{Name: "kvm", OK: true}
	switch {
	case !g.is("/dev/kvm", fs.ModeDevice|fs.ModeCharDevice):
		f.OK, f.Detail = false, "there is no /dev/kvm; the systrap platform needs none"
	case !g.write(g.root + "/dev/kvm"):
		f.OK, f.Detail, f.Fix = false, "/dev/kvm may not be opened; the systrap platform needs none", "sudo usermod -aG kvm "+g.login+", then log in again"
	default:
		f.Detail = "/dev/kvm may be opened, which says nothing yet: gVisor's own row has whether it works"
	}
	return f
}

// docker says who may use the engine, and how to get one.
func (g ground) docker() []task.Feature {
	f := g.program("docker-program", "dockerd", g.install("docker.io")+" (or docs.docker.com/engine/install)")
	out := []task.Feature{f}
	for _, p := range []string{"/run/docker.sock", "/var/run/docker.sock"} {
		if !g.is(p, fs.ModeSocket) {
			continue
		}
		f := task.Feature{Name: "docker-socket", OK: true, Detail: p}
		if !g.write(g.root + p) {
			f.OK, f.Detail = false, p+" may not be opened by this user"
			f.Fix = "dockerd-rootless-setuptool.sh install gives an engine with your own rights; sudo usermod -aG docker " + g.login + " gives you root's"
		}
		return append(out, f)
	}
	return out
}

// podman says what an engine with a user's rights needs.
func (g ground) podman() []task.Feature {
	out := []task.Feature{g.program("podman-program", "podman", g.install("podman"))}
	if g.uid == 0 {
		return out
	}
	ids := task.Feature{Name: "subordinate-ids", OK: true}
	least := 65536
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		n := g.subordinate(file)
		ids.Detail += fmt.Sprintf("%s has %d for %s, ", file, n, g.login)
		ids.OK = ids.OK && n >= least
	}
	ids.Detail += fmt.Sprintf("%d are needed", least)
	if !ids.OK {
		ids.Fix = "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + g.login + " && podman system migrate"
	}
	out = append(out, ids)
	for _, p := range []string{"newuidmap", "newgidmap"} {
		if f := g.program(p, p, g.install("uidmap")); !f.OK {
			out = append(out, f)
		}
	}
	run := g.getenv("XDG_RUNTIME_DIR")
	sock := task.Feature{Name: "rootless-socket", Detail: "XDG_RUNTIME_DIR is not set", Fix: "log in through a session of systemd (not su)"}
	if run != "" {
		sock.Detail, sock.Fix = run+"/podman/podman.sock is not there", "systemctl --user enable --now podman.socket; without systemd: podman system service --time 0 unix://"+run+"/podman/podman.sock &"
		if g.is(run+"/podman/podman.sock", fs.ModeSocket) {
			sock.OK, sock.Detail, sock.Fix = true, run+"/podman/podman.sock", ""
		}
	}
	return append(out, sock)
}

// subordinate counts the ids that a file gives to the user, by name or number.
func (g ground) subordinate(file string) (n int) {
	for _, line := range strings.Split(g.read(file), "\n") {
		f := strings.Split(line, ":")
		if len(f) == 3 && (f[0] == g.login || f[0] == strconv.Itoa(g.uid)) {
			if c, err := strconv.Atoi(f[2]); err == nil && c > 0 {
				n += c
			}
		}
	}
	return n
}
