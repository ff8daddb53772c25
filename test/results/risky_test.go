//go:build linux

package results

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// control files that host tools execute or trust (P08), and tampered
// installations (P11). Every one must be named before it reaches a checkout.
var risky = []string{
	".mcp.json", ".claude/settings.json", ".claude/hooks/x", ".cursor/mcp.json", ".cursor/rules/x.mdc", ".gemini/settings.json", ".codex/config.toml", ".vscode/tasks.json", ".vscode/settings.json", ".idea/workspace.xml",
	".idea/runConfigurations/x.xml", ".envrc", ".npmrc", ".yarnrc.yml", ".pre-commit-config.yaml", "AGENTS.md", "CLAUDE.md", ".devcontainer/devcontainer.json", ".github/workflows/x.yml", ".gitlab-ci.yml", ".gitattributes", ".gitmodules",
	".husky/pre-commit", "Makefile", ".env", "node_modules/.bin/tool", ".venv/bin/activate", "target/debug/x",
}

// TestRiskyNamed is P08 and P11.
func TestRiskyNamed(t *testing.T) {
	user(t, map[string]string{"a.txt": "a\n", "package.json": "{\"name\":\"x\"}\n", "sub/a": "a\n"}, func(p *place) {
		id := p.open()
		script := "import os\nfor d in ('', 'sub/', 'a/b/c/d/e/', 'node_modules/pkg/'):\n  for f in " + pylist(risky) + ":\n    os.makedirs(os.path.dirname(d+f) or '.', exist_ok=True); open(d+f, 'w').write('evil: " + p.mark("risky") + "\\n'); os.chmod(d+f, 0o755)\n" +
			"open('package.json','w').write('{\"name\":\"x\",\"scripts\":{\"postinstall\":\"" + p.mark("risky") + "\"}}')\nos.symlink('" + p.Home + "/.secret/f', 'leaves'); os.symlink('../../x', 'sub/up'); os.symlink('a.txt', 'stays')\n"
		p.python(id, script)
		want := []string{"package.json", "leaves", "sub/up"}
		for _, d := range []string{"", "sub/", "a/b/c/d/e/", "node_modules/pkg/"} {
			for _, f := range risky {
				want = append(want, d+f)
			}
		}
		p.remember()
		for what, args := range map[string][]string{"diff": {"diff", id}, "apply": {"apply", "--dry-run", id}, "export": {"export", "--dir", p.Dir + "/d", id}, "branch": {"branch", id}} {
			v, r := p.rep(args...)
			var got []string
			for _, x := range v.Risky {
				got = append(got, x.Path)
				if x.Rule == "" || x.Why == "" {
					p.t.Errorf("%s: %+v", what, x)
				}
			}
			var missing []string
			for _, w := range want {
				if !slices.Contains(got, w) {
					missing = append(missing, w)
				}
			}
			if len(missing) > 0 {
				p.t.Errorf("%s does not name %q (exit %d, %.300s)", what, missing, r.Exit, r.Stderr)
			}
			if slices.Contains(got, "stays") {
				p.t.Errorf("%s: a link inside the tree is not risky", what)
			}
		}
		// Without consent nothing happens, and nobody is there to ask.
		p.untouched("named", `\.git/(logs/)?refs/heads/caisson(/.*)?`)
		r := p.do("apply", id)
		p.refused(r, "")
		if r.Exit != 4 || !strings.Contains(r.Stderr, "--allow-risky") || !strings.Contains(r.Stderr+r.Stdout, ".envrc") {
			p.t.Errorf("apply of risky files, nobody to ask: %v", r)
		}
		if r := p.do("apply", "--yes", id); r.Exit == 0 {
			p.t.Errorf("--yes agreed to risky files: %v", r)
		}
		if r := p.do("branch", id, "quiet"); r.Exit == 0 && !strings.Contains(r.Stderr, ".envrc") {
			p.t.Errorf("branch says nothing of risky files: %v", r)
		}
		p.untouched("not agreed to", `\.git/(logs/)?refs/heads/(caisson|quiet)(/.*)?`)
		p.ok("apply", "--allow-risky", "--yes", id)
		if !exists(p.repo + "/.envrc") {
			p.t.Error("agreed to, and not there")
		}
		p.unmarked("risky")
	})
}

func pylist(list []string) string {
	return "['" + strings.Join(list, "', '") + "']"
}

