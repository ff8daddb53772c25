//go:build linux

package egress

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The managers that npm itself has to fetch, once per lockfile and machine.
var (
	//go:embed npm/package.json
	managersPackage []byte
	//go:embed npm/package-lock.json
	managersLock []byte
)

// managersEnv names the folder of pnpm and yarn to the program in the world,
// which cannot fetch them any more.
const managersEnv = "CAISSON_TEST_MANAGERS"

// managers returns that folder, or why there is none.
func managers() (string, error) {
	top := os.Getenv("CAISSON_TEST_CLIENTS")
	if top == "" {
		top = fmt.Sprintf("/var/tmp/caisson-test-clients-%d", os.Getuid())
	}
	if err := os.Mkdir(top, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	fi, err := os.Lstat(top)
	if err != nil {
		return "", err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || !ok || int(st.Uid) != os.Getuid() || fi.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a folder of ours alone", top)
	}
	sum := sha256.Sum256(managersLock)
	dir := filepath.Join(top, "egress-"+hex.EncodeToString(sum[:6]))
	guard, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer guard.Close()
	if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(dir + "/node_modules"); err == nil {
		return dir + "/node_modules", nil
	}
	tmp, err := os.MkdirTemp(top, "egress-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := errors.Join(os.Chmod(tmp, 0o755), os.WriteFile(tmp+"/package.json", managersPackage, 0o644), os.WriteFile(tmp+"/package-lock.json", managersLock, 0o644)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--cache", tmp+"/.cache")
	cmd.Dir, cmd.WaitDelay = tmp, 5*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %.500s", err, strings.TrimSpace(string(out)))
	}
	_ = os.RemoveAll(tmp + "/.cache")
	return dir + "/node_modules", os.Rename(tmp, dir)
}
