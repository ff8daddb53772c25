package detect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestHostileTree: nothing of these ends a scan, costs much, or is silently
// taken for nothing.
func TestHostileTree(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	var deep strings.Builder
	for i := range 3000 {
		deep.WriteString(strings.Repeat(" ", i) + "k:\n")
	}
	tree := files{
		"a/compose.yaml":                  bomb.String(),
		"b/compose.yaml":                  "services: " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000),
		"c/compose.yaml":                  deep.String(),
		"d/compose.yaml":                  "services: &s\n  a: *s\n",
		"e/compose.yaml":                  "services:\n  a: &a\n    <<: *a\n    image: postgres\n",
		"f/compose.yaml":                  "services:\n  ? [x, y]\n  : {image: redis}\n  !!binary aGk=: 1\n",
		"g/compose.yaml":                  "%YAML 9.9\n---\n\x00",
		"h/compose.yaml":                  "services: {a: {image: " + strings.Repeat("p", 400<<10) + "}}",
		"a/package.json":                  strings.Repeat(" ", 10<<20),
		"b/package.json":                  strings.Repeat(`{"scripts":`, 5000),
		"c/package.json":                  strings.Repeat("[", 200000),
		"d/package.json":                  `{"scripts":{"a":"` + strings.Repeat("(", 60000) + `"}}`,
		"e/package.json":                  `{"scripts":{"a":"` + strings.Repeat("if ", 20000) + `"}}`,
		"f/package.json":                  `{"scripts":"x","dependencies":[1,{}],"pnpm":null}`,
		"g/package.json":                  `{"scripts":{"a":{"b":[]}},"scripts":{"test":"docker ps"}}`,
		"name\nwith\x1b[31mline/.env":     "DATABASE_URL=postgres://localhost/x\n",
		"\xff\xfe/.env":                   "REDIS_URL=redis://localhost\n",
		"\u202egnp.sqlite":                "",
		"Makefile":                        "a:\n" + strings.Repeat("\t@$(((((\n", 3000),
		"m/Makefile":                      strings.Repeat("\t\\\n", 50000),
		"docker-compose.yml":              "-> /etc/shadow",
		".devcontainer/devcontainer.json": "-> ../../x",
		".github/workflows/x.yml":         "jobs: {a: {steps: [{run: '" + strings.Repeat("${{ x }} ", 5000) + "'}]}}",
		"Dockerfile":                      "RUN " + strings.Repeat("\\\n", 10000),
		".gitattributes":                  strings.Repeat("* filter=x\n", 10000),
		".env":                            strings.Repeat("A", 100000) + "=" + strings.Repeat("B", 100000) + "\n=\n==\nURL=://\nX=a://@@@:::/\n",
	}
	facts, notes := scanOf(t, tree)
	for _, f := range facts {
		if f.Rule == "" || f.Evidence == "" || f.Source != task.SourceDetector || f.Confidence == "" {
			t.Errorf("%+v", f)
		}
		if strings.ContainsAny(f.Evidence+f.Subject, "\n\x1b\u202e") || !utf8.ValidString(f.Evidence+f.Subject) {
			t.Errorf("a name is shown raw: %q %q", f.Evidence, f.Subject)
		}
		if len(f.Subject) > 1000 {
			t.Errorf("a subject of %d bytes", len(f.Subject))
		}
	}
	for _, n := range notes {
		if strings.ContainsAny(n.Path+n.Text, "\n\x1b\u202e") {
			t.Errorf("a name is shown raw: %q", n)
		}
	}
	// One by one, so that no limit of a rule hides any.
	var got []string
	for name, text := range tree {
		one, _ := scanOf(t, files{name: text})
		got = append(got, renderFacts(one)...)
	}
	for _, want := range []string{
		"SVC-01 unknown a/compose.yaml", "SVC-01 unknown b/compose.yaml", "SVC-01 unknown c/compose.yaml", "SVC-01 unknown d/compose.yaml", "SVC-01 unknown e/compose.yaml", "SVC-01 unknown g/compose.yaml", "SVC-01 unknown docker-compose.yml",
		"INS-02 unknown a/package.json", "INS-02 unknown b/package.json", "INS-02 unknown c/package.json", "SCR-01 generated d/package.json:1 (a)", "SCR-01 generated e/package.json:1 (a)", "SCR-18 yes g/package.json:1 (test)",
		`SVC-03 db "name\nwith\x1b[31mline/.env":1 (DATABASE_URL at localhost)`, `SVC-03 cache "\xff\xfe/.env":1 (REDIS_URL at localhost)`, "HST-01 unknown .devcontainer/devcontainer.json",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(got, "\n"))
	}
}

