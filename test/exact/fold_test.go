//go:build linux

package exact

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// folding mounts a file system that does not tell case apart and returns a
// folder of id's on it, with the name of its kind. Without one on this machine
// the test is skipped.
func folding(t *testing.T, id *harness.Identity) (dir, kind string) {
	t.Helper()
	if given := os.Getenv("CAISSON_TEST_FOLDING"); given != "" {
		dir, err := os.MkdirTemp(given, "exact-")
		if err == nil {
			err = errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, id.UID, id.UID))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		return dir, given
	}
	if os.Getuid() != 0 {
		t.Skip("only root mounts a file system that does not tell case apart")
	}
	at, img := id.Dir+"/folding", id.Dir+"/folding.img"
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	image := func(mkfs ...string) bool {
		_ = os.Remove(img)
		f, err := os.Create(img)
		if err == nil {
			err = errors.Join(f.Truncate(64<<20), f.Close())
		}
		return err == nil && exec.Command(mkfs[0], append(mkfs[1:], img)...).Run() == nil
	}
	var tried []string
	for _, k := range []struct {
		kind  string
		mount func() bool
	}{
		{"ext4 casefold", func() bool {
			return image("mkfs.ext4", "-q", "-F", "-O", "casefold", "-E", "encoding=utf8") && exec.Command("mount", "-o", "loop", img, at).Run() == nil
		}},
		{"tmpfs casefold", func() bool { return unix.Mount("folding", at, "tmpfs", 0, "casefold") == nil }},
		{"lowntfs-3g", func() bool { return image("mkfs.ntfs", "-F", "-Q", "-q") && served(t, img, at) }},
		{"vfat", func() bool {
			return image("mkfs.vfat") && exec.Command("mount", "-o", "loop,utf8,umask=022,uid="+itoa(id.UID)+",gid="+itoa(id.UID), img, at).Run() == nil
		}},
	} {
		if !k.mount() {
			tried = append(tried, k.kind)
			continue
		}
		t.Cleanup(func() {
			if err := exec.Command("umount", at).Run(); err != nil {
				t.Errorf("umount %s: %v", at, err)
			}
		})
		dir := at + "/d"
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, id.UID, id.UID)); err != nil && k.kind != "vfat" {
			t.Fatal(err)
		}
		if strings.HasSuffix(k.kind, "casefold") {
			if err := exec.Command("chattr", "+F", dir).Run(); err != nil {
				t.Fatalf("chattr +F on %s: %v", k.kind, err)
			}
		}
		id.Write(t, dir+"/Probe", "", 0o644)
		if _, err := os.Lstat(dir + "/pROBE"); err != nil {
			t.Fatalf("%s tells case apart: %v", k.kind, err)
		}
		if err := os.Remove(dir + "/Probe"); err != nil {
			t.Fatal(err)
		}
		return dir, k.kind
	}
	t.Skipf("no file system without case can be mounted on this machine: tried %q", tried)
	return "", ""
}

// twins are names of one file each, where neither case nor accents count.
var twins = [][2]string{{"A.txt", "a.txt"}, {"D/x", "d/x"}, {"D/one", "d/two"}, {"caf\u00e9", "cafe\u0301"}, {"\u00c4", "\u00e4"}, {"Stra\u00dfe", "STRASSE"}}

// TestTwins has such names where they are two files: inside, in every way out,
// onto a host that tells them apart.
func TestTwins(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		all := map[string]string{"base.txt": "base\n"}
		for i, p := range twins {
			all[p[0]], all[p[1]] = "one "+itoa(i)+"\n", "two "+itoa(i)+"\n"
		}
		w.repo = w.Repo(t, all)
		w.clone(w.plain, "")
		base, id := w.git("rev-parse", "HEAD"), w.open()
		harness.Same(t, "inside", w.inside(id), harness.Files(t, w.plain))
		edit := "for f in A.txt d/x \"$(printf 'cafe\\314\\201')\"; do echo more >>\"$f\"; done; git mv D/one D/ONE 2>/dev/null || mv D/one D/ONE; rm Stra*; echo new >New; echo new2 >new; mkdir E e; echo 1 >E/f; echo 2 >e/f"
		w.in(id, edit)
		w.sh(w.plain, edit)
		w.matches(id, base)
		w.applies(id, base)
		if v := w.do("diff", id); !strings.Contains(v.Stderr, "case or the form of accents") {
			t.Errorf("twins are not named: %s", v.Stderr)
		}
	})
}

