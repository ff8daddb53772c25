//go:build linux

package conformance

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// refuses checks P58: a machine that cannot give the boundary gets a refusal
// that names what is missing and how to get it; nothing was executed and
// nothing is left.
func refuses(t *testing.T, r harness.Result, doctor string, want, hint string) {
	t.Helper()
	if r.Exit != 125 || code(r) != "boundary_missing" || r.Stdout != "" {
		t.Errorf("no refusal as boundary_missing: %v", r)
	}
	if !strings.Contains(r.Stderr, want) || !strings.Contains(r.Stderr, hint) {
		t.Errorf("it does not say %q and %q: %v", want, hint, r)
	}
	if !strings.Contains(doctor, want) || !strings.Contains(doctor, hint) {
		t.Errorf("doctor does not say %q and %q:\n%s", want, hint, doctor)
	}
}

// TestNoUserNamespaces is P58 with the kernel's switch: in a user namespace
// whose limit of further ones is 0. The control is the same namespace without.
func TestNoUserNamespaces(t *testing.T) {
	harness.OnlyLinux(t, "an engine needs no user namespaces of the caller's")
	for _, prog := range []string{"unshare", "sh"} {
		if _, err := exec.LookPath(prog); err != nil {
			t.Skipf("no %s here to simulate such a machine with", prog)
		}
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		ran := repo + "/ran" // inside and outside the same path
		nested := func(first string, args ...string) harness.Result {
			ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
			defer cancel()
			argv := append([]string{"-U", "-r", "sh", "-c", first + ` exec "$0" "$@"`, harness.Bin()}, args...)
			return harness.Run(t, id.Command(ctx, repo, "unshare", argv...))
		}
		const off = "echo 0 >/proc/sys/user/max_user_namespaces || exit 77;"
		if r := nested("", "doctor"); !strings.Contains(r.Stdout, "usable") || strings.Contains(r.Stdout, "not usable") {
			t.Skipf("a nested user namespace cannot be used here, so neither can the control: %v", r)
		}
		r := nested(off, "run", "--json", "--", "sh", "-c", "touch "+ran+"; echo executed")
		if r.Exit == 77 {
			t.Skipf("the limit cannot be set in a nested user namespace here: %v", r)
		}
		doctor := nested(off, "doctor")
		refuses(t, r, doctor.Stdout+doctor.Stderr, "user.max_user_namespaces", "sysctl")
		open := nested(off, "open", "--json", "x")
		if open.Exit != 3 || code(open) != "boundary_missing" {
			t.Errorf("open: %v", open)
		}
		plan := nested(off, "plan", "--json", "--", "true")
		if plan.Exit != 3 {
			t.Errorf("plan: %v", plan)
		}
		if _, err := os.Lstat(ran); err == nil {
			t.Error("the command was executed")
		}
		if refs := id.Git(t, repo, "for-each-ref", "refs/caisson"); refs != "" {
			t.Errorf("left in the repository: %s", refs)
		}
		if left, _ := filepath.Glob(id.State + "/tasks/*/source"); len(left) > 0 {
			t.Errorf("left on disk: %q", left)
		}
		// Control: the same namespace, the switch on.
		if r := nested("", "run", "--", "cat", "a.txt"); r.Exit != 0 || r.Stdout != "a\n" {
			t.Errorf("the control does not run: %v", r)
		}
	})
}

