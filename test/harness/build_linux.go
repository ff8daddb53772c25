package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/caisson-dev/caisson"

var (
	bin  string // the product, runnable by everybody
	base string // everything of this test process, removed by Main
)

// Main builds the product, runs the tests and removes what Each made. It
// returns the exit status. CAISSON_TEST_BIN names a program that is already
// built; it is copied to where every identity can run it.
func Main(m *testing.M) int {
	code, err := mainErr(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		return 1
	}
	return code
}

func mainErr(m *testing.M) (code int, err error) {
	if Backend() == RootlessPodman {
		UserWithIDs()
	}
	// Not the shared temporary folder's name for "caisson": that is the product's own prefix.
	if base, err = os.MkdirTemp("", "harness-"); err != nil {
		return 1, err
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return 1, err
	}
	defer func() {
		err = errors.Join(err, StopEngines(), removeAll(base))
	}()
	if err := os.Chmod(base, 0o755); err != nil {
		return 1, err
	}
	bin = filepath.Join(base, "bin", "caisson")
	if err := os.Mkdir(filepath.Dir(bin), 0o755); err != nil {
		return 1, err
	}
	if given := os.Getenv("CAISSON_TEST_BIN"); given != "" {
		err = copyFile(given, bin)
	} else {
		err = build(bin)
	}
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// Bin returns the path of the product.
func Bin() string { return bin }

// build makes the product with its worker inside, without touching the tree:
// other test packages may do the same at this moment.
func build(out string, flags ...string) error {
	return buildWith(out, []string{"-ldflags=-s -w"}, flags...)
}

func buildWith(out string, ofWorker []string, flags ...string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	worker := out + ".worker"
	if err := goBuild(root, append(slices.Clone(ofWorker), "-o", worker, "./cmd/caisson-worker")...); err != nil {
		return err
	}
	data, err := os.ReadFile(worker)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, "internal/workerbin/bin/caisson-worker"): worker}})
	if err != nil {
		return err
	}
	list := worker + ".json"
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return err
	}
	return goBuild(root, append(flags, "-overlay", list, "-ldflags=-s -w -X "+module+"/internal/workerbin.digest="+hex.EncodeToString(sum[:]), "-o", out, "./cmd/caisson")...)
}

// GoBuild builds a static program from a folder or file of this module.
func GoBuild(out, pkg string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	return goBuild(root, "-ldflags=-s -w", "-o", out, pkg)
}

func goBuild(root string, args ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		dir = filepath.Dir(dir)
	}
	return "", fmt.Errorf("no go.mod above the working folder (%v)", err)
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// removeAll removes a tree even where a hostile task took its own permissions
// away.
func removeAll(dir string) error {
	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
