//go:build linux

package conformance

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/verify/attack"
	"github.com/caisson-dev/caisson/test/harness"
)

// config is what the hostile program is told.
type config = attack.Config

// sentinels is everything planted on the host before a task exists. Whatever
// touches a listener stands in its log.
type sentinels struct {
	config
	mu    sync.Mutex
	seen  []string
	wait  sync.WaitGroup
	dir   string // of the identity
	sleep *os.Process
}

func (s *sentinels) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, what)
}

// log returns and empties what was noted.
func (s *sentinels) log() []string {
	// What a listener has not taken from its queue yet is taken now: a
	// connection that a program made before it ended is in the queue.
	time.Sleep(50 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	s.seen = nil
	return out
}

// listen accepts on l until the test ends. It answers as a session bus would.
func (s *sentinels) listen(t *testing.T, l net.Listener) {
	what := l.Addr().Network() + " " + l.Addr().String()
	s.wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if !stranger(conn, s.dir) {
				s.note(what)
			}
			_, _ = conn.Write([]byte("OK 0\r\n"))
			conn.Close()
		}
	})
	t.Cleanup(func() { l.Close() })
}

// stranger reports whether who connected certainly has nothing to do with this test: a
// process in the machine's own namespaces that was not started with the identity's
// folders. Tests of other packages, and people, look for an engine at its usual place
// while something is planted there.
func stranger(conn net.Conn, dir string) bool {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	_ = raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil || peer == nil || peer.Pid <= 0 {
		return false
	}
	of := fmt.Sprintf("/proc/%d", peer.Pid)
	same := func(ns, with string) bool {
		a, err1 := os.Readlink(of + "/ns/" + ns)
		b, err2 := os.Readlink(with + "/ns/" + ns)
		return err1 == nil && err2 == nil && a == b
	}
	env, err := os.ReadFile(of + "/environ")
	return err == nil && len(env) > 0 && !strings.Contains(string(env), dir+"/") && same("pid", "/proc/self") && (same("mnt", "/proc/self") || same("mnt", "/proc/1"))
}

func (s *sentinels) packets(t *testing.T, c net.PacketConn) {
	what := c.LocalAddr().Network() + " " + c.LocalAddr().String()
	s.wait.Go(func() {
		buf := make([]byte, 256)
		for {
			if _, _, err := c.ReadFrom(buf); err != nil {
				return
			}
			s.note(what)
		}
	})
	t.Cleanup(func() { c.Close() })
}

