package probe

import (
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SurveyInput says whose machine to look at.
type SurveyInput struct {
	Home       string              // of the invoking user
	RuntimeDir string              // XDG_RUNTIME_DIR or empty
	Getenv     func(string) string // of the process a person started; nil: none
	Absent     []string            // more paths: state folder, runtime folder, other tasks
	Control    []string            // more sockets: those of other tasks
}

// daemonWords mark the sockets of daemons that act with the host's authority.
var daemonWords = []string{"docker", "podman", "containerd", "crio", "buildkit", "dbus", "/bus", "systemd", "libvirt", "lxd", "incus", "snapd", "caisson", "polkit", "udev", "journal", "varlink", "kubelet", "WSL"}

// Survey finds out what this machine has that a boundary must not reach: places
// with credentials that exist, sockets that somebody listens on, addresses. It
// reads no file's content. Lists are bounded; what comes first matters most.
func Survey(in SurveyInput) Spec {
	var s Spec
	env := in.Getenv
	if env == nil {
		env = func(string) string { return "" }
	}
	add := func(list *[]string, paths ...string) {
		for _, p := range paths {
			if p == "" || !filepath.IsAbs(p) || len(*list) >= MaxTargets-16 {
				continue
			}
			p = filepath.Clean(p)
			if _, err := os.Lstat(p); err == nil && !contains(*list, p) {
				*list = append(*list, p)
			}
		}
	}
	add(&s.Absent, in.Absent...)
	if in.Home != "" {
		for _, p := range secretPlaces {
			add(&s.Absent, filepath.Join(in.Home, p))
		}
	}
	add(&s.Absent, "/etc/shadow", "/root/.ssh", env("KUBECONFIG"), env("GOOGLE_APPLICATION_CREDENTIALS"), env("AWS_SHARED_CREDENTIALS_FILE"))

	add(&s.Control, in.Control...)
	add(&s.Control, "/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private")
	for _, v := range []string{"DOCKER_HOST", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS"} {
		add(&s.Control, socketOf(env(v)))
		if addr := dialOf(env(v)); addr != "" {
			s.Dial = append(s.Dial, addr)
		}
	}
	add(&s.Agents, env("SSH_AUTH_SOCK"), env("GPG_AGENT_INFO"))
	if in.RuntimeDir != "" {
		add(&s.Control, filepath.Join(in.RuntimeDir, "bus"), filepath.Join(in.RuntimeDir, "docker.sock"), filepath.Join(in.RuntimeDir, "podman/podman.sock"), filepath.Join(in.RuntimeDir, "systemd/private"))
		add(&s.Agents, filepath.Join(in.RuntimeDir, "gnupg/S.gpg-agent"), filepath.Join(in.RuntimeDir, "keyring/ssh"), filepath.Join(in.RuntimeDir, "keyring/control"), filepath.Join(in.RuntimeDir, "wayland-0"), filepath.Join(in.RuntimeDir, "pipewire-0"), filepath.Join(in.RuntimeDir, "pulse/native"))
	}
	// Everything that listens on this machine now.
	if b, err := readFile("/proc/self/net/unix"); err == nil {
		paths, names := listening(b)
		for _, p := range paths {
			if matchesDaemon(p) {
				add(&s.Control, p)
			} else {
				add(&s.Agents, p)
			}
		}
		s.Abstract = names[:min(len(names), MaxTargets-16)]
	}
	// Cloud metadata, an address of a neighbour as far as a route tells, the
	// open Internet, and the engine behind Docker Desktop.
	s.Dial = append(s.Dial, "169.254.169.254:80", "[fd00:ec2::254]:80", "1.1.1.1:443", "[2606:4700:4700::1111]:443", "192.168.65.7:2375")
	s.Dial = append(s.Dial, gateways()...)
	s.Ident = map[string]string{}
	for _, p := range s.Absent {
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil {
			s.Ident[p] = ident(&st)
		}
	}
	s.HostNS = OwnNamespaces()
	s.HostPID = os.Getpid()
	s.HostStart, _ = StartTime(s.HostPID)
	return s
}

func contains(l []string, s string) bool {
	for _, x := range l {
		if x == s {
			return true
		}
	}
	return false
}

func matchesDaemon(path string) bool {
	for _, w := range daemonWords {
		if strings.Contains(path, w) {
			return true
		}
	}
	return false
}

// socketOf returns the path of "unix:path=…" or "unix://…".
func socketOf(addr string) string {
	addr, _, _ = strings.Cut(addr, ",")
	for _, p := range []string{"unix:path=", "unix://"} {
		if rest, ok := strings.CutPrefix(addr, p); ok {
			return rest
		}
	}
	return ""
}

// dialOf returns "IP:port" of "tcp://IP:port"; names are not resolved.
func dialOf(addr string) string {
	rest, ok := strings.CutPrefix(addr, "tcp://")
	if !ok {
		return ""
	}
	if ap, err := netip.ParseAddrPort(strings.TrimSuffix(rest, "/")); err == nil {
		return ap.String()
	}
	return ""
}

// listening returns the paths and the abstract names of the listening sockets
// in a /proc/net/unix.
func listening(b []byte) (paths, abstract []string) {
	seen := map[string]bool{}
	for _, l := range lines(b) {
		f := strings.Fields(l)
		if len(f) < 8 || f[3] != "00010000" { // __SO_ACCEPTCON
			continue
		}
		name := lastField(l)
		if seen[name] {
			continue
		}
		seen[name] = true
		if n, ok := strings.CutPrefix(name, "@"); ok {
			if !strings.Contains(n, "@") { // an inner NUL is shown as @: cannot be told apart
				abstract = append(abstract, n)
			}
		} else if strings.HasPrefix(name, "/") {
			paths = append(paths, name)
		}
	}
	sort.Strings(paths)
	sort.Strings(abstract)
	return paths, abstract
}

// gateways returns port 53 and 80 of the IPv4 gateways of this host.
func gateways() []string {
	b, err := readFile("/proc/self/net/route")
	if err != nil {
		return nil
	}
	var out []string
	for _, l := range lines(b) {
		f := strings.Fields(l)
		if len(f) < 3 || len(f[2]) != 8 || f[2] == "00000000" {
			continue
		}
		n, err := strconv.ParseUint(f[2], 16, 32)
		if err != nil {
			continue
		}
		ip := netip.AddrFrom4([4]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
		if a := ip.String() + ":80"; !contains(out, a) && len(out) < 8 {
			out = append(out, a, ip.String()+":53")
		}
	}
	return out
}
