package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Engine is a container engine of this run alone: its own socket, folders and
// control group, so that one that serves the machine is not disturbed.
type Engine struct {
	Backend string // the word after --backend
	Host    string // unix://SOCKET
	Dir     string

	args   []string
	env    []string
	mark   string
	as     *syscall.Credential // nil: root
	daemon *exec.Cmd
	exited chan struct{}
}

// Variable is what tells a command line and caisson where it is.
func (e *Engine) Variable() string {
	if e.Backend == "podman" {
		return "CONTAINER_HOST=" + e.Host
	}
	return "DOCKER_HOST=" + e.Host
}

// Container is the id of the container of a task.
func (e *Engine) Container(t testing.TB, task string) string {
	t.Helper()
	ids := strings.Fields(e.Run(t, "ps", "--all", "--no-trunc", "--quiet", "--filter", "label=caisson.task="+task))
	if len(ids) != 1 {
		t.Fatalf("task %s has the containers %q", task, ids)
	}
	return ids[0]
}

var engines struct {
	sync.Mutex
	all []*Engine
	why map[string]error
}

// Docker returns the run's Docker Engine. It skips the test, with the reason, where
// none can be started.
func Docker(t testing.TB) *Engine { return engine(t, "docker", newDocker) }

// Podman returns the run's Podman, as root.
func Podman(t testing.TB) *Engine { return engine(t, "podman", newPodman) }

func engine(t testing.TB, name string, start func() (*Engine, error)) *Engine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skipf("a %s of the test's own needs root", name)
	}
	engines.Lock()
	defer engines.Unlock()
	for _, e := range engines.all {
		if e.Backend == name && e.as == nil {
			return e
		}
	}
	err := engines.why[name]
	if err == nil {
		e, serr := start()
		if serr == nil {
			engines.all = append(engines.all, e)
			return e
		}
		if engines.why == nil {
			engines.why = map[string]error{}
		}
		err, engines.why[name] = serr, serr
	}
	t.Skipf("%s cannot be started on this machine: %v", name, err)
	return nil
}

// StopEngines ends every engine of the run and takes away what it leaves. Main does
// it; a package with a TestMain of its own calls it last.
func StopEngines() error {
	engines.Lock()
	defer engines.Unlock()
	var errs []error
	for _, e := range engines.all {
		errs = append(errs, e.stop())
	}
	engines.all = nil
	return errors.Join(errs...)
}

func newEngine(backend string) (*Engine, error) {
	base := os.TempDir()
	if len(base) > len("/tmp")+10 {
		base = "/tmp" // Podman refuses a longer place than 50 characters for what it keeps while it runs
	}
	dir, err := os.MkdirTemp(base, "engine-"+backend+"-")
	if err != nil {
		return nil, err
	}
	// An ordinary user of the tests is let in as a member of docker's group would be.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	return &Engine{Backend: backend, Dir: dir, Host: "unix://" + filepath.Join(dir, "sock"), mark: filepath.Base(dir)}, nil
}

func newDocker() (*Engine, error) { return dockerWith(nil, 0) }

