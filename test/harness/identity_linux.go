package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// UserID is the unprivileged id that a suite started by root also uses. It has
// no entry in /etc/passwd, no groups and no capabilities.
const UserID = 64321

// Limit bounds every command that a test waits for. Only a bug reaches it.
const Limit = 8 * time.Minute

// Identity is whom the product is run as, with folders of its own: nothing of
// the machine's real user is read or written.
type Identity struct {
	Name    string // "root" or "user"
	UID     int
	Dir     string // all of it; mode 0700
	Home    string
	State   string // CAISSON_STATE_DIR
	Runtime string // CAISSON_RUNTIME_DIR
	XDG     string // XDG_RUNTIME_DIR
	Tmp     string // a folder for the test's own files
	Env     []string
}

var serial atomic.Int32

// Each runs f as every identity that this process can take: root and an
// unprivileged user when it is root, else only the user that it is; with an engine,
// see Both, only that user. When f is done every task is closed and nothing of the
// identity may be left on the host.
func Each(t *testing.T, f func(t *testing.T, id *Identity)) { t.Helper(); each(t, false, f) }

// Both is Each that with an engine is not content with the unprivileged user.
func Both(t *testing.T, f func(t *testing.T, id *Identity)) { t.Helper(); each(t, true, f) }

func each(t *testing.T, both bool, f func(t *testing.T, id *Identity)) {
	t.Helper()
	if os.Getuid() != 0 && strings.HasPrefix(t.Name(), "Test") && serial.Load() == 0 {
		t.Log("not root: the tests run as this user only")
	}
	for _, w := range identities(t, both) {
		t.Run(w.name, func(t *testing.T) {
			id := NewIdentity(t, w.name, w.uid)
			t.Cleanup(func() { ran.Store(t.Name(), !t.Skipped()) })
			f(t, id)
		})
	}
}

// ran are the tests that Each ran to their end, and whether they did what they are for.
var ran sync.Map

// Ran reports whether Each has run a test, as TEST/IDENTITY, and it was not skipped.
func Ran(name string) bool {
	did, ok := ran.Load(name)
	return ok && did.(bool)
}

// NewIdentity makes the folders of an identity; a cleanup ends all of its
// tasks and reports what is left. uid is 0 or, as root only, any other.
func NewIdentity(t *testing.T, name string, uid int) *Identity {
	t.Helper()
	id := &Identity{Name: name, UID: uid, Dir: filepath.Join(base, fmt.Sprintf("%s%d", name, serial.Add(1)))}
	id.Home, id.State, id.Runtime = id.Dir+"/home", id.Dir+"/state", id.Dir+"/run"
	id.XDG, id.Tmp = id.Dir+"/xdg", id.Dir+"/tmp"
	for _, d := range []string{id.Dir, id.Home, id.Runtime, id.XDG, id.Tmp} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(d, uid, uid); err != nil && os.Getuid() == 0 {
			t.Fatal(err)
		}
	}
	id.Env = []string{"HOME=" + id.Home, "USER=tester", "LOGNAME=tester", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "TERM=xterm", "SHELL=/bin/sh",
		"XDG_RUNTIME_DIR=" + id.XDG, "CAISSON_STATE_DIR=" + id.State, "CAISSON_RUNTIME_DIR=" + id.Runtime}
	id.Env = append(id.Env, backendEnv(t)...)
	if p := Runtime("gvisor"); p != "" {
		id.Env = append(id.Env, "CAISSON_RUNSC="+p)
	}
	t.Cleanup(func() {
		id.CloseAll(t)
		left := id.Left()
		// An engine's monitor outlives the container that it says is gone.
		for end := time.Now().Add(10 * time.Second); len(left) > 0 && id.engine() && time.Now().Before(end); left = id.Left() {
			time.Sleep(50 * time.Millisecond)
		}
		for _, left := range left {
			t.Error("left on the host: " + left)
		}
	})
	return id
}

// Command prepares a program to run as id in folder dir.
func (id *Identity) Command(ctx context.Context, dir, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = dir, append([]string(nil), id.Env...)
	cmd.WaitDelay = 5 * time.Second
	if os.Getuid() == 0 && id.UID != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id.UID), Gid: uint32(id.UID)}}
	}
	return cmd
}

// Result is what a command did.
type Result struct {
	Args           []string
	Stdout, Stderr string
	Exit           int // -1: it was killed or never ended
}

