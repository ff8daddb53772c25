//go:build linux

package source

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func (o *opened) risks() []task.Risk {
	o.t.Helper()
	r, err := Look(context.Background(), o.ws)
	if err != nil {
		o.t.Fatal(err)
	}
	defer r.Close()
	rs, err := r.Risks(context.Background())
	if err != nil {
		o.t.Fatal(err)
	}
	return rs
}

// ruled returns the rules under which each path is listed.
func ruled(rs []task.Risk) map[string][]string {
	out := map[string][]string{}
	for _, r := range rs {
		out[string(r.Raw)] = append(out[string(r.Raw)], r.Rule)
	}
	return out
}

func TestRiskTableIsWellFormed(t *testing.T) {
	seen := map[string]string{}
	for _, r := range riskRules {
		if r.id == "" || r.why == "" || strings.HasSuffix(r.why, ".") || strings.ToLower(r.why[:1]) != r.why[:1] {
			t.Errorf("rule %q: why %q", r.id, r.why)
		}
		for _, n := range r.names {
			if was, dup := seen[n]; dup {
				t.Errorf("%q is in rules %s and %s", n, was, r.id)
			}
			seen[n] = r.id
			for _, part := range strings.Split(strings.TrimSuffix(n, "/**"), "/") {
				if strings.Contains(part, "**") || part == "" || strings.ContainsAny(part, `[]?\`) {
					t.Errorf("rule %s: %q is not a pattern of the table", r.id, n)
				}
				if _, err := path.Match(part, "x"); err != nil {
					t.Errorf("rule %s: %q: %v", r.id, n, err)
				}
				if foldName(part) != part {
					t.Errorf("rule %s: %q is not folded: %q", r.id, n, foldName(part))
				}
			}
		}
	}
}

// controlFiles are the names of conformance probe P08, and more of their kind.
var controlFiles = []string{
	".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/x", ".claude/commands/x.md", ".claude/agents/x.md", ".cursor/rules/x.mdc", ".cursor/mcp.json",
	".gemini/settings.json", ".codex/config.toml", ".qwen/settings.json", ".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json", ".vscode/extensions.json", ".idea/workspace.xml", ".idea/runConfigurations/x.xml",
	".envrc", ".npmrc", ".yarnrc.yml", ".yarnrc", ".pnpmfile.cjs", ".pre-commit-config.yaml", "AGENTS.md", "CLAUDE.md", "GEMINI.md", ".cursorrules", ".windsurf/x", ".windsurfrules", ".continue/config.json", ".aider.conf.yml", ".github/copilot-instructions.md",
	".devcontainer/devcontainer.json", ".devcontainer/Dockerfile", ".devcontainer.json", ".caisson.yaml", ".gitattributes", ".gitconfig", ".husky/pre-commit", ".githooks/pre-commit", "lefthook.yml", "hooks/post-checkout",
	".github/workflows/x.yml", ".github/actions/x/action.yml", ".gitlab-ci.yml", "Jenkinsfile", ".circleci/config.yml", "azure-pipelines.yml", ".drone.yml", ".buildkite/pipeline.yml", ".travis.yml",
	"package.json", "setup.py", "conftest.py", "sitecustomize.py", "x.pth", "Makefile", "justfile", "Taskfile.yml", "build.rs", ".cargo/config.toml", ".cargo/config", "Gemfile", "x.gemspec", "Rakefile",
	"gradlew", "gradle/wrapper/gradle-wrapper.properties", "build.gradle", "build.gradle.kts", "mvnw", ".mvn/extensions.xml", "docker-compose.yml", "Dockerfile", "flake.nix", "shell.nix", ".bazelrc", "CMakePresets.json", ".terraformrc",
	".env", ".env.local", "mise.toml", ".mise.toml", ".tool-versions", ".bashrc", ".zshenv", ".profile", "x.code-workspace", ".vimrc", ".nvim.lua", ".exrc", ".dir-locals.el", "CODEOWNERS",
	".venv/bin/python", "node_modules/.bin/tsc", "target/debug/x", "authorized_keys", ".ssh/config", "x.desktop", "x.service",
}

// TestControlFilesAreListed is probe P08: every control file that was missing,
// at any depth and below node_modules.
func TestControlFilesAreListed(t *testing.T) {
	o := basic(t).open(Options{})
	var want []string
	for _, dir := range []string{"", "one/", "a/b/c/d/e/", "node_modules/pkg/", "sub/node_modules/@scope/pkg/"} {
		for _, f := range controlFiles {
			text := "x\n"
			if f == "package.json" {
				text = `{"scripts":{"postinstall":"x"}}`
			}
			o.file(dir+f, text)
			want = append(want, dir+f)
		}
	}
	got := ruled(o.risks())
	for _, p := range want {
		if len(got[p]) == 0 {
			t.Errorf("%s is not listed", p)
		}
	}
}

// TestControlFilesInDisguise changes names in ways that some file system takes
// for the same.
func TestControlFilesInDisguise(t *testing.T) {
	for name, rule := range map[string]string{
		".ENVRC":                       "shell-environment",
		".env\u200brc":                 "shell-environment",
		".envrc.":                      "shell-environment",
		".envrc ":                      "shell-environment",
		".envrc::$DATA":                "shell-environment",
		".\u202emcp.json":              "agent-settings",
		"Clau\u00ade.md":               "", // not the same word
		"CLAUDE\ufeff.MD":              "agent-instructions",
		"\u212aeep/.VSCODE/tasks.json": "editor-settings",
		".v\u017fcode/tasks.json":      "editor-settings",
		".CLAUDE/SETTINGS.JSON":        "agent-settings",
		"Ma\u212aefile":                "build-script",
		"gitconﬁg":                     "git-config",
		"GITATT~1":                     "git-attributes",
		".gitmodules.":                 "git-modules",
		"node_modules/x/.NPMRC":        "package-manager",
	} {
		i := riskNameIndex().find(foldPath(name), -1)
		got := ""
		if i >= 0 {
			got = riskRules[i].id
		}
		if got != rule {
			t.Errorf("%q: rule %q, want %q", name, got, rule)
		}
	}
}

func TestOrdinaryNamesAreNotListed(t *testing.T) {
	for _, name := range []string{
		"main.go", "internal/source/result.go", "src/index.ts", "README.md", "docs/guide.md", "go.sum", "lib/env.py", "environment.go", "src/hooks/useThing.ts", "hooks/README.md", ".gitignore", ".editorconfig", ".nvmrc", ".dockerignore",
		"cmd/update/main.go", "testdata/config.json", "web/package/index.html", "target.go", "bin.go", "vendor/golang.org/x/sys/unix/a.go", "LICENSE", "tests/test_main.py", "src/app/service.ts", "x/claude.go", "agents/run.md", "github/workflows.md", "k8s/deployment.yaml", "data.csv", "été.txt", "日本/語.md", "emoji ❤️.txt", "a b.txt",
	} {
		if i := riskNameIndex().find(foldPath(name), -1); i >= 0 {
			t.Errorf("%s: rule %s", name, riskRules[i].id)
		}
		for _, part := range strings.Split(name, "/") {
			if why := deceives(part); why != "" {
				t.Errorf("%q: %s", name, why)
			}
		}
	}
}

func TestDeceptiveNames(t *testing.T) {
	for _, name := range []string{
		"a\u202egnp.exe", "a\u200bb", "a\x1bb", "a\nb", "a\xffb", "a.", "a ", " a", "-rf", "con", "AUX.txt", "com1.c", "lpt¹", "a\\b", "a:b", "a\u00a0b", "a\u2215b", "p\u0430ypal", "a\u2028b", "a\u2066b", "a\u180eb", "a\U000e0041", "\u3164",
	} {
		if deceives(name) == "" {
			t.Errorf("%q is taken for a plain name", name)
		}
	}
}

// TestRisksOfEverySort makes one result with every rule that is judged by code.
func TestRisksOfEverySort(t *testing.T) {
	l := basic(t)
	l.write(".gitattributes", "*.txt text\n")
	l.write("CODEOWNERS", "* @a\n")
	l.write("old.js", "1\n")
	l.commit("three")
	o := l.open(Options{})
	link := func(target, name string) {
		t.Helper()
		if err := os.MkdirAll(path.Dir(o.p.Source+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, o.p.Source+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	link("/etc/passwd", "l/abs")
	link("../../x", "l/out")
	link("../dir/a.txt", "l/in")
	link("../.git/hooks", "l/git")
	link("../link", "l/link")
	link("l2", "l/l1")
	link("../dir", "l/l2")
	link("l2/a.txt", "l/through")
	link("../dir", "l/.claude")
	link("../dir", "l/.GITHUB")
	link("../dir", "l/claude")
	o.file("tool", "\x7fELF\x02\x01")
	o.file("script", "#!/bin/sh\n")
	o.file("plain.txt", "text\n")
	o.file("dir/a.txt", "changed\n")
	o.file("old.js", "2\n")
	for p, m := range map[string]os.FileMode{"old.js": 0o755, "plain.txt": 0o644 | os.ModeSetuid, "script": 0o666} {
		if err := os.Chmod(o.p.Source+"/"+p, m); err != nil {
			t.Fatal(err)
		}
	}
	o.file("DIR/x.txt", "twin of a folder\n")
	o.file("readme", "twin\n")
	o.file("e\u0301.txt", "x\n")
	o.file("\u00e9.txt", "x\n")
	o.file("node_modules/x/package.json", `{"name":"x"}`)
	o.file("plain/package.json", `{"name":"x"}`)
	o.file("CLAUDE.md ", "x\n")
	o.file("bare/HEAD", "ref: refs/heads/main\n")
	o.file(".gitattributes", "*.txt text filter=evil\n")
	if err := os.Remove(o.p.Source + "/CODEOWNERS"); err != nil {
		t.Fatal(err)
	}
	rs := o.risks()
	got := ruled(rs)
	for p, want := range map[string][]string{
		"l/abs": {ruleLink}, "l/out": {ruleLink}, "l/in": nil, "l/git": {ruleLink}, "l/link": {ruleLink}, "l/l1": {ruleLink}, "l/l2": nil, "l/through": {ruleLink},
		// A link in the place of a folder brings files there under any name.
		"l/.claude": {"agent-settings"}, "l/.GITHUB": {"agent-settings"}, "l/claude": nil,
		"tool": {ruleExecutable}, "script": {ruleExecutable, ruleMode}, "plain.txt": {ruleMode}, "old.js": {ruleExecutable}, "dir/a.txt": nil,
		"DIR/x.txt": {ruleTwin}, "readme": {ruleTwin}, "e\u0301.txt": {ruleTwin}, "\u00e9.txt": {ruleTwin},
		"bare/HEAD": {ruleBareRepo}, ".gitattributes": {"git-attributes"}, "CODEOWNERS": {"review-rules"}, "README": nil, "run.sh": nil,
		"node_modules/x/package.json": {"installed-code"}, "plain/package.json": nil, "CLAUDE.md ": {"agent-instructions", ruleName},
	} {
		if !slices.Equal(got[p], want) {
			t.Errorf("%q: %q, want %q", p, got[p], want)
		}
	}
	for _, r := range rs {
		if r.Path == ".gitattributes" && !strings.Contains(r.Why, "filter") {
			t.Errorf("the attribute is not named: %s", r.Why)
		}
		if string(r.Raw) == "CLAUDE.md " && r.Path != `"CLAUDE.md "` {
			t.Errorf("shown as %s", r.Path)
		}
		if r.Path == "" || r.Why == "" || string(r.Raw) == "" || strings.HasSuffix(r.Why, ".") {
			t.Errorf("%+v", r)
		}
	}
	if t.Failed() {
		for _, r := range rs {
			fmt.Printf("%-20s %-15s %s\n", r.Path, r.Rule, r.Why)
		}
	}
}

// TestOrdinaryWorkRaisesNoAlarm changes every ordinary file of a real project
// and adds some.
func TestOrdinaryWorkRaisesNoAlarm(t *testing.T) {
	l := module(t, "github.com/spf13/cobra")
	o := l.open(Options{})
	changed := 0
	for _, p := range strings.Fields(l.git("ls-files")) {
		if strings.HasSuffix(p, ".go") || strings.HasSuffix(p, ".md") && path.Base(p) != "AGENTS.md" || path.Base(p) == "go.sum" {
			b, err := os.ReadFile(o.p.Source + "/" + p)
			if err != nil {
				t.Fatal(err)
			}
			o.file(p, string(b)+"\n")
			changed++
		}
	}
	o.file("feature/feature.go", "package feature\n")
	o.file("feature/testdata/golden.json", "{}\n")
	o.file("docs/új.md", "x\n")
	if err := os.Remove(o.p.Source + "/README.md"); err != nil {
		t.Fatal(err)
	}
	rs := o.risks()
	if changed < 40 || len(rs) > 0 {
		t.Errorf("%d files changed, listed: %+v", changed, rs)
	}
}

// TestGitlinksAreListed: files never make one, a rescued commit can.
func TestGitlinksAreListed(t *testing.T) {
	for _, c := range []struct {
		status   byte
		old, new uint32
		want     int
	}{{'A', 0, gitlink, 1}, {'M', gitlink, gitlink, 1}, {'T', 0o100644, gitlink, 1}, {'D', gitlink, 0, 0}} {
		l := &riskList{seen: map[string]map[string]bool{}}
		rc := rawChange{Change: task.Change{Status: c.status, Path: []byte("sub"), OldMode: c.old, NewMode: c.new}}
		rc.judgeName(l)
		if rs := l.done(); len(rs) != c.want || c.want > 0 && rs[0].Rule != ruleGitlink {
			t.Errorf("%c %o %o: %+v", c.status, c.old, c.new, rs)
		}
	}
}

// TestManyRisksAreCutShort: the list ends, and says that it does.
func TestManyRisksAreCutShort(t *testing.T) {
	l := &riskList{seen: map[string]map[string]bool{}}
	for i := range maxRisks + 100 {
		c := rawChange{Change: task.Change{Status: 'A', Path: fmt.Appendf(nil, "%d/.envrc", i), NewMode: 0o100644}}
		c.judgeName(l)
	}
	rs := l.done()
	if last := rs[len(rs)-1]; len(rs) != maxRisks+1 || last.Rule != ruleTooMany || last.Path != "" || !strings.Contains(last.Why, "100 more") {
		t.Errorf("%d entries, the last %+v", len(rs), last)
	}
}

// TestLargeFilesAreNotRead: a file beyond the bounds is listed as such.
func TestLargeFilesAreNotRead(t *testing.T) {
	o := basic(t).open(Options{})
	o.file("big", "x")
	if err := os.Truncate(o.p.Source+"/big", maxRiskBlob+1); err != nil {
		t.Fatal(err)
	}
	o.file("package.json", `{"name":"`+strings.Repeat("x", maxRiskText)+`"}`)
	got := ruled(o.risks())
	if !slices.Equal(got["big"], []string{ruleUnread}) || !slices.Equal(got["package.json"], []string{"package-scripts"}) || len(got) != 2 {
		t.Errorf("%q", got)
	}
}
