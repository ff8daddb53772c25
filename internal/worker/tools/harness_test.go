//go:build linux

package tools

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// place is a folder with tools in it.
type place struct {
	t    testing.TB
	dir  string
	root *Root
}

func at(t testing.TB) *place {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &place{t: t, dir: dir, root: NewRoot(dir)}
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) put(name, content string) string {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.path(name), []byte(content), 0o644); err != nil {
		p.t.Fatal(err)
	}
	return p.path(name)
}

func (p *place) get(name string) string {
	p.t.Helper()
	b, err := os.ReadFile(p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// call runs one tool on arguments and decodes its result into res.
func (p *place) call(name string, args, res any) *contract.Failure {
	p.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		p.t.Fatal(err)
	}
	c := &Call{Root: p.root, In: -1, Out: -1}
	out, fail := Run(context.Background(), c, name, raw)
	if c.Out >= 0 {
		_ = unix.Close(c.Out)
	}
	if fail != nil {
		if !fail.Code.Known() || fail.Msg == "" || out != nil {
			p.t.Errorf("%s: a failure that says nothing: %+v", name, fail)
		}
		return fail
	}
	if err := json.Unmarshal(out, res); err != nil {
		p.t.Fatalf("%s: %s: %v", name, out, err)
	}
	return nil
}

func (p *place) must(name string, args, res any) {
	p.t.Helper()
	if fail := p.call(name, args, res); fail != nil {
		p.t.Fatalf("%s %.200v: %v", name, args, fail)
	}
}

func code(f *contract.Failure) contract.Code {
	if f == nil {
		return ""
	}
	return f.Code
}

// clean fails when a tool left anything of its own behind.
func (p *place) clean() {
	p.t.Helper()
	_ = filepath.WalkDir(p.dir, func(name string, _ os.DirEntry, _ error) error {
		if strings.HasPrefix(filepath.Base(name), ".caisson-") {
			p.t.Errorf("%s was left behind", name)
		}
		return nil
	})
}

// descriptors counts this process's own.
func descriptors(t testing.TB) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}
