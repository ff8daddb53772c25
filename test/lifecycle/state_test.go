//go:build linux

package lifecycle

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// with runs the program with variables set or, as "NAME", removed.
func (w *world) with(env []string, args ...string) harness.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := w.Command(ctx, w.repo, w.bin, args...)
	for _, e := range env {
		name, _, set := strings.Cut(e, "=")
		cmd.Env = slices.DeleteFunc(cmd.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if set {
			cmd.Env = append(cmd.Env, e)
		}
	}
	return harness.Run(w.t, cmd)
}

// refused fails unless a command ended with an error of this code, a hint, and
// without an effect on the repository.
func (w *world) refused(r harness.Result, code string) {
	w.t.Helper()
	if r.Exit == 0 || !strings.Contains(r.Stderr, "("+code+")") || !strings.Contains(r.Stderr, "hint:") {
		w.t.Errorf("expected %s with a hint: %v", code, r)
	}
	for _, d := range w.before.Changed(harness.TakePicture(w.t, w.repo), harness.Results) {
		w.t.Error("the user's repository: " + d)
	}
}

func TestStateReadOnly(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("ls")
		if id.UID == 0 {
			t.Log("root: modes do not bind it; see TestStateOnReadOnlyMount")
			return
		}
		if err := os.Chmod(w.State, 0o500); err != nil {
			t.Fatal(err)
		}
		w.refused(w.do(nil, "run", "--", "true"), "state_store")
		w.refused(w.do(nil, "ls"), "state_store")
		_ = os.Chmod(w.State, 0o700)
		fresh := w.Dir + "/ro"
		w.Mkdir(t, fresh)
		_ = os.Chmod(fresh, 0o500)
		w.refused(w.with([]string{"CAISSON_STATE_DIR=" + fresh + "/new"}, "run", "--", "true"), "state_store")
		_ = os.Chmod(fresh, 0o700)
	})
}

// inNamespace runs a script as root of a private mount namespace with w's
// environment and the program as $CAISSON.
func (w *world) inNamespace(script string) harness.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := w.Command(ctx, w.repo, "unshare", "--mount", "--propagation", "private", "sh", "-ec", script)
	cmd.Env = append(cmd.Env, "CAISSON="+w.bin, "STATE="+w.State)
	return harness.Run(w.t, cmd)
}

func rootWorld(t *testing.T, name string) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting in a private namespace needs root")
	}
	w := newWorld(t, harness.NewIdentity(t, name, 0), harness.Bin())
	if err := exec.Command("unshare", "--mount", "--propagation", "private", "true").Run(); err != nil {
		t.Skip("no private mount namespace here: ", err)
	}
	return w
}

func TestStateOnReadOnlyMount(t *testing.T) {
	t.Parallel()
	w := rootWorld(t, "romount")
	w.ok("ls")
	r := w.inNamespace(`mount --bind "$STATE" "$STATE"; mount -o remount,bind,ro "$STATE"; exec "$CAISSON" run -- true`)
	w.refused(r, "state_store")
}

// TestDiskFull lets the file system below the state run full at the start, and
// by the task's own hand.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	w := rootWorld(t, "full")
	// 12 MiB hold the worker and the inventory, 256 KiB do not.
	r := w.inNamespace(`mkdir -p "$STATE"; mount -t tmpfs -o size=256k,mode=700 none "$STATE"; exec "$CAISSON" run -- true`)
	if r.Exit != 125 || !strings.Contains(r.Stderr, "error:") || strings.Contains(r.Stderr, "panic") {
		t.Errorf("on a full disk: %v", r)
	}
	r = w.inNamespace(`mkdir -p "$STATE"; mount -t tmpfs -o size=32m,mode=700 none "$STATE"
"$CAISSON" run -- sh -c 'echo small >small; cat /dev/zero >big.ignored' || echo first $?
df --output=avail "$STATE" | tail -1
"$CAISSON" ls --all >/dev/null || echo ls $?
rm -f "$STATE"/tasks/*/source/big.ignored "$STATE"/tasks/*/kept/files/big.ignored
"$CAISSON" reap || echo reap $?
for t in $("$CAISSON" ls -q); do "$CAISSON" close --discard $t || echo close $?; done
"$CAISSON" ls --all --json`)
	var l struct{ Tasks []view }
	_, tail, _ := strings.Cut(r.Stdout, "{")
	w.decode("{"+tail, &l)
	if len(l.Tasks) != 1 {
		t.Fatalf("%v", r)
	}
	if v := l.Tasks[0]; v.State != "closed" || !strings.Contains(r.Stdout, "first") {
		t.Errorf("after a full disk the task is %s (%s): %v", v.State, v.Problem, r)
	}
	if got, _ := w.has(l.Tasks[0].ID, "worktree", "small"); got != "small\n" {
		t.Errorf("its file: %q; %v", got, r)
	}
}

