//go:build linux

package source

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"
)

func lookOf(t testing.TB, name string) riskLook {
	t.Helper()
	i := riskNameIndex().find(foldPath(name), -1)
	if i < 0 || riskRules[i].look == nil {
		t.Fatalf("%s has no rule that looks inside", name)
	}
	return riskRules[i].look
}

func TestRiskyContents(t *testing.T) {
	const none = "\x00"
	for _, c := range []struct {
		file, before, after string
		want                string // part of the sentence; empty: does not count
	}{
		{"package.json", `{"name":"a","version":"1"}`, `{"version":"2", "name":"a"}`, ""},
		{"package.json", `{"dependencies":{"a":"^1"}}`, `{"dependencies":{"a":"^2"}}`, ""},
		{"package.json", `{"dependencies":{"a":"^1"}}`, `{}`, ""},
		{"package.json", `{"scripts":{"a":"b"}}`, "{\n  \"scripts\": {\n \"a\": \"b\"}}", ""},
		{"package.json", `{"scripts":{"a":"b"}}`, `{"scripts":{"a":"c"}}`, "scripts"},
		{"package.json", `{}`, `{"bin":"x.js"}`, "bin"},
		{"package.json", `{}`, `{"unheardOf":1}`, "unheardOf"},
		{"package.json", `{"dependencies":{"a":"^1"}}`, `{"dependencies":{"a":"^1","b":"1"}}`, "new: b"},
		{"package.json", `{"dependencies":{"a":"^1"}}`, `{"dependencies":{"a":"git+ssh://x/y"}}`, "not from the registry"},
		{"package.json", `{"dependencies":{"a":"^1"}}`, `{"dependencies":{"a":"npm:b@1"}}`, "not from the registry"},
		{"package.json", `{}`, `{"dependencies":["a"]}`, "unreadable"},
		{"package.json", `{}`, `{"scripts":{},"scripts":{"postinstall":"x"}}`, "twice"},
		{"package.json", `{}`, `{"a":{"b":1,"b":2}}`, "twice"},
		{"package.json", `{}`, `{} {}`, "parsed"},
		{"package.json", `{}`, `[]`, "parsed"},
		{"package.json", `{}`, `{"a":1,}`, "parsed"},
		{"package.json", `{}`, "// x\n{}", "parsed"},
		{"package.json", `{}`, ``, "parsed"},
		{"package.json", `{}`, strings.Repeat("[", 200), "parsed"},
		{"package.json", `broken`, `{}`, "before"},
		{"package.json", none, `{"name":"x","main":"x.js"}`, ""},
		{"package.json", none, `{"scripts":{"install":"x"}}`, "scripts"},

		{"go.mod", "module m\ngo 1.22\nrequire a v1\n", "module m\ngo 1.23\nrequire (\n\ta v2\n\tb v1 // indirect\n)\n", ""},
		{"go.mod", "module m\n", "module m\nreplace a => ../b\n", "replace"},
		{"go.mod", "module m\n", "module m\nreplace (\n a => b v1\n)\n", "replace"},
		{"go.mod", "module m\n", "module m\nreplace(\n a => b v1\n)\n", "replace"},
		{"go.mod", "module m\n", "module m\nreplace a=>../b\n", "replace"},
		{"go.mod", "module m\n", "module m\ntoolchain go9\n", "toolchain"},
		{"go.mod", "module m\n", "module m\ntool x/y\n", "tool"},
		{"go.mod", "replace a => b\n", "// replace a => b\n", "replace"},
		{"go.mod", "tool a\ntool b\n", "tool (\n b\n a\n)\n", ""},

		{"pyproject.toml", "[project]\nversion = \"1\"\n", "[project]\nversion = \"2\"\n", ""},
		{"pyproject.toml", "[tool.black]\nline-length = 1\n", "# c\n[tool.black]\nline-length = 2\nexclude = '''\n[build-system]\n'''\n", ""},
		{"pyproject.toml", "", "[build-system]\nrequires = [\"x\"]\n", "build-system"},
		{"pyproject.toml", "", "build-system.requires = [\"x\"]\n", "build-system"},
		{"pyproject.toml", "", "[project]\nname = \"a\"\nscripts = { a = \"b\" }\n", "project.scripts"},
		{"pyproject.toml", "", "[project]\nname = \"\"\"\nx\"\"\"\nscripts.a = \"b\"\n", "project.scripts"},
		{"pyproject.toml", "", "[project.entry-points.pytest11]\na = \"b\"\n", "project.entry-points"},
		{"pyproject.toml", "", "[project]\ndependencies = [\n  \"x\",\n]\n", "project.dependencies"},
		{"pyproject.toml", "", "[\"build-\\u0073ystem\"]\n", "not examined"},
		{"pyproject.toml", "", "[project]\nname = \"a\n", "not examined"},
		{"pyproject.toml", "", "[tool.pytest.ini_options]\naddopts = \"-p x\"\n", "tool.pytest"},
		{"pyproject.toml", "[build-system]\nrequires = [\"x\"] # a\n", "[build-system]\n\nrequires = [\"x\"] # b\n", ""},

		{"package-lock.json", `"resolved": "https://a.example/x"`, `"resolved": "https://a.example/y"`, ""},
		{"package-lock.json", `"resolved": "https://a.example/x"`, `"resolved": "https://b.example/x"`, "b.example"},
		{"package-lock.json", `"https://a.example/x"`, `"https://u:p@evil.example:99/x", "https://a.example/x"`, "evil.example"},
		{"yarn.lock", "resolved \"https://a.example/x\"\n", "resolved \"git+ssh://git@c.example/x\"\n", "c.example"},
		{"package-lock.json", `{}`, `{"hasInstallScript": true}`, "runs code"},
		{"package-lock.json", none, `"https://a.example/x"`, "it is new"},

		{"requirements.txt", "a==1\n", "a==2 # -e x\nb>=3\n", ""},
		{"requirements.txt", "a==1\n", "a==1\n--index-url https://x\n", "another address"},
		{"requirements.txt", "a==1\n", "a @ https://x\n", "another address"},
		{"requirements.txt", "a==1\n", "-e .\n", "another address"},
		{"requirements.txt", "a==1\n", "a==1 --hash=sha256:aa\n", ""},
		{"requirements-dev.txt", "a==1 \\\n  --hash=sha256:aa\n", "a==2 \\\n  --hash=sha256:bb\n", ""},
		{"requirements.txt", "a==1\n", "a==1 --hash=sha256:aa --config-settings=x\n", "another address"},
		{"requirements.txt", "a==1\n", "a==1 --global-option=x\n", "another address"},

		{"tasks.py", none, "from celery import shared_task\n", ""},
		{"tasks.py", none, "from invoke import task\n", "task runner"},

		{".gitattributes", "", "*.c filter=x -diff\n", "diff, filter"},
		{".gitattributes", "*.c text\n", "*.c text\n*.d working-tree-encoding=UTF-16\n", "working-tree-encoding"},
		{".gitattributes", "*.c merge=x\n", "", "merge"},
		{".gitattributes", "", "\"a b\" filter=x\n", "filter"},
		{".gitattributes", "a text\nb text\n", "b text\na text\n", "order"},
	} {
		var before []byte
		if c.before != none {
			before = []byte(c.before)
		}
		got := lookOf(t, c.file)(before, []byte(c.after))
		if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%s\n%s\n--- to\n%s\n--- says %q, want %q", c.file, c.before, c.after, got, c.want)
		}
	}
}