func (r Result) String() string {
	return fmt.Sprintf("%q: exit %d\nstdout: %s\nstderr: %s", r.Args, r.Exit, clip(r.Stdout), clip(r.Stderr))
}

func clip(s string) string {
	if len(s) > 4000 {
		return s[:2000] + " … " + s[len(s)-2000:]
	}
	return s
}

// Run runs a prepared command to its end.
func Run(t *testing.T, cmd *exec.Cmd) Result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, errs.String())
	}
	return Result{Args: cmd.Args, Stdout: out.String(), Stderr: errs.String(), Exit: cmd.ProcessState.ExitCode()}
}

// Caisson runs the product as id in folder dir and returns what it did. A
// command that does not end in time fails the test.
func (id *Identity) Caisson(t *testing.T, dir string, args ...string) Result {
	t.Helper()
	r := id.Within(t, Limit, dir, args...)
	if r.Exit < 0 {
		t.Fatalf("did not end within %s: %v", Limit, r)
	}
	return r
}

// Within is Caisson for a command that may hang: after d it is killed and its
// exit status is -1.
func (id *Identity) Within(t *testing.T, d time.Duration, dir string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return Run(t, id.Command(ctx, dir, bin, args...))
}

// OK is Caisson that fails the test unless the exit status is 0; it returns
// standard output.
func (id *Identity) OK(t *testing.T, dir string, args ...string) string {
	t.Helper()
	r := id.Caisson(t, dir, args...)
	if r.Exit != 0 {
		t.Fatal(r)
	}
	return r.Stdout
}

// Open opens a task on repo and returns its id.
func (id *Identity) Open(t *testing.T, repo string, flags ...string) string {
	t.Helper()
	var v struct{ ID string }
	out := id.OK(t, repo, append([]string{"open", "--json"}, flags...)...)
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.ID == "" {
		t.Fatalf("open: %v in %s", err, out)
	}
	return v.ID
}

// Git runs git as id and fails the test when it fails; it returns standard
// output without the last line feed.
func (id *Identity) Git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := id.Command(context.Background(), dir, "git", args...)
	cmd.Env = append(cmd.Env, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Tester", "GIT_AUTHOR_EMAIL=t@example.org",
		"GIT_COMMITTER_NAME=Tester", "GIT_COMMITTER_EMAIL=t@example.org")
	r := Run(t, cmd)
	if r.Exit != 0 {
		t.Fatal(r)
	}
	return strings.TrimSuffix(r.Stdout, "\n")
}

// Repo makes a repository of one commit with these files below a new folder of
// id. The path does not lie in the shared temporary folder's top.
func (id *Identity) Repo(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(id.Dir, fmt.Sprintf("repo%d", serial.Add(1)))
	id.Mkdir(t, dir)
	id.Git(t, dir, "init", "-q", "-b", "main")
	for name, text := range files {
		id.Write(t, filepath.Join(dir, name), text, 0o644)
	}
	id.Git(t, dir, "add", "-A")
	id.Git(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return dir
}

// Mkdir makes a folder that belongs to id, with its parents.
func (id *Identity) Mkdir(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Lstat(dir); err == nil {
		return
	}
	id.Mkdir(t, filepath.Dir(dir))
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Lchown(dir, id.UID, id.UID)); err != nil {
		t.Fatal(err)
	}
}

// Write makes a file that belongs to id, with its folders.
func (id *Identity) Write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	id.Mkdir(t, filepath.Dir(name))
	if err := errors.Join(os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode), os.Lchown(name, id.UID, id.UID)); err != nil {
		t.Fatal(err)
	}
}

// CloseAll ends every task of id without rescuing anything.
func (id *Identity) CloseAll(t *testing.T) {
	t.Helper()
	r := id.Caisson(t, id.Dir, "ls", "--all", "--json")
	var list struct {
		Tasks []struct{ ID, State string }
	}
	if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil {
		t.Errorf("ls: %v: %v", err, r)
	}
	for _, v := range list.Tasks {
		if v.State == "closed" {
			continue
		}
		if r := id.Caisson(t, id.Dir, "close", "--discard", v.ID); r.Exit != 0 {
			t.Errorf("close a task that is %s: %v", v.State, r)
		}
	}
}

// UserOf returns the id of an ordinary user to run as: the unprivileged one of
// a suite started by root, else this one.
func UserOf() int {
	if os.Getuid() == 0 {
		return UserID
	}
	return os.Getuid()
}
