//go:build linux

package exhausted

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// sftpServer is where distributions put it.
var sftpServer = []string{"/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"}

// mountSSHFS mounts folder from at dir with sshfs over a local sftp server. To
// root's tasks, which are another user inside, the kernel does not answer there.
func mountSSHFS(w *world, from, dir string) {
	t := w.t
	t.Helper()
	if _, err := exec.LookPath("sshfs"); err != nil {
		t.Skip("no sshfs here")
	}
	server := ""
	for _, p := range sftpServer {
		if _, err := os.Stat(p); err == nil {
			server = p
		}
	}
	if server == "" {
		t.Skip("no sftp-server here")
	}
	w.Mkdir(t, dir)
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := [2]*os.File{os.NewFile(uintptr(fds[0]), "server's end"), os.NewFile(uintptr(fds[1]), "client's end")}
	ctx, cancel := context.WithCancel(context.Background())
	var running []*exec.Cmd
	options := "passive"
	if w.UID != 0 {
		options += fmt.Sprintf(",allow_other,uid=%d,gid=%d", w.UID, w.UID)
	}
	for i, args := range [][]string{{server}, {"sshfs", "-f", "-o", options, "x:" + from, dir}} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = ends[i], ends[i], os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ends[i].Close()
		running = append(running, cmd)
	}
	t.Cleanup(func() {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		cancel()
		for _, cmd := range running {
			_ = cmd.Wait()
		}
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		b, _ := os.ReadFile("/proc/self/mountinfo")
		if strings.Contains(string(b), " "+dir+" ") {
			return
		}
		if time.Now().After(end) {
			t.Skip("sshfs cannot mount here")
		}
	}
}

// TestRepositoryOnSSHFS has a repository on a real network file system: a task
// works on it, and its result leaves in every way that the file system allows.
func TestRepositoryOnSSHFS(t *testing.T) {
	t.Parallel()
	mounts(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		dir := w.Dir + "/sshfs"
		mountSSHFS(w, w.repo, dir)
		w.repo = dir
		w.refused(w.shell(`export CAISSON_STATE_DIR="$PWD/state"; exec "$CAISSON" run -- true`), 125, "CAISSON_STATE_DIR", "state_store")

		x := w.Open(t, dir)
		w.ok("exec", x, "--", "sh", "-c", job)
		if out := w.ok("diff", "--stat", x); !strings.Contains(out, "new.txt") {
			t.Errorf("diff: %s", out)
		}
		before := harness.TakePicture(t, dir)
		if out := w.ok("apply", "--dry-run", x); !strings.Contains(out, "will be refused") || !strings.Contains(out, "caisson branch") {
			t.Errorf("apply --dry-run: %s", out)
		}
		w.same("a dry run", before)
		w.refused(w.do("apply", x), 1, "caisson branch", "unsupported")
		w.same("an apply that was refused", before)
		w.ok("branch", x, "result")
		w.ok("export", x, "--dir", dir+"/copy")
		w.ok("close", x)
		if got := w.blob(x, "worktree", "a.txt"); got != "a\nmore\n" {
			t.Errorf("the files: %q", got)
		}
		w.Write(t, dir+"/loose.txt", "loose\n", 0o644)
		if out := w.ok("run", "--dirty", "--", "cat", "loose.txt"); out != "loose\n" {
			t.Errorf("uncommitted: %q", out)
		}
	})
}