// TestInsideContainer is P58 inside a default Docker container of a private engine.
func TestInsideContainer(t *testing.T) {
	harness.OnlyLinux(t, "no engine runs in the container")
	if os.Getuid() != 0 {
		t.Skip("starting a private container engine needs root")
	}
	for _, prog := range []string{"dockerd", "docker"} {
		if _, err := exec.LookPath(prog); err != nil {
			t.Skipf("no %s on this machine: the default container cannot be shown here", prog)
		}
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		dir := id.Dir + "/engine"
		id.Mkdir(t, dir)
		id.Write(t, dir+"/daemon.json", `{"bridge":"none","iptables":false,"ip-masq":false,"cgroup-parent":"/conformance-`+nonce()[5:13]+`"}`, 0o600)
		sock := "unix://" + dir + "/docker.sock"
		logFile, err := os.Create(dir + "/log")
		if err != nil {
			t.Fatal(err)
		}
		defer logFile.Close()
		engine := exec.Command("dockerd", "--config-file", dir+"/daemon.json", "--data-root", dir+"/data", "--exec-root", dir+"/exec", "-H", sock, "--pidfile", dir+"/pid", "--storage-driver", "vfs")
		engine.Stdout, engine.Stderr = logFile, logFile
		engine.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := engine.Start(); err != nil {
			t.Skipf("the engine does not start: %v", err)
		}
		t.Cleanup(func() {
			_ = engine.Process.Signal(syscall.SIGTERM)
			timer := time.AfterFunc(30*time.Second, func() { _ = engine.Process.Kill() })
			_ = engine.Wait()
			timer.Stop()
			for _, x := range harness.TakeSnapshot() { // what the engine forgets
				if p, ok := strings.CutPrefix(x, "mount "); ok && strings.HasPrefix(p, dir+"/") {
					_ = syscall.Unmount(p, syscall.MNT_DETACH)
				}
				if p, ok := strings.CutPrefix(x, "cgroup "); ok && strings.Contains(p, "/conformance-") {
					_ = os.Remove(p)
				}
			}
		})
		docker := func(stdin []byte, args ...string) (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "docker", append([]string{"-H", sock}, args...)...)
			cmd.Stdin = bytes.NewReader(stdin)
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if _, err := docker(nil, "version"); err == nil {
				break
			}
			if time.Now().After(end) {
				text, _ := os.ReadFile(dir + "/log")
				t.Skipf("the engine is not ready on this machine: %.1000s", text)
			}
		}
		// An image of links alone: programs come from this machine, read-only.
		var image bytes.Buffer
		w := tar.NewWriter(&image)
		for d, mode := range map[string]int64{"usr": 0o755, "etc": 0o755, "run": 0o755, "tmp": 0o1777} {
			_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: mode})
		}
		for _, l := range []string{"bin", "sbin", "lib", "lib64", "lib32", "libx32"} {
			if to, err := os.Readlink("/" + l); err == nil {
				_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: l, Linkname: to, Mode: 0o777})
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if out, err := docker(image.Bytes(), "import", "-", "conformance:1"); err != nil {
			t.Fatalf("import: %v %s", err, out)
		}
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		run := func(flags []string, args ...string) harness.Result {
			all := append([]string{"run", "--rm", "--network", "none", "-v", "/usr:/usr:ro", "-v", filepath.Dir(harness.Bin()) + ":/opt/bin:ro", "-v", repo + ":" + repo,
				"-w", repo, "--user", fmt.Sprintf("%d:%d", id.UID, id.UID),
				"-e", "CAISSON_STATE_DIR=/tmp/state", "-e", "CAISSON_RUNTIME_DIR=/tmp/run", "-e", "HOME=/tmp"}, flags...)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return harness.Run(t, exec.CommandContext(ctx, "docker", append(append([]string{"-H", sock}, all...), append([]string{"conformance:1", "/opt/bin/caisson"}, args...)...)...))
		}
		r := run(nil, "run", "--json", "--", "sh", "-c", "touch ran; echo executed")
		doctor := run(nil, "doctor")
		refuses(t, r, doctor.Stdout+doctor.Stderr, "seccomp", "--security-opt")
		if _, err := os.Lstat(repo + "/ran"); err == nil {
			t.Error("the command was executed")
		}
		// With the filter alone taken away the next layer is named.
		r = run([]string{"--security-opt", "seccomp=unconfined"}, "run", "--json", "--", "echo", "executed")
		doctor = run([]string{"--security-opt", "seccomp=unconfined"}, "doctor")
		t.Logf("without the engine's filter: %v", r)
		if r.Exit == 0 {
			if r.Stdout != "executed\n" {
				t.Errorf("%v", r)
			}
		} else {
			refuses(t, r, doctor.Stdout+doctor.Stderr, "/proc", "systempaths=unconfined")
		}
		// Control: what the hint asks for is enough.
		r = run([]string{"--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"}, "run", "--", "cat", "a.txt")
		t.Logf("as the hint says: %v", r)
		if r.Exit != 0 || r.Stdout != "a\n" {
			t.Errorf("the hint does not help: %v", r)
		}
	})
}