// TestScanLimits: what is left out is said, and counts as unknown.
func TestScanLimits(t *testing.T) {
	tree := files{}
	for i := range maxFiles + 50 {
		tree[fmt.Sprintf("p%04d/package.json", i)] = `{"dependencies":{"a":"1"}}`
	}
	tree["compose.yaml"] = "services: {a: {image: postgres}}"
	facts, notes := scanOf(t, tree)
	if !hasFact(facts, task.Executes, task.Unknown) || len(notes) == 0 {
		t.Errorf("files were left out without a word: %v", notes)
	}
	n := 0
	for _, f := range facts {
		if f.Rule == "INS-02" {
			n++
		}
	}
	if n != maxPerRule {
		t.Errorf("%d facts of one rule and value, want %d", n, maxPerRule)
	}
	if !slices.ContainsFunc(notes, func(n Note) bool { return strings.Contains(n.Text, "INS-02 yes: ") }) {
		t.Errorf("the rest is not counted: %v", notes)
	}
}

// brokenTree fails as a repository does whose objects are gone.
type brokenTree struct{ each, read error }

func (b brokenTree) Each(_ context.Context, f func(string, uint32) bool) error {
	f(".env", 0o100644)
	return b.each
}

func (b brokenTree) Read(context.Context, []string, int64, func(string, int64, []byte)) error {
	return b.read
}

func TestScanErrors(t *testing.T) {
	boom := errors.New("boom")
	for _, tr := range []brokenTree{{each: boom}, {read: boom}} {
		if _, _, err := Scan(context.Background(), tr); !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
	}
	// A file that is listed and not there.
	facts, notes, err := Scan(context.Background(), brokenTree{})
	if err != nil || len(notes) != 1 || !hasFact(facts, task.MutableState, task.Unknown) {
		t.Errorf("got %v %v %v", facts, notes, err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(boom)
	if _, _, err := Scan(ctx, files{".env": "A=1"}); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

// FuzzFiles gives the same bytes to every reader of files.
func FuzzFiles(f *testing.F) {
	names := []string{"package.json", "composer.json", "compose.yaml", ".npmrc", "pnpm-workspace.yaml", "go.mod", "pyproject.toml", "pom.xml", "Makefile", "justfile", "Taskfile.yml", "Procfile", ".devcontainer.json", "Dockerfile",
		".env", "config/database.yml", ".github/workflows/a.yml", ".gitlab-ci.yml", ".circleci/config.yml", ".envrc", "mise.toml", ".gitattributes", ".gitmodules", ".mcp.json", ".claude/settings.json", ".codex/config.toml", ".vscode/tasks.json", "k8s/a.yaml", "firebase.json", "a.sql", ".husky/pre-commit"}
	for _, c := range detectorCases {
		for _, text := range c.tree {
			if len(text) < 10000 {
				f.Add(text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		tree := files{}
		for _, n := range names {
			tree[n] = text
		}
		facts, _, err := Scan(context.Background(), tree)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range facts {
			if !slices.Contains(x.What.Values(), x.Value) && x.Value != task.Unknown {
				t.Errorf("%+v", x)
			}
			if strings.ContainsAny(x.Subject+x.Evidence, "\n\x1b") {
				t.Errorf("a name is shown raw: %+v", x)
			}
		}
	})
}
