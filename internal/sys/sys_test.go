package sys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The test program plays other processes when its first argument names a role.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "role-lock": // takes the lock, says so, holds it until it is killed
			if _, err := TryLock(os.Args[2]); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			// A child started with exec must not inherit the lock.
			child := exec.Command("sleep", "1000")
			if err := child.Start(); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println("locked", child.Process.Pid)
			time.Sleep(time.Hour)
		case "role-write": // rewrites a file for ever
			for i := 0; ; i++ {
				if err := WriteFile(os.Args[2], []byte(strings.Repeat(string(rune('a'+i%26)), 100_000)), 0o600); err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				fmt.Println(i)
			}
		}
	}
	os.Exit(m.Run())
}

func role(t *testing.T, args ...string) (*exec.Cmd, func() string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, func() string {
		t.Helper()
		var line []byte
		for b := make([]byte, 1); ; {
			if _, err := out.Read(b); err != nil {
				t.Fatalf("role ended: %v", err)
			}
			if b[0] == '\n' {
				return string(line)
			}
			line = append(line, b[0])
		}
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd, line := role(t, "role-lock", path)
	said := line()
	var child int
	if _, err := fmt.Sscanf(said, "locked %d", &child); err != nil {
		t.Fatal(said)
	}
	if p, err := os.FindProcess(child); err == nil {
		defer p.Kill()
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
	defer cancel()
	if _, err := Lock(ctx, path); !errors.Is(err, cause) {
		t.Fatalf("lock with a deadline: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l, err := Lock(t.Context(), path) // the child lives and does not hold it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Fatalf("within one process: %v", err)
	}
	if err := errors.Join(l.Unlock(), l.Unlock()); err != nil {
		t.Fatal(err)
	}
	l, err = TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	// A lock on a file that was replaced guards nothing: the next gets the new file.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l2, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(l.Unlock(), l2.Unlock())
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if l, err := TryLock(link); err == nil {
		_ = l.Unlock()
		t.Fatal("a link was followed")
	}
}

func TestWriteFileSurvivesKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for range 5 {
		cmd, line := role(t, "role-write", path)
		for line() != "3" {
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		b, err := os.ReadFile(path)
		if err != nil || len(b) != 100_000 || strings.Count(string(b), string(b[:1])) != len(b) {
			t.Fatalf("half a file: %d bytes, %v", len(b), err)
		}
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatal(fi.Mode(), err)
	}
	// A link is replaced, its target is not touched.
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, []byte("old"), 0o600), os.Symlink(target, link), WriteFile(link, []byte("new"), 0o640)); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(target); string(b) != "old" {
		t.Fatal("the link was followed")
	}
	if err := WriteFile(filepath.Join(dir, "no", "f"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	es, _ := os.ReadDir(dir)
	if len(es) != 2 {
		t.Fatalf("litter: %v", es)
	}
	if err := Rename(target, filepath.Join(t.TempDir(), "moved")); err != nil {
		t.Fatal(err)
	}
}

func TestParseStat(t *testing.T) {
	rest := " S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9 9"
	for _, comm := range []string{"(sh)", "(a b)", "(x) S 1 1)", "()", "(\n) R 9 (", "(((a)"} {
		if comm[len(comm)-1] != ')' {
			comm += ")"
		}
		st, err := parseStat([]byte("12 " + comm + rest))
		if err != nil || st.start != 4242 || st.ppid != 7 || st.state != 'S' {
			t.Errorf("%q: %+v %v", comm, st, err)
		}
	}
	for threads, dead := range map[string]bool{"0": true, "1": true, "2": false} {
		st, err := parseStat([]byte("12 (x) Z" + strings.Replace(rest[2:], " 0 1 0 ", " 0 "+threads+" 0 ", 1)))
		if err != nil || st.dead() != dead {
			t.Errorf("a first thread that ended, %s in all: %+v %v", threads, st, err)
		}
	}
	for _, bad := range []string{"", "12 (sh", "12 (sh) S 7", "12 (sh) S x" + strings.Repeat(" 1", 20), "12 (sh) S 1" + strings.Repeat(" x", 20)} {
		if st, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, st)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a b) S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = parseStat(b) })
}

