//go:build linux

package lifecycle

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestDecoys plants things that have our names but are not on record: no
// command may take them for its own, and reap names them.
func TestDecoys(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "real")
		v := w.show("real")
		const fake = "taaaaaaaaaa"

		folder := w.State + "/tasks/" + fake
		w.Mkdir(t, folder+"/source")
		w.Write(t, folder+"/source/precious", "x", 0o600)
		w.Write(t, folder+"/task.json", `{"id":"`+fake+`","token":"aaaaaaaaaaaaaaaaaaaaaaaaaa"}`, 0o600)
		odd := w.State + "/tasks/my notes"
		w.Mkdir(t, odd)

		sock := w.Runtime + "/" + fake + ".sock"
		l, err := net.Listen("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		file := w.Runtime + "/tbbbbbbbbbb.sock"
		w.Write(t, file, "not a socket", 0o600)

		head := w.git("rev-parse", "HEAD")
		w.git("update-ref", "refs/caisson/"+fake+"/pin/0", head)
		w.git("update-ref", "refs/caisson/"+fake+"/heads/main", head)
		defer w.git("update-ref", "-d", "refs/caisson/"+fake+"/pin/0")

		// Control groups: a neighbour of the real one, with another token and
		// with another task.
		var groups []string
		for _, r := range v.Resources {
			if r.Kind != "cgroup" {
				continue
			}
			base := filepath.Base(r.Name)
			for _, n := range []string{base[:len(base)-8] + "aaaaaaaa", strings.Replace(base, v.ID, fake, 1)} {
				g := filepath.Join(filepath.Dir(r.Name), n)
				if err := os.Mkdir(g, 0o755); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(g)
				groups = append(groups, g)
			}
		}
		if id.UID == 0 && len(groups) == 0 {
			t.Error("no control group was found to stand beside")
		}

		first := w.reap()
		w.ok("close", "real")
		second := w.reap()
		for name, r := range map[string]reapReport{"beside an open task": first, "alone": second} {
			var said []string
			for _, o := range r.Orphans {
				said = append(said, o.Name)
			}
			want := append([]string{folder, odd, sock, file, "refs/caisson/" + fake}, groups...)
			for _, n := range want {
				if !strings.Contains(strings.Join(said, "\n"), n) {
					t.Errorf("%s: reap does not report %s: %v", name, n, said)
				}
			}
			if len(said) != len(want) {
				t.Errorf("%s: %d reported, %d planted: %v", name, len(said), len(want), said)
			}
			if len(r.Actions) > 0 {
				t.Errorf("%s: reap did %v", name, r.Actions)
			}
		}
		for _, p := range append([]string{folder + "/source/precious", folder + "/task.json", odd, sock, file}, groups...) {
			if !exists(p) {
				t.Errorf("%s was removed", p)
			}
		}
		if got := w.git("for-each-ref", "--format=%(refname)", "refs/caisson/"); got != "refs/caisson/"+fake+"/heads/main\nrefs/caisson/"+fake+"/pin/0" {
			t.Errorf("refs are now %s", got)
		}
		if r := w.do(nil, "close", fake); r.Exit == 0 {
			t.Errorf("a task that is not on record was closed: %v", r)
		}
		_ = os.RemoveAll(folder)
		_ = os.Remove(odd)
		_ = os.Remove(file)
	})
}

// TestForeignFolderOfARealTask swaps a task's folder for another one: it does
// not carry the token, so it stays.
func TestForeignFolderOfARealTask(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("run", "--name", "swap", "--", "sh", "-c", "echo x >x")
		v := w.show("swap")
		dir := w.State + "/tasks/" + v.ID
		if err := os.Rename(dir, w.Tmp+"/away"); err != nil {
			t.Fatal(err)
		}
		w.Mkdir(t, dir+"/source")
		w.Write(t, dir+"/source/precious", "x", 0o600)
		_ = os.Chmod(dir, 0o700)
		r := w.do(nil, "close", "--discard", "swap")
		if r.Exit != 7 || !strings.Contains(r.Stderr, "task.json") {
			t.Errorf("close: %v", r)
		}
		if !exists(dir + "/source/precious") {
			t.Error("a folder without the token was removed")
		}
		w.do(nil, "reap")
		if !exists(dir + "/source/precious") {
			t.Error("a folder without the token was removed by reap")
		}
		// Put back, everything ends.
		_ = os.RemoveAll(dir)
		if err := os.Rename(w.Tmp+"/away", dir); err != nil {
			t.Fatal(err)
		}
		w.ok("reap")
		w.clean()
	})
}

// TestSocketReplaced puts an ordinary file where an open task's socket was.
func TestSocketReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.NewIdentity(t, "socket", os.Getuid()), harness.Bin())
	w.ok("open", "real")
	v := w.show("real")
	sock := w.Runtime + "/" + v.ID + ".sock"
	if err := os.Remove(sock); err != nil {
		t.Fatal(err)
	}
	w.Write(t, sock, "mine", 0o600)
	r := w.do(nil, "close", "real")
	if r.Exit == 0 || !strings.Contains(r.Stderr, "does not answer") {
		t.Errorf("close without a socket: %v", r)
	}
	terminate(t, v.Supervisor.PID)
	if b, _ := os.ReadFile(sock); string(b) != "mine" {
		t.Errorf("the file was removed")
	}
	_ = os.Remove(sock)
	w.clean()
}
