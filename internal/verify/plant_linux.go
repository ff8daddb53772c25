package verify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
)

// world is everything that one run made on the machine: files, listeners, a process,
// a key, variables. All of it is gone after end.
type world struct {
	listeners
	attack.Config
	open    string // a folder that others may enter, in the folder for temporary files
	tag     string // in the names of all of it
	private string // a folder below the state folder
	runtime string // the run's own runtime folder
	repo    string
	bin     string // the hostile program alone, for set-ups that are not caisson's
	work    string
	env     []string // K=V, planted
	files   []*os.File
	sleeper *exec.Cmd
	held    []*sys.FileLock
	notes   []string
}

func (w *world) state() string { return w.private + "/state" }

// prefix begins the names of what a run makes; the rest is the same in all places.
const prefix = "caisson-verify-"

// private begins the name of a run's folder below the state folder.
const private = "verify-"

// makeWorld makes the folders, after it took away what a run that was killed left.
func makeWorld(ctx context.Context, dirs sys.Dirs, program string) (_ *world, err error) {
	for _, d := range []string{dirs.State, dirs.Runtime} {
		if err := sys.PrivateDir(d); err != nil {
			return nil, task.Errorf(task.CodeStateStore, "verify", "the folder %s cannot be used: %w", d, err)
		}
	}
	tag := nonce()[:10]
	w := &world{private: filepath.Join(dirs.State, private+tag), runtime: filepath.Join(dirs.Runtime, "v"+tag), open: filepath.Join(os.TempDir(), prefix+tag)}
	w.tag = tag
	w.repo, w.bin, w.work = w.open+"/repo", w.open+"/bin", w.open+"/work"
	clearStale(ctx, dirs, program)
	if err := os.Mkdir(w.private, 0o700); err != nil {
		return nil, task.Errorf(task.CodeStateStore, "verify", "no folder for this run: %w", err)
	}
	lock, err := sys.TryLock(w.private + "/lock")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.private))
	}
	w.held = append(w.held, lock)
	defer func() {
		if err != nil {
			w.end()
		}
	}()
	for d, mode := range map[string]os.FileMode{w.runtime: 0o700, w.open: 0o755} {
		if err := os.Mkdir(d, mode); err != nil {
			return nil, task.Errorf(task.CodeStateStore, "verify", "no folder for this run: %w", err)
		}
	}
	for d, mode := range map[string]os.FileMode{w.state(): 0o700, w.repo: 0o755, w.bin: 0o755, w.work: 0o755} {
		if err := os.Mkdir(d, mode); err != nil {
			return nil, task.Errorf(task.CodeStateStore, "verify", "no folder for this run: %w", err)
		}
	}
	return w, os.Chmod(w.open, 0o755)
}

// clearStale takes away what runs left that were killed: nobody holds their lock.
func clearStale(ctx context.Context, dirs sys.Dirs, program string) {
	old, _ := os.ReadDir(dirs.State)
	for _, e := range old {
		tag, is := strings.CutPrefix(e.Name(), private)
		if !is || !e.IsDir() {
			continue
		}
		at := filepath.Join(dirs.State, e.Name())
		if fi, err := e.Info(); err != nil || time.Since(fi.ModTime()) < time.Minute && !exists(at+"/lock") {
			continue // it begins
		}
		lock, err := sys.TryLock(at + "/lock")
		if err != nil {
			continue // it runs
		}
		w := &world{tag: tag, private: at, runtime: filepath.Join(dirs.Runtime, "v"+tag), open: filepath.Join(os.TempDir(), prefix+tag), held: []*sys.FileLock{lock}}
		(&product{world: w, program: program, environ: os.Environ()}).closeAll(ctx)
		w.end()
	}
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// plant puts every sentinel in its place.
func (w *world) plant(environ []string, program string) error {
	tag := w.tag
	w.Secret, w.EnvSecret, w.Tag = "verify"+nonce(), "verify"+nonce(), prefix+tag
	w.Files = []string{w.open + "/outside.txt", w.private + "/secret.txt"}
	if exists(w.repo + "/.git") {
		w.Files = append(w.Files, w.repo+"/untracked.env", w.repo+"/.git/description")
	}
	for i, f := range w.Files {
		if err := os.WriteFile(f, []byte(w.Secret+"\n"), map[bool]os.FileMode{true: 0o644, false: 0o600}[i == 0]); err != nil {
			return err
		}
	}
	if err := os.Chmod(w.Files[0], 0o644); err != nil {
		return err
	}
	if h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, w.Files[0], 0); err == nil {
		w.Handle, w.HandleOn = h.Bytes(), int(h.Type())
	}
	for _, step := range []func(env func(string) string) error{w.plantSockets, w.plantNet, func(func(string) string) error { return w.plantSleeper(program) }, func(func(string) string) error { return w.plantFiles() }} {
		if err := step(lookup(environ)); err != nil {
			return err
		}
	}
	w.plantEnv(lookup(environ))
	w.plantKey()
	return nil
}