// DockerWith starts one more Docker Engine, with settings of its daemon.json beside
// the usual ones, and with its data on a file system of that many MiB in memory where
// that is not 0. It ends with the test.
func DockerWith(t testing.TB, settings map[string]any, mib int) *Engine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a docker of the test's own needs root")
	}
	e, err := dockerWith(settings, mib)
	if err != nil {
		t.Skipf("docker cannot be started on this machine with %v: %v", settings, err)
	}
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func dockerWith(settings map[string]any, mib int) (*Engine, error) {
	for _, name := range []string{"dockerd", "docker", "containerd", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	e, err := newEngine("docker")
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(e.Dir, "daemon.json")
	all := map[string]any{"bridge": "none", "iptables": false, "ip-masq": false, "cgroup-parent": "/" + e.mark}
	maps.Copy(all, settings)
	text, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(conf, text, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if mib > 0 {
		data := filepath.Join(e.Dir, "data")
		if err := errors.Join(os.Mkdir(data, 0o711), unix.Mount("tmpfs", data, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=711", mib))); err != nil {
			return nil, errors.Join(err, e.stop())
		}
	}
	e.args = []string{"dockerd", "--config-file", conf, "--data-root", filepath.Join(e.Dir, "data"), "--exec-root", filepath.Join(e.Dir, "exec"), "-H", e.Host, "--pidfile", filepath.Join(e.Dir, "pid")}
	if err := e.Start(); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

func newPodman() (*Engine, error) {
	for _, name := range []string{"podman", "conmon", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	e, err := newEngine("podman")
	if err != nil {
		return nil, err
	}
	// Without the right to raise limits, as in many containers and virtual machines,
	// its own default limits end every start. Soft and hard ones must be equal.
	conf := filepath.Join(e.Dir, "containers.conf")
	text := "[containers]\ndefault_ulimits = [\"nofile=1024:1024\",\"nproc=1000:1000\"]\n[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	e.env = []string{"CONTAINERS_CONF=" + conf}
	e.args = append(e.podman(), "system", "service", "--time", "0", e.Host)
	if err := e.Start(); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

func (e *Engine) podman() []string {
	return []string{"podman", "--root", filepath.Join(e.Dir, "root"), "--runroot", filepath.Join(e.Dir, "run"), "--tmpdir", filepath.Join(e.Dir, "tmp")}
}

// Start starts the engine, again after Stop, and waits until it answers.
func (e *Engine) Start() error {
	log, err := os.OpenFile(filepath.Join(e.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(e.args[0], e.args[1:]...)
	c.Dir = e.Dir // conmon leaves files where it was started
	c.Env = append(os.Environ(), e.env...)
	c.Stdout, c.Stderr, c.Dir = log, log, e.Dir // where a monitor of Podman's leaves files
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: e.as}
	exited, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// The thread stays for the life of the daemon, which ends with it.
		runtime.LockOSThread()
		defer close(exited)
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	e.daemon, e.exited = c, exited
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		select {
		case <-exited:
			b, _ := os.ReadFile(log.Name())
			lines := strings.Split(strings.TrimSpace(string(b)), "\n")
			return fmt.Errorf("%s ended: %s", e.args[0], lines[len(lines)-1])
		default:
		}
		// Podman's command line does not ask its service: the socket says that it is there.
		socket := strings.TrimPrefix(e.Host, "unix://")
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		var out []byte
		if err == nil {
			out, err = e.Command("version").CombinedOutput()
		}
		if err == nil {
			return os.Chmod(socket, 0o666)
		} else if time.Now().After(end) {
			return fmt.Errorf("%s does not answer: %s", e.args[0], out)
		}
	}
}

// Stop ends the daemon as an administrator does; what it ran ends with it.
func (e *Engine) Stop() error {
	if e.daemon == nil {
		return nil
	}
	if e.as != nil {
		// It starts itself anew as a child, in the user namespace. It was not waited for
		// yet, so the group is its own.
		_ = syscall.Kill(-e.daemon.Process.Pid, syscall.SIGTERM)
		defer e.endPause()
	} else {
		_ = e.daemon.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-e.exited:
	case <-time.After(time.Minute):
		_ = e.daemon.Process.Kill()
		<-e.exited
	}
	e.daemon = nil
	return nil
}

// endPause ends the process by which a user's Podman keeps its namespace, which it
// leaves behind.
func (e *Engine) endPause() {
	_ = filepath.WalkDir(e.Dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "pause.pid" {
			return nil
		}
		b, _ := os.ReadFile(p)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if pid > 1 && strings.HasPrefix(string(status), "Name:\tpodman") && strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", e.as.Uid)) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return nil
	})
}

// Command prepares the engine's own command line.
func (e *Engine) Command(args ...string) *exec.Cmd {
	var c *exec.Cmd
	if e.Backend == "podman" {
		all := append(e.podman(), args...)
		c = exec.Command(all[0], all[1:]...)
	} else {
		c = exec.Command("docker", append([]string{"-H", e.Host}, args...)...)
	}
	c.Env = append(os.Environ(), e.env...)
	if e.as != nil {
		c.Dir, c.SysProcAttr = e.Dir, &syscall.SysProcAttr{Credential: e.as}
	}
	return c
}

// Run runs the engine's own command line and returns what it printed.
func (e *Engine) Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := e.Command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", e.Backend, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Containers lists the ids of all there are.
func (e *Engine) Containers(t testing.TB) []string {
	t.Helper()
	return strings.Fields(e.Run(t, "ps", "--all", "--quiet"))
}

// Import makes an image of a folder, with options of the engine's own import.
func (e *Engine) Import(t testing.TB, dir, name string, options ...string) {
	t.Helper()
	tar := exec.Command("tar", "-C", dir, "-c", ".")
	c := e.Command(append(append([]string{"import"}, options...), "-", name)...)
	pipe, err := tar.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin = pipe
	if err := tar.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := c.CombinedOutput()
	if terr := tar.Wait(); err != nil || terr != nil {
		t.Fatalf("import %s: %v, %v\n%s", name, err, terr, out)
	}
}

// stop removes containers, ends the daemon and takes away what is left.
func (e *Engine) stop() error {
	if e.daemon != nil {
		if out, err := e.Command("ps", "--all", "--quiet").Output(); err == nil {
			for _, id := range strings.Fields(string(out)) {
				_ = e.Command("rm", "--force", id).Run()
			}
		}
	}
	err := e.Stop()
	// Both leave a mount behind at times.
	for range 10 {
		b, rerr := os.ReadFile("/proc/self/mountinfo")
		if rerr != nil {
			break
		}
		left := 0
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], e.Dir+"/") {
				left++
				_ = unix.Unmount(f[4], unix.MNT_DETACH)
			}
		}
		if left == 0 {
			break
		}
	}
	return errors.Join(err, e.ungroup(), os.RemoveAll(e.Dir))
}

// ungroup removes the control groups of the engine's containers, the lowest first.
// One is in use until the kernel has buried the last of its processes.
func (e *Engine) ungroup() error {
	var errs []error
	tops, _ := filepath.Glob("/sys/fs/cgroup/*/" + e.mark)
	for _, top := range append(tops, "/sys/fs/cgroup/"+e.mark) {
		var dirs []string
		_ = filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for _, d := range slices.Backward(dirs) {
			err := os.Remove(d)
			for end := time.Now().Add(5 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(end); err = os.Remove(d) {
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Rootless returns a Podman of an ordinary user of this machine who has subordinate
// ids, and that user's id. It skips the test where there is none: UserWithIDs makes one.
func Rootless(t testing.TB) (*Engine, int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to become a user with subordinate ids needs root")
	}
	engines.Lock()
	defer engines.Unlock()
	for _, e := range engines.all {
		if e.Backend == "podman" && e.as != nil {
			return e, int(e.as.Uid)
		}
	}
	name, uid, gid, err := userWithIDs()
	if err == nil {
		err = engines.why[RootlessPodman]
	}
	var e *Engine
	if err == nil {
		e, err = rootless(uid, gid)
	}
	if err != nil {
		if engines.why == nil {
			engines.why = map[string]error{}
		}
		engines.why[RootlessPodman] = err
		t.Skipf("Podman cannot be started as an ordinary user (%s): %v", name, err)
	}
	engines.all = append(engines.all, e)
	return e, uid
}

func rootless(uid, gid int) (*Engine, error) {
	for _, name := range []string{"podman", "conmon", "runc", "newuidmap"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	e, err := newEngine("podman")
	if err != nil {
		return nil, err
	}
	e.Backend, e.as = "podman", &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	conf := filepath.Join(e.Dir, "containers.conf")
	text := "[containers]\ndefault_ulimits = [\"nofile=1024:1024\",\"nproc=1000:1000\"]\n[engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n"
	err = os.WriteFile(conf, []byte(text), 0o644)
	for _, d := range []string{"home", "xdg", "own"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(e.Dir, d), 0o700), os.Chown(filepath.Join(e.Dir, d), uid, gid))
	}
	if err = errors.Join(err, os.Chown(e.Dir, uid, gid)); err != nil {
		return nil, err
	}
	e.env = []string{"CONTAINERS_CONF=" + conf, "HOME=" + filepath.Join(e.Dir, "home"), "XDG_RUNTIME_DIR=" + filepath.Join(e.Dir, "xdg"), "TMPDIR=" + filepath.Join(e.Dir, "own")}
	e.args = append(e.podman(), "system", "service", "--time", "0", e.Host)
	if err := e.Start(); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}