// FuzzRiskyContents: a file that a task wrote never breaks what looks at it, an
// unchanged one never counts but for the order in attributes, and no sentence
// can steer a terminal.
func FuzzRiskyContents(f *testing.F) {
	files := []string{"package.json", "go.mod", "pyproject.toml", "package-lock.json", "requirements.txt", ".gitattributes"}
	for i := range files {
		f.Add(i, []byte(`{"scripts":{"a":"b"}}`), []byte("[a]\nb = \"\"\"\n"))
		f.Add(i, []byte("replace (\n"), []byte("*.c filter=\x1b[2J\n\"a\\\" b\" x"))
		f.Add(i, []byte("a \\\n --hash=x"), []byte("x://\u202e@y"))
	}
	f.Fuzz(func(t *testing.T, which int, before, after []byte) {
		name := files[(which%len(files)+len(files))%len(files)]
		look := lookOf(t, name)
		for _, why := range []string{look(before, after), look(nil, after), look(after, before)} {
			if !utf8.ValidString(why) || quote(why) != why && why != "" {
				t.Errorf("%s: the sentence is not plain text: %q", name, why)
			}
		}
		if why := look(after, after); why != "" && name != ".gitattributes" && !strings.Contains(why, "parse") && !strings.Contains(why, "examined") && !strings.Contains(why, "unreadable") {
			t.Errorf("%s: unchanged, and yet: %s", name, why)
		}
	})
}