func lookup(environ []string) func(string) string {
	return func(name string) string {
		for _, kv := range environ {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				return v
			}
		}
		return ""
	}
}

// shared are folders of the machine in which root has listeners; their names there
// are w.Tag with the ends of socketKinds.
var (
	shared      = []string{"/run", "/dev/shm"}
	socketKinds = map[string]string{"unix": ".stream", "unixgram": ".dgram", "unixpacket": ".seq"}
)

func (w *world) plantSockets(env func(string) string) error {
	tag := w.tag[:4]
	dirs := []string{w.open, w.private, w.runtime}
	if os.Geteuid() == 0 {
		dirs = append(dirs, shared...)
	} else {
		w.notes = append(w.notes, "no listener directly below /run: an unprivileged user makes none there")
	}
	for i, d := range dirs {
		p := d + "/s" + tag
		if i > 2 {
			p = d + "/" + w.Tag
		}
		if len(p) > 95 {
			w.notes = append(w.notes, "no listener in "+d+": its name is too long for a socket")
			continue
		}
		for kind, ext := range socketKinds {
			if err := w.unix("P16", kind, p+ext); err != nil {
				return fmt.Errorf("no sentinel at %s%s: %w", p, ext, err)
			}
		}
		w.Unix = append(w.Unix, p)
	}
	for prop, name := range map[string]string{"P18": "bus", "P19": "docker.sock", "P20": "agent.1"} {
		if err := w.unix(prop, "unix", w.open+"/"+name); err != nil {
			return err
		}
		w.Known = append(w.Known, [2]string{prop, w.open + "/" + name})
	}
	run, home := env("XDG_RUNTIME_DIR"), env("HOME")
	real := [][2]string{
		{"P18", "/run/dbus/system_bus_socket"}, {"P18", "/run/systemd/private"}, {"P18", run + "/bus"}, {"P18", run + "/systemd/private"}, {"P18", run + "/keyring/control"},
		{"P19", "/run/docker.sock"}, {"P19", "/run/podman/podman.sock"}, {"P19", "/run/containerd/containerd.sock"}, {"P19", "/run/crio/crio.sock"}, {"P19", "/run/buildkit/buildkitd.sock"},
		{"P19", "/run/libvirt/libvirt-sock"}, {"P19", run + "/docker.sock"}, {"P19", run + "/podman/podman.sock"}, {"P19", home + "/.docker/run/docker.sock"}, {"P19", strings.TrimPrefix(env("DOCKER_HOST"), "unix://")},
		{"P20", env("SSH_AUTH_SOCK")}, {"P20", run + "/gnupg/S.gpg-agent"}, {"P20", home + "/.gnupg/S.gpg-agent"}, {"P20", run + "/wayland-0"}, {"P20", run + "/pipewire-0"}, {"P20", run + "/pulse/native"},
		{"P20", "/tmp/.X11-unix/X0"}, {"P20", fmt.Sprintf("/tmp/tmux-%d/default", os.Getuid())},
	}
	for _, k := range real {
		if fi, err := os.Stat(k[1]); err == nil && filepath.IsAbs(k[1]) && fi.Mode()&os.ModeSocket != 0 {
			w.Known, w.Real = append(w.Known, k), append(w.Real, k[1])
		}
	}
	// No part of them stands in the name of a file: lists of sockets are searched for it.
	for _, n := range []string{"verify-abstract-" + nonce(), "/tmp/.X11-unix/X" + nonce()} {
		if err := errors.Join(w.unix("P17", "unix", "@"+n), w.unix("P17", "unixgram", "@"+n+".dgram")); err != nil {
			return err
		}
		w.Abstract = append(w.Abstract, n)
	}
	return nil
}

