package detect

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// folder is a tree that lies on the disk.
type diskTree struct{ root string }

func (d diskTree) Each(_ context.Context, f func(string, uint32) bool) error {
	return filepath.WalkDir(d.root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(d.root, p)
		mode := uint32(0o100644)
		if e.Type()&fs.ModeSymlink != 0 {
			mode = modeLink
		}
		if !f(filepath.ToSlash(rel), mode) {
			return fs.SkipAll
		}
		return nil
	})
}

func (d diskTree) Read(_ context.Context, paths []string, limit int64, f func(string, int64, []byte)) error {
	for _, p := range paths {
		b, err := os.ReadFile(filepath.Join(d.root, p))
		if err != nil {
			return err
		}
		n := int64(len(b))
		if n > limit {
			b = nil
		}
		f(p, n, b)
	}
	return nil
}

// wantFacts are lines of renderFacts that must be there, and rules that must
// not have found anything.
func wantFacts(t *testing.T, root string, want, never []string) {
	t.Helper()
	facts, notes, err := Scan(context.Background(), diskTree{root})
	if err != nil {
		t.Fatal(err)
	}
	got := renderFacts(facts)
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) }) {
			t.Errorf("no %q", w)
		}
	}
	for _, n := range never {
		if slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, n) }) {
			t.Errorf("%q was found", n)
		}
	}
	if t.Failed() || os.Getenv("SHOW") != "" {
		t.Logf("%s\n%s\n%v", root, strings.Join(got, "\n"), notes)
	}
}

// TestRealModules scans repositories that lie in the module cache.
func TestRealModules(t *testing.T) {
	for mod, c := range map[string]struct{ want, never []string }{
		"github.com/spf13/cobra":                 {[]string{"INS-01 yes go.sum", "INS-02 yes go.mod", "SCR-02 repo-defined Makefile"}, []string{"MIG", "SVC", "KRN", "EXT", "CRD"}},
		"github.com/modelcontextprotocol/go-sdk": {[]string{"CON-01 yes .devcontainer/devcontainer.json", "INS-01 yes go.sum"}, []string{"MIG", "SVC", "HST-01", "KRN"}},
		"modernc.org/sqlite":                     {[]string{"SVC-05 db ", "SCR-02 repo-defined Makefile"}, []string{"MIG-01", "CON", "EXT"}},
		"mvdan.cc/sh/v3":                         {[]string{"CON-01 yes ", "SCR-17 yes .github/workflows/test.yml", "SCR-24 yes .github/workflows/test.yml"}, []string{"MIG", "SVC"}},
		"go.yaml.in/yaml/v4":                     {[]string{"SCR-02 repo-defined GNUmakefile"}, []string{"MIG", "SVC", "CON", "KRN"}},
		"golang.org/x/tools":                     {[]string{"INS-01 yes go.sum"}, []string{"MIG", "SVC-01", "CON"}},
	} {
		t.Run(mod, func(t *testing.T) {
			out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", mod).Output()
			dir := strings.TrimSpace(string(out))
			if err != nil || dir == "" {
				t.Skipf("the module cache has no %s here: %v", mod, err)
			}
			wantFacts(t, dir, c.want, c.never)
		})
	}
}

// TestRealPackages scans packages of the npm registry.
func TestRealPackages(t *testing.T) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed")
	}
	for pkg, c := range map[string]struct{ want, never []string }{
		"esbuild@0.21.5": {[]string{"INS-03 repo-defined package.json"}, []string{"MIG", "SVC", "CON"}},
		"knex@3.1.0":     {[]string{"SVC-01 db scripts/docker-compose.yml", "SVC-04 db package.json", "SCR-17 yes package.json", "SVC-07 yes scripts/docker-compose.yml", "PRC-02 yes"}, []string{"MIG-01", "EXT-02"}},
	} {
		t.Run(pkg, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, npm, "pack", "--silent", "--json", "--ignore-scripts", pkg)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "npm_config_cache="+dir+"/cache", "npm_config_update_notifier=false", "npm_config_fetch_retries=0")
			out, err := cmd.Output()
			if err != nil {
				t.Skipf("the npm registry is out of reach: %v", err)
			}
			var packed []struct{ Filename string }
			if err := json.Unmarshal(out, &packed); err != nil || len(packed) != 1 {
				t.Fatalf("npm pack printed %q: %v", out, err)
			}
			if err := os.Mkdir(dir+"/x", 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("tar", "-xzf", filepath.Join(dir, packed[0].Filename), "-C", dir+"/x").CombinedOutput(); err != nil {
				t.Fatal(errors.Join(err, errors.New(string(out))))
			}
			wantFacts(t, dir+"/x/package", c.want, c.never)
		})
	}
}
