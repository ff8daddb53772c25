//go:build linux

package linux

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
)

// The toolchains of the machine the test runs on work inside, whoever put them
// where. What is not installed is not tested, and said.
func TestToolchainsOfThisMachineRunInside(t *testing.T) {
	home, err := os.UserHomeDir()
	must(t, err)
	path := os.Getenv("PATH")
	found := Discover(Search{Path: path, Home: home, Getenv: os.Getenv})
	for _, m := range append(found.Missing, found.Findings...) {
		t.Logf("not available: %s: %s", m.Location, m.Text)
	}
	s := newSpec(t)
	s.Home, s.Identity.Home, s.Tools = home, home, found.Mounts
	s.Source.Target = "/srv/project"
	s.Env = []string{"HOME=" + home, "PATH=" + path, "LANG=C.UTF-8", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "GOPROXY=off"}
	must(t, os.Mkdir(filepath.Join(s.Source.Source, "c"), 0o755))
	must(t, os.WriteFile(filepath.Join(s.Source.Source, "c", "main.c"), []byte("#include <stdio.h>\nint main(void){puts(\"compiled\");return 0;}\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(s.Source.Source, "main.go"), []byte("package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"compiled\") }\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(s.Source.Source, "go.mod"), []byte("module example.com/m\n\ngo 1.21\n"), 0o644))
	b := open(t, s)
	for _, c := range []struct{ tool, script, want string }{
		{"git", "git init -q g && cd g && git -c user.name=a -c user.email=b@c commit -q --allow-empty -m x && git log --format=%s", "x"},
		{"gcc", "cd c && gcc -o c main.c && ./c", "compiled"},
		{"go", "go run .", "compiled"},
		{"node", `node -e 'console.log([1,2].map(x => x * 2).join())'`, "2,4"},
		{"python3", `python3 -c 'import json, ssl, sqlite3; print(json.dumps([1]))'`, "[1]"},
		{"cargo", "cargo --version | cut -d' ' -f1", "cargo"},
		{"rustc", "echo 'fn main(){println!(\"compiled\")}' > r.rs && rustc r.rs && ./r", "compiled"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			if exec.Command("sh", "-c", c.tool+" --version").Run() != nil && exec.Command("sh", "-c", c.tool+" version").Run() != nil {
				t.Skipf("%s does not run on this machine outside either", c.tool)
			}
			out, code := b.run("/bin/sh", "-c", c.script)
			if code != 0 || strings.TrimSpace(out) != c.want {
				t.Errorf("exit %d: %s", code, out)
			}
		})
	}
}

// homeWith makes a home folder from paths; "->" makes a link, a trailing "/" a
// folder, "*" a program.
func homeWith(t *testing.T, paths ...string) string {
	t.Helper()
	home := filepath.Join(publicTemp(t), "home")
	must(t, os.MkdirAll(home, 0o755))
	for _, p := range paths {
		name, dest, link := strings.Cut(p, " -> ")
		name = filepath.Join(home, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		switch {
		case link:
			must(t, os.Symlink(strings.ReplaceAll(dest, "~", home), name))
		case strings.HasSuffix(p, "/"):
			must(t, os.MkdirAll(name, 0o755))
		default:
			must(t, os.WriteFile(name, []byte("#!/bin/sh\necho ran\n"), 0o755))
		}
	}
	return home
}

func TestDiscover(t *testing.T) {
	for _, c := range []struct {
		name          string
		have, path    []string
		want, missing []string
	}{
		{"nvm", []string{".nvm/versions/node/v20/bin/node", ".nvm/versions/node/v20/lib/", ".nvm/alias"}, []string{".nvm/versions/node/v20/bin"}, []string{".nvm/versions/node/v20"}, nil},
		{"pyenv", []string{".pyenv/shims/python", ".pyenv/bin/pyenv", ".pyenv/libexec/", ".pyenv/versions/"}, []string{".pyenv/shims", ".pyenv/bin"}, []string{".pyenv"}, nil},
		{"cargo", []string{".cargo/bin/rustup", ".cargo/bin/cargo -> rustup", ".cargo/credentials.toml", ".rustup/toolchains/"}, []string{".cargo/bin"}, []string{".cargo/bin", ".rustup"}, nil},
		{"go bin only", []string{"go/bin/gopls", "go/pkg/mod/", "go/src/"}, []string{"go/bin"}, []string{"go/bin"}, nil},
		{"local bin and what its links need", []string{".local/bin/tool -> ~/.local/share/uv/tools/tool/bin/tool", ".local/share/uv/tools/tool/bin/tool",
			".local/share/uv/tools/tool/lib/", ".local/share/uv/tools/tool/bin/python -> ~/.local/share/uv/python/3.12/bin/python3", ".local/share/uv/python/3.12/bin/python3",
			".local/share/uv/python/3.12/lib/", ".local/share/keyrings/login"}, []string{".local/bin"},
			[]string{".local/bin", ".local/share/uv/tools/tool", ".local/share/uv/python/3.12"}, nil},
		{"sdkman", []string{".sdkman/candidates/java/17/bin/java", ".sdkman/candidates/java/17/lib/", ".sdkman/candidates/java/current -> 17"},
			[]string{".sdkman/candidates/java/current/bin"}, []string{".sdkman/candidates/java/17", ".sdkman/candidates/java/current"}, nil},
		{"asdf", []string{".asdf/shims/node", ".asdf/installs/", ".asdf/bin/asdf"}, []string{".asdf/shims"}, []string{".asdf"}, nil},
		{"own scripts", []string{"bin/mine", "Documents/letter"}, []string{"bin"}, []string{"bin"}, nil},
		{"home itself", []string{"x"}, []string{"."}, nil, []string{"."}},
		{"configuration", []string{".config/yarn/global/bin/y"}, []string{".config/yarn/global/bin"}, nil, []string{".config/yarn/global/bin"}},
		{"link to configuration", []string{".yarn/bin/y -> ~/.config/yarn/y", ".config/yarn/y"}, []string{".yarn/bin"}, []string{".yarn/bin"}, []string{".config/yarn"}},
		{"loops and gaps", []string{"bin/a -> b", "bin/b -> a", "bin/c -> /nowhere"}, []string{"bin", "gone/bin"}, []string{"bin"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := homeWith(t, c.have...)
			var path []string
			for _, p := range c.path {
				path = append(path, filepath.Join(home, p))
			}
			f := Discover(Search{Path: strings.Join(path, ":") + ":/usr/bin", Home: home})
			got := map[string]bool{}
			for _, m := range f.Mounts {
				rel, _ := filepath.Rel(home, m.Target)
				if !strings.HasPrefix(rel, "..") {
					got[rel] = true
				}
				if m.Writable {
					t.Errorf("%s is writable", m.Target)
				}
			}
			for _, w := range c.want {
				if !got[w] {
					t.Errorf("%s is not shown: %v", w, got)
				}
				delete(got, w)
			}
			if len(got) > 0 {
				t.Errorf("shown besides: %v", got)
			}
			miss := map[string]bool{}
			for _, m := range f.Missing {
				rel, _ := filepath.Rel(home, m.Location)
				miss[rel] = true
			}
			for _, w := range c.missing {
				if !miss[w] {
					t.Errorf("%s is not named as missing: %v", w, miss)
				}
			}
		})
	}
}

// The links that discovery followed work inside too.
func TestLinkedToolRunsInside(t *testing.T) {
	home := homeWith(t, ".local/bin/tool -> ~/.sdk/current/bin/tool", ".sdk/current -> 1.2", ".sdk/1.2/bin/tool", ".sdk/1.2/lib/", ".sdk/1.2/.npmrc", ".sdk/1.2/lib/credentials")
	bin := filepath.Join(home, ".local/bin")
	s := newSpec(t)
	s.Home, s.Identity.Home = home, home
	s.Env = []string{"HOME=" + home, "PATH=" + bin + ":/usr/bin:/bin"}
	s.Source.Target = "/srv/project"
	s.Tools = Discover(Search{Path: bin, Home: home}).Mounts
	b := open(t, s)
	if got := b.sh("tool"); got != "ran" {
		t.Error(got)
	}
	// Control: outside, the credentials are there to be read.
	if data, err := os.ReadFile(filepath.Join(home, ".sdk/1.2/.npmrc")); err != nil || len(data) == 0 {
		t.Fatal("control: nothing to hide")
	}
	if got := b.sh("cat ~/.sdk/1.2/.npmrc ~/.sdk/1.2/lib/credentials; ls ~/.sdk/1.2/.npmrc"); !strings.HasSuffix(got, ".npmrc") || strings.Contains(got, "ran") {
		t.Errorf("credentials are readable: %q", got)
	}
}

func TestScreenHidesSocketsAndCredentials(t *testing.T) {
	home := homeWith(t, "seed/a/.netrc", "seed/ok/file", "seed/deep/er/id_ed25519", "seed/.ssh/")
	l := listenUnix(t, filepath.Join(home, "seed/a/agent.sock"))
	defer l.Close()
	ms, fs, err := Screen(t.Context(), []backend.Mount{{Source: filepath.Join(home, "seed"), Target: "/opt/seed"}})
	must(t, err)
	want := map[string]bool{"a/.netrc": true, "a/agent.sock": true, "deep/er/id_ed25519": true, ".ssh": true}
	for _, h := range ms[0].Hide {
		if !want[h] {
			t.Errorf("%s is hidden", h)
		}
		delete(want, h)
	}
	if len(want) > 0 || len(fs) != 1 {
		t.Errorf("not hidden: %v; findings %v", want, fs)
	}
}