// question runs apply on a terminal until it asks.
func (p *place) question(id string) *harness.Screen {
	p.t.Helper()
	cmd := p.Command(p.t.Context(), p.repo, harness.Bin(), "apply", id)
	cmd.Env = append(cmd.Env, "PAGER=cat")
	s := harness.OnTerminal(p.t, cmd, p.UID)
	s.Expect(".envrc")
	s.Expect("?")
	return s
}

// TestApplyAsks answers apply's question on a terminal in every way.
func TestApplyAsks(t *testing.T) {
	each(t, map[string]string{"a.txt": "a\n"}, func(p *place) {
		id := p.task(`echo x >.envrc; echo more >>a.txt; printf x >"$(printf 'ev\033[2J\342\200\256il.envrc')"; mkdir -p .vscode; echo x >".vscode/$(printf 'a\rb')"`)
		p.remember()
		s := p.question(id)
		s.Type("n\r")
		s.Ends(4)
		p.untouched("no")
		if strings.Contains(s.All(), "\x1b[2J") || strings.Contains(s.All(), "\u202e") {
			p.t.Errorf("a name acts on the terminal: %q", s.All())
		}
		s = p.question(id)
		s.Type("\r") // nothing is no
		s.Ends(4)
		p.untouched("nothing said")
		s = p.question(id)
		s.Type("\x03")
		if st := s.Wait(); st != 130 && st != 4 && st != -1 {
			p.t.Errorf("Ctrl-C: exit %d", st)
		}
		p.untouched("Ctrl-C")
		s = p.question(id)
		s.Type("\x04")
		if st := s.Wait(); st == 0 {
			p.t.Errorf("end of input: exit %d", st)
		}
		p.untouched("end of input")
		s = p.question(id)
		s.Close()
		if st := s.Wait(); st == 0 {
			p.t.Error("a closed terminal agreed")
		}
		p.untouched("closed terminal")
		s = p.question(id)
		_ = s.Cmd.Process.Signal(syscall.SIGTERM)
		if st := s.Wait(); st == 0 {
			p.t.Error("a signal agreed")
		}
		p.untouched("SIGTERM")

		// What was agreed to is what was shown: after a change it is asked anew.
		s = p.question(id)
		p.in(id, "echo evil >>.envrc; echo x >later.txt")
		s.Type("y\r")
		s.Expect(".envrc")
		s.Expect("?")
		p.untouched("changed while asking")
		s.Type("n\r")
		s.Ends(4)
		p.untouched("changed while asking, and refused")
		p.remember()
		s = p.question(id)
		s.Type("y\r")
		s.Ends(0)
		if !exists(p.repo+"/.envrc") || read(p.t, p.repo+"/a.txt") != "a\nmore\n" {
			p.t.Errorf("yes, and it is not there: %q", s.All())
		}
		p.outside("yes")
	})
}

// TestTerminalText shows names, messages and content of a task's on a
// terminal: none acts on it. The control is that they are there as bytes.
func TestTerminalText(t *testing.T) {
	user(t, map[string]string{"a.txt": "a\n"}, func(p *place) {
		id := p.task(`e="$(printf '\033]0;owned\007\033[2J\302\233')"; printf '%s\n' "$e" >>a.txt; echo x >"$e.txt"; git add -A; git commit -qm "$e subject" --author="$e <$e@x>"; git tag -am "$e" t; echo "$e" >"u$e"`)
		if out := p.ok("diff", id); !strings.Contains(out, "\x1b]0;owned") {
			p.t.Errorf("the control: exact bytes off a terminal: %q", out)
		}
		for _, args := range [][]string{{"diff", id}, {"diff", "--stat", id}, {"diff", "--name-status", id}, {"show", id}, {"log", id}, {"apply", "--dry-run", id}, {"branch", id}, {"close", "--dry-run", id}, {"apply", "--yes", "--allow-risky", id}, {"close", id}, {"show", id}, {"diff", id}} {
			cmd := p.Command(p.t.Context(), p.repo, harness.Bin(), args...)
			cmd.Env = append(cmd.Env, "PAGER=cat")
			s := harness.OnTerminal(p.t, cmd, p.UID)
			if st := s.Wait(); st != 0 && st != 7 {
				p.t.Errorf("%v: exit %d: %q", args, st, s.All())
			}
			for _, bad := range []string{"\x1b]", "\x07", "\x1b[2J", "\u009b"} {
				if strings.Contains(s.All(), bad) {
					p.t.Errorf("%v: %q reaches the terminal: %q", args, bad, s.All())
				}
			}
		}
	})
}
