package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

var rules = []struct {
	name  string
	check func(*tree) []string
}{
	{"imports", checkImports},
	{"worker-small", checkWorkerSmall},
	{"outsiders", checkOutsiders},
	{"package-comments", checkPackageComments},
	{"file-size", checkFileSize},
	{"processes", checkProcesses},
	{"skips", checkSkips},
	{"words", checkWords},
	{"dependencies", checkDependencies},
	{"links", checkLinks},
}

// TestTree holds this source tree to every rule.
func TestTree(t *testing.T) {
	tr, err := load(os.DirFS(root(t)))
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.pkgs) < 5 {
		t.Fatalf("only %d packages found: the walk is broken", len(tr.pkgs))
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, b := range r.check(tr) {
				t.Error(b)
			}
		})
	}
}

const charter = "// Package x does one thing.\n//\n// Its limit: no other.\n"

// TestRulesCanFail shows for every rule an input on which it speaks and, where
// that says more, a near one on which it is silent.
func TestRulesCanFail(t *testing.T) {
	own := func(dir string) string { return "import _ \"" + module + "/" + dir + "\"\n" }
	for _, c := range []struct {
		name, rule, path, src string
		want                  string // part of the one problem; "" = none
		also                  map[string]string
	}{
		{"vocabulary imports a shelf", "imports", "internal/task/x.go", "package task\n" + own("internal/sys"), "room internal/task may not import internal/sys", nil},
		{"backend imports its own stage", "imports", "internal/backend/linux/x.go", "package linux\n" + own("internal/backend/linux/stage"), "", nil},
		{"backend imports a sibling", "imports", "internal/backend/linux/x.go", "package linux\n" + own("internal/backend/fake"), "may not import", nil},
		{"backend imports a sibling's inside", "imports", "internal/backend/linux/stage/x.go", "package stage\n" + own("internal/backend/fake/x"), "may not import", nil},
		{"service imports a backend", "imports", "internal/service/native/x.go", "package native\n" + own("internal/backend"), "may not import", nil},
		{"contract imports a child", "imports", "internal/backend/x.go", "package backend\n" + own("internal/backend/linux"), "may not import", nil},
		{"door goes around the table", "imports", "internal/door/cli/x.go", "package cli\n" + own("internal/boundary"), "may not import", nil},
		{"sequence fulfils the contract", "imports", "internal/boundary/x.go", "package boundary\n" + own("internal/door"), "", nil},
		{"sequence knows a door", "imports", "internal/boundary/x.go", "package boundary\n" + own("internal/door/cli"), "may not import", nil},
		{"sequence names a technology", "imports", "internal/boundary/x.go", "package boundary\n" + own("internal/backend/linux"), "may not import", nil},
		{"a room imports wire", "imports", "internal/boundary/x.go", "package boundary\n" + own("internal/wire"), "may not be imported here", nil},
		{"a test may", "imports", "internal/boundary/x_test.go", "package boundary\n" + own("internal/wire"), "", nil},
		{"main imports wire", "imports", "cmd/caisson/x.go", "package main\n" + own("internal/wire"), "", nil},
		{"a folder without a room", "imports", "internal/stray/x.go", "package stray\n", "in no room", nil},

		{"worker pulls in a database, two steps away", "worker-small", "cmd/caisson-worker/x.go", "package main\n" + own("internal/probe"), "would be linked into the worker",
			map[string]string{"internal/probe/x.go": "package probe\n" + own("internal/inventory")}},
		{"worker pulls in another's module", "worker-small", "cmd/caisson-worker/x.go", "package main\nimport _ \"modernc.org/sqlite\"\n", "would be linked", nil},
		{"worker with system calls", "worker-small", "cmd/caisson-worker/x.go", "package main\nimport _ \"golang.org/x/sys/unix\"\n", "", nil},

		{"database outside its room", "outsiders", "internal/evidence/x.go", "package evidence\nimport _ \"modernc.org/sqlite\"\n", "may not be imported here", nil},
		{"database in its room", "outsiders", "internal/inventory/x.go", "package inventory\nimport _ \"modernc.org/sqlite\"\n", "", nil},
		{"command-line library outside", "outsiders", "cmd/caisson/x.go", "package main\nimport _ \"github.com/spf13/cobra\"\n", "may not be imported here", nil},
		{"test library in a program", "outsiders", "cmd/caisson/x.go", "package main\nimport _ \"github.com/rogpeppe/go-internal/testscript\"\n", "may not be imported here", nil},
		{"test library in a test", "outsiders", "cmd/caisson/x_test.go", "package main\nimport _ \"github.com/rogpeppe/go-internal/testscript\"\n", "", nil},
		{"system calls in the sequence", "outsiders", "internal/boundary/x.go", "package boundary\nimport _ \"golang.org/x/sys/unix\"\n", "may not be imported here", nil},
		{"a module nobody knows", "outsiders", "internal/sys/x_test.go", "package sys\nimport _ \"example.org/m\"\n", "has no room", nil},

		{"no package comment", "package-comments", "internal/sys/x.go", "package sys\n", "no package comment", nil},
		{"no limit", "package-comments", "internal/sys/x.go", "// Package sys is good.\npackage sys\n", "Its limit", nil},
		{"two comments", "package-comments", "internal/sys/x.go", charter + "package sys\n", "package comments in",
			map[string]string{"internal/sys/y.go": charter + "package sys\n"}},
		{"two comments for two systems", "package-comments", "cmd/x/x.go", "//go:build linux\n\n" + charter + "package main\n", "",
			map[string]string{"cmd/x/y.go": "//go:build !linux\n\n" + charter + "package main\n"}},
		{"none on the other system", "package-comments", "cmd/x/x_linux.go", charter + "package main\n", "no package comment on darwin",
			map[string]string{"cmd/x/y_other.go": "//go:build !linux\n\npackage main\n"}},
		{"one comment", "package-comments", "internal/sys/x.go", charter + "package sys\n", "", nil},

		{"too long", "file-size", "internal/sys/x.go", "package sys\n" + strings.Repeat("var _ = 1\n", maxCode), "501 lines of code", nil},
		{"long raw string", "file-size", "internal/sys/x.go", "package sys\nvar _ = `" + strings.Repeat("\n", maxCode) + "`\n", "lines of code", nil},
		{"long comments", "file-size", "internal/sys/x.go", "package sys\n" + strings.Repeat("// why\n\n", maxCode), "", nil},

		{"a room starts processes", "processes", "internal/evidence/x.go", "package evidence\nimport \"syscall\"\nfunc f() { syscall.ForkExec(\"/bin/true\", nil, nil) }\n", "may not call syscall.ForkExec", nil},
		{"under another name", "processes", "internal/evidence/x.go", "package evidence\nimport s \"os\"\nfunc f() { s.StartProcess(\"/bin/true\", nil, nil) }\n", "may not call s.StartProcess", nil},
		{"os/exec imported", "processes", "internal/policy/x.go", "package policy\nimport _ \"os/exec\"\n", "may not import os/exec", nil},
		{"git started elsewhere", "processes", "internal/wire/x.go", "package wire\nimport \"os/exec\"\nfunc f() { exec.Command(\"git\", \"gc\") }\n", "only internal/source/git starts git", nil},
		{"git by path, with a context", "processes", "internal/wire/x.go", "package wire\nimport \"os/exec\"\nfunc f() { exec.CommandContext(nil, \"/usr/bin/git\") }\n", "only internal/source/git", nil},
		{"git by a constant", "processes", "internal/wire/x.go", "package wire\nimport \"os/exec\"\nconst g = \"git\"\nfunc f() { exec.Command(g) }\n", "only internal/source/git", nil},
		{"git in its room", "processes", gitRoom + "/x.go", "package git\nimport \"os/exec\"\nfunc f() { exec.Command(\"git\") }\n", "", nil},
		{"git in a test", "processes", "internal/wire/x_test.go", "package wire\nimport \"os/exec\"\nfunc f() { exec.Command(\"git\") }\n", "", nil},

		{"bare skip", "skips", "internal/sys/x_test.go", "package sys\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skip" + "() }\n", "a skip without a reason", nil},
		{"empty reason", "skips", "internal/sys/x_test.go", "package sys\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skipf(\" \") }\n", "a skip without a reason", nil},
		{"SkipNow", "skips", "internal/sys/x_test.go", "package sys\nimport \"testing\"\nfunc TestX(t *testing.T) { t.SkipNow() }\n", "gives no reason", nil},
		{"a reason", "skips", "internal/sys/x_test.go", "package sys\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skip(\"needs root\") }\n", "", nil},

		{"unfinished mark", "words", "docs/x.md", "first\n" + "TO" + "DO: later\n", "docs/x.md:2", nil},
		{"a machine's folder", "words", "scripts/x.sh", "cd /wor" + "k/main\n", "a folder of one machine", nil},
		{"a registry", "words", "Makefile", "curl https://registry." + "npmjs.org\n", "a host of a package registry", nil},
		{"clean text", "words", "docs/x.md", "mktemp -d caisson.XXXXXX, a workbench, /usr/share\n", "", nil},

		{"dead link", "links", "docs/x.md", "see [y](y.md)\n", "y.md leads nowhere", nil},
		{"live links", "links", "docs/x.md", "[y](y.md#part) [up](../README.md) [all](.) [out](https://example.org/)\n", "", map[string]string{"docs/y.md": "", "README.md": ""}},

		{"undocumented module", "dependencies", "go.mod", "module m\n\nrequire (\n\texample.org/m v1.2.3 // indirect\n)\n", "has no line", nil},
		{"another version", "dependencies", "go.mod", "module m\nrequire example.org/m v1.2.3\n", "is at v1.2.2 there, at v1.2.3", map[string]string{"docs/dependencies.md": "| `example.org/m` | v1.2.2 | why |\n"}},
		{"a module that left", "dependencies", "go.mod", "module m\n", "is not in go.mod", map[string]string{"docs/dependencies.md": "| `example.org/m` | v1.2.2 | why |\n"}},
		{"in step", "dependencies", "go.mod", "module m\nrequire example.org/m v1.2.3\n", "", map[string]string{"docs/dependencies.md": "| `example.org/m` | v1.2.3 | why |\n"}},
	} {
		t.Run(c.rule+"/"+c.name, func(t *testing.T) {
			fsys := fstest.MapFS{c.path: {Data: []byte(c.src)}}
			for p, s := range c.also {
				fsys[p] = &fstest.MapFile{Data: []byte(s)}
			}
			tr, err := load(fsys)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				if r.name != c.rule {
					continue
				}
				got := r.check(tr)
				switch {
				case c.want == "" && len(got) != 0:
					t.Errorf("speaks where it should not: %q", got)
				case c.want != "" && (len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), c.want)):
					t.Errorf("got %q, want %q", got, c.want)
				}
				return
			}
			t.Fatalf("no rule named %s", c.rule)
		})
	}
}