// TestFoldingHost brings results onto a file system that takes two names for
// one: exact or refused, and never a file less.
func TestFoldingHost(t *testing.T) {
	each(t, "", func(w *world) {
		t := w.t
		dir, kind := folding(t, w.Identity)
		t.Log(kind)
		tree := func(d string) map[string]string { return harness.Files(t, d) }

		// A folder: whole or not at all.
		w.repo = w.Repo(t, map[string]string{"base.txt": "base\n", "D/one": "1\n"})
		id := w.open()
		for i, make := range []string{"echo 1 >A.txt; echo 2 >a.txt", "rm ?.txt; mkdir d; echo 2 >d/two", "rm -r d; echo 1 >plain", "printf 1 >\"$(printf 'caf\\303\\251')\"; printf 2 >\"$(printf 'cafe\\314\\201')\""} {
			w.in(id, make)
			out := dir + "/out" + itoa(i)
			r := w.do("export", "--dir", out, id)
			if r.Exit == 0 {
				if got, want := len(tree(out)), len(w.inside(id)); got != want {
					t.Errorf("%s: exported %d files of %d without a word", make, got, want)
				}
			} else {
				w.refused(r, "conflict")
			}
			if i == 2 && r.Exit != 0 {
				t.Errorf("no twins, and refused: %v", r)
			}
			if left, _ := filepath.Glob(dir + "/.caisson*"); len(left) > 0 {
				t.Errorf("%s: left beside it: %q", make, left)
			}
		}
		w.ok("close", "--discard", id)

		// A checkout. Every case begins with these files.
		host := dir + "/host"
		w.Mkdir(t, host)
		for name, text := range map[string]string{"base": "base\n", "Mixed": "mixed\n", "dd/q": "q\n"} {
			w.Write(t, host+"/"+name, text, 0o644)
		}
		w.sh(host, "git init -q -b main .; git add -A; git commit -qm base")
		w.repo = host
		for _, c := range []struct{ what, make, host string }{
			{"case-only rename", "mv base Base", ""},
			{"case-only rename and change", "mv base Base; echo more >>Base", ""},
			{"rename of a folder", "mv dd DD", ""},
			{"two new twins", "echo 1 >New; echo 2 >new", ""},
			{"new twin of a tracked file", "echo other >BASE", ""},
			{"same content as a tracked one", "cp base BASE", ""},
			{"twin of an untracked file", "echo task >Notes", "echo mine >notes"},
			{"twin folders", "mkdir e E; echo 1 >e/one; echo 2 >E/two", ""},
			{"file below a folder's twin", "mkdir DD; echo 1 >DD/new", ""},
			{"accents", "printf 1 >\"$(printf 'caf\\303\\251')\"; printf 2 >\"$(printf 'cafe\\314\\201')\"", ""},
			{"deleted and its twin made", "rm base; mkdir BASE; echo 1 >BASE/in", ""},
			{"nothing of that kind", "echo fine >fine; rm dd/q", ""},
		} {
			if c.host != "" {
				w.sh(host, c.host)
			}
			before := tree(host)
			id := w.open()
			w.in(id, c.make)
			want := w.inside(id)
			for _, args := range [][]string{{"apply", "--dry-run", "--allow-risky", id}, {"apply", "--yes", "--allow-risky", id}} {
				r := w.do(args...)
				after := tree(host)
				switch {
				case r.Exit != 0:
					w.refused(r, "")
					harness.Same(t, c.what+": refused", after, before)
				case args[1] == "--dry-run":
					harness.Same(t, c.what+": dry run", after, before)
				default:
					t.Logf("%s: %s done", kind, c.what)
					if c.host == "" && len(after) != len(want) {
						t.Errorf("%s: %d files, the task has %d", c.what, len(after), len(want))
					}
				}
				for name, text := range before { // nobody's content is gone unless the task took it away
					if _, still := want[name]; (still || c.host != "" && name == "notes") && !slices.ContainsFunc(values(after), func(v string) bool { return v == text }) && want[name] == text {
						t.Errorf("%s: the content of %q is gone: %v", c.what, name, r)
					}
				}
			}
			w.ok("close", "--discard", id)
			w.sh(host, "git clean -qfdx; git reset -q --hard")
		}
		w.git("fsck", "--no-dangling")
	})
}

// TestFoldingState starts a task whose files must stand on such a file system: a
// base with twins is refused before anything runs, and leaves nothing.
func TestFoldingState(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		dir, kind := folding(t, w.Identity)
		w.repo = w.Repo(t, map[string]string{"A.txt": "1\n", "a.txt": "2\n"})
		refs := w.git("for-each-ref")
		state := dir + "/state"
		w.Mkdir(t, state)
		if err := os.Chmod(state, 0o700); err != nil {
			t.Fatal(err)
		}
		for i, kv := range w.Env {
			if strings.HasPrefix(kv, "CAISSON_STATE_DIR=") {
				w.Env[i] = "CAISSON_STATE_DIR=" + state
			}
		}
		r := w.do("run", "--keep", "never", "--", "sh", "-c", "cat A.txt a.txt")
		if r.Exit == 0 && r.Stdout != "1\n2\n" {
			t.Errorf("%s: a file is lost without a word: %v", kind, r)
		}
		if r.Exit != 0 {
			w.refused(r, "")
			if !strings.Contains(r.Stderr, "one name") {
				t.Logf("%s: refused for another reason: %s", kind, r.Stderr)
			}
		}
		if now := w.git("for-each-ref"); now != refs {
			t.Errorf("refs are left: %s", now)
		}
		for _, left := range w.Left() {
			if !strings.Contains(left, w.Dir+"/folding") {
				t.Error("left on the host: " + left)
			}
		}
		for _, v := range harness.Decode[struct{ Tasks []struct{ ID, State string } }](t, w.ok("ls", "--json")).Tasks {
			w.ok("close", "--discard", v.ID)
		}
	})
}

func values(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// served starts the server of a file system as a child of the test, and reports
// whether the file system is mounted. The cleanup ends it: it would stay for as
// long as a mount namespace that somebody made meanwhile has the mount.
func served(t *testing.T, img, at string) bool {
	t.Helper()
	cmd := exec.Command("lowntfs-3g", "-o", "no_detach,ignore_case,permissions,streams_interface=none,allow_other", img, at)
	if cmd.Start() != nil {
		return false
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	var above, here unix.Stat_t
	for end := time.Now().Add(harness.Limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-done:
			return false
		default:
		}
		if unix.Stat(filepath.Dir(at), &above) == nil && unix.Stat(at, &here) == nil && above.Dev != here.Dev {
			// Runs after the unmount, which is registered later.
			t.Cleanup(func() {
				select {
				case <-done:
				case <-time.After(2 * time.Second):
					_ = cmd.Process.Kill()
					<-done
				}
			})
			return true
		}
	}
	_ = cmd.Process.Kill()
	<-done
	return false
}