func (w *world) plantNet(func(string) string) error {
	addrs := []string{"127.0.0.1", "::1"}
	ifs, _ := net.InterfaceAddrs()
	for _, a := range ifs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() && len(addrs) < 6 {
			addrs = append(addrs, n.IP.String())
		}
	}
	for _, a := range addrs {
		l, err := net.Listen("tcp", net.JoinHostPort(a, "0"))
		if err != nil {
			w.notes = append(w.notes, "no listener at "+a+": "+err.Error())
			continue
		}
		w.stream("P41", l)
		c, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil {
			return err
		}
		w.packets("P41", c)
		w.Net = append(w.Net, l.Addr().String())
	}
	return nil
}

// plantSleeper starts a process of the same user, in a session of its own, that
// anybody of that user may trace.
func (w *world) plantSleeper(program string) error {
	cmd := exec.Command(program, attack.Arg, "sleep", w.Tag)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w.sleeper, w.Pid, w.Group = cmd, cmd.Process.Pid, cmd.Process.Pid
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the sleeping process says %q: %w", line, err)
	}
	return nil
}

// plantFiles opens what a launcher could leave open by mistake.
func (w *world) plantFiles() error {
	for _, name := range []string{w.Files[0], "/"} {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		w.files = append(w.files, f)
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return err
	}
	w.files = append(w.files, f)
	return nil
}

// plantEnv sets variables that hold a secret or lead to a socket, beside those of
// the user that do.
func (w *world) plantEnv(env func(string) string) {
	for _, n := range []string{"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NPM_TOKEN", "ANTHROPIC_API_KEY", "VERIFY_SECRET"} {
		w.env, w.Env = append(w.env, n+"="+w.EnvSecret), append(w.Env, n)
	}
	w.env, w.Env = append(w.env, "SSH_AUTH_SOCK="+w.open+"/agent.1"), append(w.Env, "SSH_AUTH_SOCK")
	for _, n := range []string{"DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DOCKER_HOST", "KUBECONFIG", "TMUX", "GPG_AGENT_INFO"} {
		if env(n) != "" {
			w.Env = append(w.Env, n)
		}
	}
}

// plantKey puts a key into a new session keyring of this thread, which every program
// that the thread starts inherits.
func (w *world) plantKey() {
	name := "caisson-verify:" + nonce()
	if _, err := unix.KeyctlJoinSessionKeyring(name); err != nil {
		w.notes = append(w.notes, "no key: this kernel gives no keyring: "+err.Error())
		return
	}
	key, err := unix.AddKey("user", name, []byte("host"), unix.KEY_SPEC_SESSION_KEYRING)
	if err == nil {
		err = unix.KeyctlSetperm(key, 0x3f3f3f3f) // another user id does not matter
	}
	if err != nil {
		w.notes = append(w.notes, "no key: "+err.Error())
		return
	}
	w.Key = name
}

// untouched says what became of the sentinels that are no listeners.
func (w *world) untouched() []touch {
	var out []touch
	for _, f := range w.Files {
		if data, err := os.ReadFile(f); err != nil || string(data) != w.Secret+"\n" {
			out = append(out, touch{"P01", f + " was changed"})
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.Pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	if err != nil || !strings.HasPrefix(rest, "S") {
		out = append(out, touch{"P28", "the sleeping process does not sleep any more"})
	}
	return out
}

// end takes everything away again.
func (w *world) end() {
	if w.sleeper != nil {
		_ = w.sleeper.Process.Kill()
		_ = w.sleeper.Wait()
	}
	w.listeners.end()
	for _, f := range w.files {
		_ = f.Close()
	}
	for _, d := range []string{w.open, w.runtime} {
		if d != "" {
			_ = os.RemoveAll(d)
		}
	}
	if w.tag != "" && os.Geteuid() == 0 { // of a run that was killed
		for _, d := range shared {
			for _, ext := range socketKinds {
				_ = os.Remove(d + "/" + prefix + w.tag + ext)
			}
		}
	}
	// The lock goes last: without it another run would take this one for dead.
	_ = removeBut(w.private, "lock")
	for _, l := range w.held {
		_ = os.Remove(w.private + "/lock")
		_ = l.Unlock()
	}
	_ = os.Remove(w.private)
}

// removeBut empties dir but for one name.
func removeBut(dir, but string) error {
	entries, err := os.ReadDir(dir)
	var errs []error
	for _, e := range entries {
		if e.Name() != but {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(append(errs, err)...)
}