func TestDirs(t *testing.T) {
	env := func(kv ...string) func(string) string {
		return func(k string) string {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == k {
					return kv[i+1]
				}
			}
			return ""
		}
	}
	own := t.TempDir()
	d, err := FindDirs(env("HOME", "/h", "XDG_RUNTIME_DIR", own, "XDG_STATE_HOME", "relative"))
	if err != nil || d.State != "/h/.local/state/caisson" || d.Runtime != own+"/caisson" || d.Config != "/h/.config/caisson" {
		t.Fatalf("%+v %v", d, err)
	}
	d, err = FindDirs(env("HOME", "/h", "XDG_STATE_HOME", "/s", "XDG_CONFIG_HOME", "/c", "CAISSON_RUNTIME_DIR", "/r/"))
	if err != nil || d.State != "/s/caisson" || d.Runtime != "/r" || d.Config != "/c/caisson" {
		t.Fatalf("%+v %v", d, err)
	}
	d, err = FindDirs(env("CAISSON_STATE_DIR", "/x/y"))
	if err != nil || d.State != "/x/y" || d.Runtime == "" || d.Home == "" {
		t.Fatalf("HOME unset: %+v %v", d, err)
	}
	if _, err := FindDirs(env("CAISSON_STATE_DIR", "rel")); err == nil {
		t.Fatal("a relative override was accepted")
	}
	// Another user's runtime folder, as sudo passes it on, is skipped.
	foreign := "/usr"
	if os.Geteuid() == 0 {
		foreign = t.TempDir()
		if err := os.Chown(foreign, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := FindDirs(env("HOME", "/h", "XDG_RUNTIME_DIR", foreign)); err != nil || strings.HasPrefix(d.Runtime, filepath.Join(foreign, "caisson")) {
		t.Fatalf("%+v %v", d, err)
	}
}

func TestPrivateDir(t *testing.T) {
	base := t.TempDir()
	deep := filepath.Join(base, "a", "b", "c")
	if err := errors.Join(PrivateDir(deep), PrivateDir(deep)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{deep, filepath.Dir(deep)} {
		if fi, _ := os.Stat(p); fi.Mode().Perm() != 0o700 {
			t.Fatalf("%s has mode %v", p, fi.Mode())
		}
	}
	mode := func(name string, m fs.FileMode) string {
		p := filepath.Join(base, name)
		if err := errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, m)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	readable := mode("readable", 0o755)
	if err := PrivateDir(readable); err != nil {
		t.Fatal(err)
	}
	if fi, _ := os.Stat(readable); fi.Mode().Perm() != 0o700 {
		t.Fatalf("not tightened: %v", fi.Mode())
	}
	link, file := filepath.Join(base, "link"), filepath.Join(base, "file")
	if err := errors.Join(os.Symlink(deep, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	bad := []string{link, file, mode("group", 0o770), mode("sticky", 0o777|fs.ModeSticky), filepath.Join(base, "dangling")}
	if err := os.Symlink(filepath.Join(base, "nowhere"), bad[4]); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		p := mode("foreign", 0o700)
		if err := os.Chown(p, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, p)
	} else {
		bad = append(bad, "/usr")
	}
	for _, p := range bad {
		if err := PrivateDir(p); !errors.Is(err, ErrNotPrivate) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if err := PrivateDir("rel"); err == nil {
		t.Error("a relative path was accepted")
	}
}

func TestDetach(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	cancel()
	ctx, stop := Detach(parent, time.Hour)
	if ctx.Err() != nil || ctx.Value(key{}) != "v" {
		t.Fatal("the cancellation came along")
	}
	stop()
	ctx, stop = Detach(parent, 0)
	defer stop()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), ErrDeadline) {
		t.Fatal(context.Cause(ctx))
	}
}

func TestFaultsAreOff(t *testing.T) {
	if FaultPoints() != nil {
		t.Log("this build has fault points")
		return
	}
	t.Setenv("CAISSON_FAULT", "sys.write.temp:error")
	if err := WriteFile(filepath.Join(t.TempDir(), "f"), nil, 0o600); err != nil {
		t.Fatalf("an ordinary build listens to CAISSON_FAULT: %v", err)
	}
}