// FuzzRiskyNames: folding ends, is done after one time, and never hides a name
// that is risky as it stands.
func FuzzRiskyNames(f *testing.F) {
	for _, s := range []string{"a/b", ".envrc", "A\u030a/\u212b", "a:b", "...", " . ", "\xff\xfe", "ﬁx/ﬅ", "\u200b", "::$DATA", "İ"} {
		f.Add(s, "dir/a")
	}
	f.Fuzz(func(t *testing.T, p, target string) {
		for _, part := range strings.Split(p, "/") {
			once := foldName(part)
			if again := foldName(once); again != once && utf8.ValidString(part) && !strings.ContainsAny(once, ":. ") {
				t.Errorf("%q folds to %q, then to %q", part, once, again)
			}
			deceives(part)
		}
		if riskNameIndex().find(strings.Split(p, "/"), -1) >= 0 && p == strings.ToLower(p) && asciiPlain(p) && !strings.ContainsAny(p, ":") {
			if riskNameIndex().find(foldPath(p), -1) < 0 && !strings.HasSuffix(p, ".") && !strings.HasSuffix(p, " ") {
				t.Errorf("%q is hidden by folding", p)
			}
		}
		tr := &riskTree{links: map[string]string{"dir": "oid"}}
		if why := tr.judgeLink(p, target, true); why == "" && (strings.HasPrefix(target, "/") || target == "") {
			t.Errorf("a link %q to %q does not count", p, target)
		}
	})
}

func TestLiteralPaths(t *testing.T) {
	l := basic(t)
	l.write("a*b/x", "1\n")
	l.write("axb/x", "1\n")
	l.write(":(top)/x", "1\n")
	l.commit("three")
	o := l.open(Options{})
	for _, p := range []string{"a*b/x", "axb/x", ":(top)/x", "README"} {
		o.file(p, "2\n")
	}
	ref := o.r.Ref
	ref.Target = "/inside"
	for _, c := range []struct {
		typed []string
		want  string
	}{
		{nil, ":(top)/x README a*b/x axb/x"},
		{[]string{"."}, ":(top)/x README a*b/x axb/x"},
		{[]string{"/inside"}, ":(top)/x README a*b/x axb/x"},
		{[]string{"a*b"}, "a*b/x"},
		{[]string{"a*b/"}, "a*b/x"},
		{[]string{"./axb/../README"}, "README"},
		{[]string{":(top)"}, ":(top)/x"},
		{[]string{":(exclude)README"}, ""},
		{[]string{"/inside/README", l.repo + "/axb"}, "README axb/x"},
		{[]string{"READ"}, ""},
	} {
		paths, err := LiteralPaths(ref, c.typed)
		if err != nil {
			t.Errorf("%q: %v", c.typed, err)
			continue
		}
		r, err := Look(context.Background(), o.ws)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err = r.Diff(context.Background(), &out, DiffOptions{NameStatus: true, NUL: true, Paths: paths})
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		var got, within []string
		for i, f := range strings.Split(out.String(), "\x00") {
			if i%2 == 1 {
				got = append(got, f)
			}
		}
		for _, ch := range r.Changes {
			if Within(paths, string(ch.Path)) {
				within = append(within, string(ch.Path))
			}
		}
		if strings.Join(got, " ") != c.want || strings.Join(within, " ") != c.want {
			t.Errorf("%q: git shows %q, Within says %q, want %q", c.typed, got, within, c.want)
		}
	}
	for _, bad := range []string{"", "..", "../x", "a/../../x", "/etc", "/inside2", "/inside/../x", "a\x00b"} {
		if got, err := LiteralPaths(ref, []string{bad}); err == nil {
			t.Errorf("%q is taken as %q", bad, got)
		}
	}
}
