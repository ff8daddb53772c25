//go:build linux

package source

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestNamesThroughLinks changes files that are ordinary by their own names, and
// something else by the name of a link that was there before.
func TestNamesThroughLinks(t *testing.T) {
	l := basic(t)
	for link, target := range map[string]string{
		".claude": "tools", ".vscode": "dev/editor", "dev": "infra", ".envrc": "env/dev.sh", "web/package.json": "../conf/pkg.json",
		".GitHub/workflows": "../ci", "docs/ok": "../src", "loop/a": "../loop/b", "loop/b": "a", "sub/.husky": "..", ".idea": "/srv/idea", ".cursor": "../outside", ".devcontainer": "Boxes",
	} {
		if err := os.MkdirAll(l.repo+"/"+link[:strings.LastIndexByte("/"+link, '/')], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, l.repo+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	l.write("conf/pkg.json", `{"scripts":{"test":"x"},"version":"1"}`)
	l.write("conf/same.json", `{"version":"1"}`)
	l.write("src/a.txt", "a\n")
	l.write("ci/old.yml", "x\n")
	l.commit("links")
	o := l.open(Options{})
	cases := []struct{ path, text, rule, name string }{
		{"tools/settings.json", "{}", "agent-settings", ".claude/settings.json"},
		{"infra/editor/tasks.json", "{}", "editor-settings", ".vscode/tasks.json"}, // through two links
		{"env/dev.sh", "x\n", "shell-environment", ".envrc"},
		{"ci/old.yml", "y\n", "ci", ".GitHub/workflows/old.yml"},
		{"boxes/start.txt", "x\n", "dev-container", ".devcontainer/start.txt"}, // where case does not count
		{"some-hook", "x\n", "git-hooks", "sub/.husky/some-hook"},              // the link leads to the whole tree
		{"conf/pkg.json", `{"scripts":{"test":"x","postinstall":"y"},"version":"1"}`, "package-scripts", "web/package.json"},
	}
	// Nothing calls these by a risky name. sub/.husky leads to all there is, which
	// is why git-hooks does not count here.
	ordinary := map[string]string{"src/a.txt": "b\n", "loop/c": "c\n", "idea/workspace.xml": "c\n", "outside": "x\n"}
	for _, c := range cases {
		o.file(c.path, c.text)
	}
	for p, text := range ordinary {
		o.file(p, text)
	}
	rs := o.risks()
	for _, c := range cases {
		if !slices.Contains(ruled(rs)[c.path], c.rule) {
			t.Errorf("%s is not listed under %s: %v", c.path, c.rule, ruled(rs)[c.path])
		}
	}
	for _, r := range rs {
		if _, no := ordinary[string(r.Raw)]; no && r.Rule != "git-hooks" {
			t.Errorf("listed: %+v", r)
		}
		for _, c := range cases {
			if string(r.Raw) == c.path && r.Rule == c.rule && !strings.Contains(r.Why, "through a link it is also "+c.name+": ") {
				t.Errorf("%s: the sentence does not name %s: %s", c.path, c.name, r.Why)
			}
		}
	}

	// Both names are a package's, and what is harmless as that is still what the
	// second name's folder makes of it.
	o = l.open(Options{})
	o.file("tools/package.json", "{}")
	if got := ruled(o.risks())["tools/package.json"]; !slices.Contains(got, "agent-settings") {
		t.Errorf("tools/package.json is listed under %v", got)
	}

	// The content decides under another name as well.
	o = l.open(Options{})
	o.file("conf/pkg.json", `{"scripts":{"test":"x"},"version":"2"}`)
	for _, r := range o.risks() {
		if r.Rule != "git-hooks" {
			t.Errorf("listed: %+v", r)
		}
	}
}

func TestLeadsTo(t *testing.T) {
	for _, c := range []struct {
		link, target, want string
		ok                 bool
	}{
		{"a", "b", "b", true}, {"d/a", "../b/", "b", true}, {"d/a", "..", "", true}, {"d/a", "../..", "", false}, {"a", "../b", "", false}, {"a", "/b", "", false},
		{"a", "a", "", false}, {"a", "./b/./c", "b/c", true}, {"a", `b\c`, "b/c", true}, {"a", "", "", false}, {"a", "b\x00c", "", false}, {"a", "..b", "..b", true},
	} {
		if got, ok := leadsTo(c.link, c.target); got != c.want || ok != c.ok {
			t.Errorf("%q -> %q: %q %v, want %q %v", c.link, c.target, got, ok, c.want, c.ok)
		}
	}
}

// TestAliasesAreBounded has links that make names without end.
func TestAliasesAreBounded(t *testing.T) {
	a := riskAliases{"": {"a", "b", "c"}, "a": {"b/x", "c"}, "b": {"a/y"}}
	if n := len(a.of("some/path")); n == 0 || n > maxAliases {
		t.Errorf("%d names", n)
	}
}