func TestRuntimeFolder(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		// Missing: it is made, private.
		run := w.Dir + "/a/b/run"
		w.Mkdir(t, w.Dir+"/a")
		env := []string{"CAISSON_RUNTIME_DIR=" + run}
		if r := w.with(env, "open", "x"); r.Exit != 0 {
			t.Fatal(r)
		}
		if i, err := os.Stat(run); err != nil || i.Mode().Perm() != 0o700 {
			t.Errorf("%v %v", i, err)
		}
		if r := w.with(env, "exec", "x", "--", "echo", "hi"); r.Stdout != "hi\n" {
			t.Error(r)
		}
		if r := w.with(env, "close", "x"); r.Exit != 0 {
			t.Error(r)
		}
		// Longer than a socket's address.
		deep := w.Dir + strings.Repeat("/long", 40)
		w.Mkdir(t, deep)
		env = []string{"CAISSON_RUNTIME_DIR=" + deep + "/run"}
		if r := w.with(env, "open", "x"); r.Exit != 0 {
			t.Fatal(r)
		}
		if r := w.with(env, "exec", "x", "--", "echo", "hi"); r.Stdout != "hi\n" {
			t.Error(r)
		}
		if r := w.with(env, "close", "x"); r.Exit != 0 {
			t.Error(r)
		}
		// Open to others: refused.
		shared := w.Dir + "/shared"
		w.Mkdir(t, shared)
		_ = os.Chmod(shared, 0o777)
		w.refused(w.with([]string{"CAISSON_RUNTIME_DIR=" + shared}, "run", "--", "true"), "state_store")
		w.clean()
	})
}

// TestNoHome: without HOME and XDG variables the user database decides, or the
// program says what to set.
func TestNoHome(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		r := w.with([]string{"HOME", "XDG_RUNTIME_DIR"}, "run", "--", "sh", "-c", "cd && pwd")
		if r.Exit != 0 || !strings.HasPrefix(r.Stdout, "/") {
			t.Errorf("without HOME: %v", r)
		}
		if id.UID == harness.UserID { // has no entry in the user database
			r = w.with([]string{"HOME", "XDG_RUNTIME_DIR", "CAISSON_STATE_DIR", "CAISSON_RUNTIME_DIR"}, "run", "--", "true")
			w.refused(r, "state_store")
		}
		w.clean()
	})
}

// TestNoVariables: HOME alone gives the XDG defaults.
func TestNoVariables(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs an identity whose runtime folder is nobody else's: run as root")
	}
	w := newWorld(t, harness.NewIdentity(t, "bare", harness.UserID), harness.Bin())
	env := []string{"CAISSON_STATE_DIR", "CAISSON_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TMPDIR=" + w.Tmp}
	if r := w.with(env, "run", "--", "true"); r.Exit != 0 {
		t.Error(r)
	}
	if !exists(w.Home + "/.local/state/caisson/state.db") {
		t.Error("the state is not where XDG says")
	}
	if r := w.with(env, "reap"); r.Exit != 0 {
		t.Error(r)
	}
}

// TestInventoryLost: reap names the folders that nobody knows any more and
// leaves them.
func TestInventoryLost(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("run", "--name", "x", "--", "sh", "-c", job)
		v := w.show("x")
		for _, f := range []string{"state.db", "state.db-wal", "state.db-shm"} {
			_ = os.Rename(w.State+"/"+f, w.Tmp+"/"+f)
		}
		dir := w.State + "/tasks/" + v.ID
		r := w.reap()
		if len(r.Orphans) != 1 || r.Orphans[0].Name != dir || !exists(dir+"/source/u.txt") {
			t.Errorf("%+v", r)
		}
		w.ok("run", "--", "true") // and goes on
		for _, f := range []string{"state.db", "state.db-wal", "state.db-shm"} {
			_ = os.Remove(w.State + "/" + f)
			_ = os.Rename(w.Tmp+"/"+f, w.State+"/"+f)
		}
		for _, o := range w.reap().Orphans {
			if o.Kind == "folder" { // of the run in between
				_ = os.RemoveAll(o.Name)
			}
		}
		w.clean()
	})
}

func TestInventoryOfANewerVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.NewIdentity(t, "newer", os.Getuid()), harness.Bin())
	w.ok("ls")
	now := query(t, w.State, "PRAGMA user_version")
	update(t, w.State, "PRAGMA user_version = 99")
	r := w.do(nil, "run", "--", "true")
	w.refused(r, "state_store")
	if !strings.Contains(r.Stderr, "newer") {
		t.Error(r)
	}
	update(t, w.State, "PRAGMA user_version = "+now)
	w.clean()
}

func TestInventoryDamaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.NewIdentity(t, "damaged", os.Getuid()), harness.Bin())
	w.ok("ls")
	good, err := os.ReadFile(w.State + "/state.db")
	if err != nil {
		t.Fatal(err)
	}
	w.Write(t, w.State+"/state.db", strings.Repeat("no database ", 1000), 0o600)
	w.refused(w.do(nil, "run", "--", "true"), "state_store")
	w.Write(t, w.State+"/state.db", string(good), 0o600)
	w.clean()
}