func (s *sentinels) unix(t *testing.T, id *harness.Identity, kind, path string) {
	t.Helper()
	var err error
	if kind == "unixgram" {
		var c *net.UnixConn
		if c, err = net.ListenUnixgram(kind, &net.UnixAddr{Name: path, Net: kind}); err == nil {
			s.packets(t, c)
		}
	} else {
		var l *net.UnixListener
		if l, err = net.ListenUnix(kind, &net.UnixAddr{Name: path, Net: kind}); err == nil {
			s.listen(t, l)
		}
	}
	if err == nil && path[0] != '@' {
		t.Cleanup(func() { os.Remove(path) }) // a datagram socket leaves its name behind
		err = os.Lchown(path, id.UID, id.UID)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// own makes a folder of id's, and removes it at the end unless it was there.
func own(t *testing.T, id *harness.Identity, dir string) {
	t.Helper()
	if _, err := os.Lstat(dir); err == nil {
		return
	}
	own(t, id, filepath.Dir(dir))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(dir, id.UID, id.UID); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
}

// plant puts every sentinel in its place.
func plant(t *testing.T, id *harness.Identity, repo string) *sentinels {
	t.Helper()
	s := &sentinels{config: config{Secret: nonce()}, dir: id.Dir}
	tag := nonce()[5:15]
	root := os.Getuid() == 0
	t.Cleanup(s.wait.Wait) // after every listener is closed

	s.Files = []string{id.Tmp + "/s_file", id.Home + "/.ssh/id_ed25519", id.Home + "/.aws/credentials", repo + "/untracked.env", repo + "/.git/description"}
	for _, f := range s.Files {
		id.Write(t, f, s.Secret+"\n", 0o600)
	}
	if h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, s.Files[0], 0); err != nil {
		t.Logf("no file handles on this file system (%v): opening by handle is not tried", err)
	} else {
		s.Handle, s.HandleOn = h.Bytes(), int(h.Type())
	}

	temp, err := os.MkdirTemp("", "s-"+tag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(temp) })
	if err := os.Lchown(temp, id.UID, id.UID); err != nil {
		t.Fatal(err)
	}
	dirs := []string{temp, id.Tmp, id.Home, id.XDG, id.Home + "/.local/share"}
	if root {
		dirs = append(dirs, "/run/s-"+tag, "/var/tmp/s-"+tag, "/dev/shm/s-"+tag)
	} else {
		t.Log("not root: no listener below /run, other than the runtime folder of the user")
	}
	for _, d := range dirs {
		own(t, id, d)
		p := d + "/s" + tag[:4]
		s.unix(t, id, "unix", p+".stream")
		s.unix(t, id, "unixgram", p+".dgram")
		s.unix(t, id, "unixpacket", p+".seq")
		s.Unix = append(s.Unix, p)
	}
	known := [][2]string{
		{"P18", id.XDG + "/bus"}, {"P18", id.XDG + "/systemd/private"}, {"P18", id.XDG + "/keyring/control"}, {"P18", id.XDG + "/gvfsd/socket-x"},
		{"P19", id.XDG + "/docker.sock"}, {"P19", id.XDG + "/podman/podman.sock"}, {"P19", id.Home + "/.docker/run/docker.sock"}, {"P19", id.Tmp + "/docker.sock"},
		{"P20", id.XDG + "/wayland-0"}, {"P20", id.XDG + "/pipewire-0"}, {"P20", id.Home + "/.gnupg/S.gpg-agent"}, {"P20", id.XDG + "/gnupg/S.gpg-agent.ssh"},
		{"P20", fmt.Sprintf("/tmp/tmux-%d/default", id.UID)}, {"P20", "/tmp/ssh-" + tag + "/agent.1"}, {"P20", "/tmp/.X11-unix/X" + strconv.Itoa(1000+id.UID%1000)},
	}
	if root {
		// None at /run/systemd/private: Podman's service, which tests of another package
		// start, looks for it on its own; nor at /run/containerd/containerd.sock, where a
		// dockerd that is started would wait for a containerd.
		known = append(known, [2]string{"P19", "/run/docker.sock"}, [2]string{"P19", "/run/podman/podman.sock"},
			[2]string{"P18", "/run/dbus/system_bus_socket"}, [2]string{"P20", fmt.Sprintf("/run/user/%d/pulse/native", id.UID)}, [2]string{"P20", "/run/screen/S-tester/1.x"})
	}
	for _, k := range known {
		if _, err := os.Lstat(k[1]); err == nil {
			t.Logf("%s is there already and stays untouched", k[1])
			continue
		}
		if st, err := os.Stat(filepath.Dir(k[1])); err == nil && int(st.Sys().(*syscall.Stat_t).Uid) != id.UID && st.Mode()&0o001 == 0 {
			t.Logf("%s: its folder is closed to an unprivileged user, so there is nothing to plant", k[1])
			continue
		}
		own(t, id, filepath.Dir(k[1]))
		s.unix(t, id, "unix", k[1])
		s.Known = append(s.Known, k)
		if k[1] == "/run/docker.sock" {
			s.Known = append(s.Known, [2]string{"P19", "/var/run/docker.sock"})
		}
	}
	for _, n := range []string{"s" + tag, "/tmp/.X11-unix/X" + tag} {
		s.unix(t, id, "unix", "@"+n)
		s.unix(t, id, "unixgram", "@"+n+".dgram")
		s.Abstract = append(s.Abstract, n)
	}
	addrs := []string{"127.0.0.1", "::1"}
	ifs, _ := net.InterfaceAddrs()
	for _, a := range ifs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			addrs = append(addrs, n.IP.String())
		}
	}
	for _, a := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(a, "0"))
		if err != nil {
			t.Logf("no listener on %s: %v", a, err)
			continue
		}
		s.listen(t, l)
		c, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s.packets(t, c)
		s.Net = append(s.Net, l.Addr().String())
	}

	// S_PID: a process of the same user, in a group and session of its own.
	path, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	cmd := id.Command(context.Background(), "/", path, "sleep")
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the sleeper says %q: %v", line, err)
	}
	s.sleep, s.Pid, s.Group = cmd.Process, cmd.Process.Pid, cmd.Process.Pid

	// Variables that lead to a credential or a socket.
	for k, v := range map[string]string{
		"AWS_SECRET_ACCESS_KEY": s.Secret, "GITHUB_TOKEN": s.Secret, "SSH_AUTH_SOCK": "/tmp/ssh-" + tag + "/agent.1", "DOCKER_HOST": "unix://" + id.Tmp + "/docker.sock",
		"DBUS_SESSION_BUS_ADDRESS": "unix:path=" + id.XDG + "/bus", "DISPLAY": ":1", "WAYLAND_DISPLAY": "wayland-0", "XDG_RUNTIME_DIR": id.XDG, "TMUX": "/tmp/tmux-0/default,1,0",
		"LD_PRELOAD_NOT": "x", "GIT_DIR_SECRET": s.Secret, "NPM_TOKEN": s.Secret, "CONFORMANCE_SECRET": s.Secret, "HTTPS_PROXY": "http://" + s.Secret + "@127.0.0.1:1",
		"GIT_ASKPASS": "/bin/false", "KUBECONFIG": id.Home + "/.kube/config", "CAISSON_STATE_DIR": id.State, "CAISSON_RUNTIME_DIR": id.Runtime, "INVOCATION_ID": "x",
	} {
		s.Env = append(s.Env, k)
		id.Env = append(id.Env, k+"="+v)
	}
	return s
}

// untouched fails the test when a listener was reached, a file was changed or
// the sleeper does not sleep.
func (s *sentinels) untouched(t *testing.T) {
	t.Helper()
	for _, what := range s.log() {
		t.Errorf("a sentinel was reached: %s", what)
	}
	for _, f := range s.Files {
		if data, err := os.ReadFile(f); err != nil || string(data) != s.Secret+"\n" {
			t.Errorf("%s was changed: %q %v", f, data, err)
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid))
	if err != nil {
		t.Fatalf("the sleeper is gone: %v", err)
	}
	for i := len(stat) - 1; i > 0; i-- {
		if stat[i] == ')' {
			if st := stat[i+2]; st != 'S' {
				t.Errorf("the sleeper is in state %c", st)
			}
			return
		}
	}
}
