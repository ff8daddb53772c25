package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

func TestAgents(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		who  string // its name
		want string // what it raises; "!" and a text: an error
	}{
		"plain":             {"You review code.\n", "a", ""},
		"no demand":         {"---\nname: reviewer\ndescription: Use this: always\n---\ntext caisson: x\n", "reviewer", ""},
		"a demand":          {"---\nname: reviewer\ndescription: Use this: always [\ncaisson:\n  raise: {NET: 2}\nmodel: opus\n---\n", "reviewer", "NET 2 p/.claude/agents/a.md:5"},
		"on one line":       {"---\ncaisson: {raise: {FS: 3}, version: 1}\n---\n", "a", "FS 3 p/.claude/agents/a.md:2"},
		"windows lines":     {"---\r\ncaisson:\r\n  raise:\r\n    FS: 3\r\n---\r\n", "a", "FS 3 p/.claude/agents/a.md:4"},
		"a comment between": {"---\ncaisson:\n  net: none\n# more\n\n  raise: {FS: 1}\n---\n", "a", "FS 1 p/.claude/agents/a.md:6"},
		"unknown key":       {"---\nname: x\ncaisson:\n  raize: {FS: 1}\n---\n", "x", "!p/.claude/agents/a.md:4: there is no key \"raize\" in caisson; did you mean raise?"},
		"wrong level":       {"---\ncaisson: {raise: {FS: 9}}\n---\n", "a", "!levels of FS go from 0 to 4"},
		"another version":   {"---\ncaisson: {version: 2}\n---\n", "a", "!version 2 is not one"},
		"nothing below":     {"---\ncaisson:\n---\n", "a", "!caisson has no value"},
		"a text":            {"---\ncaisson: strict\n---\n", "a", "!caisson is the text \"strict\", not a mapping"},
		"capitals":          {"---\nCaisson: {raise: {FS: 1}}\n---\n", "a", "!the key is written caisson:"},
		"quoted":            {"---\n\"caisson\": {raise: {FS: 1}}\n---\n", "a", "!the key is written caisson:"},
		"below another":     {"---\nmetadata:\n  caisson: {raise: {FS: 1}}\n---\n", "a", "!the key is written caisson:"},
		"twice":             {"---\ncaisson: {raise: {FS: 1}}\ncaisson: {raise: {FS: 0}}\n---\n", "a", "!stands there twice"},
		"an anchor":         {"---\ncaisson: &a {raise: {FS: 1}}\n---\n", "a", "!the anchor"},
		"without an end":    {"---\ncaisson: {raise: {FS: 1}}\n", "a", "!does not end"},
		"with a mark":       {"\xef\xbb\xbf---\ncaisson: {raise: {FS: 1}}\n---\n", "a", "FS 1 p/.claude/agents/a.md:2"},
		"misspelt":          {"---\nname: x\ncaissson: {raise: {FS: 1}}\n---\n", "x", "!p/.claude/agents/a.md:3: there is no key \"caissson\""},
		"another letter":    {"---\nname: x\n\u0441aisson: {raise: {FS: 1}}\n---\n", "x", "!a.md:3: there is no key"},
		"escaped":           {"---\nname: x\n\"cais\\x73on\": {raise: {FS: 1}}\n---\n", "x", "!a.md:3: the key caisson is not written plainly"},
		"escaped, no YAML":  {"---\nname: x\nd: Use this: [\n\"cais\\x73on\": {raise: {FS: 1}}\n---\n", "x", "!a.md:4: the front matter is no YAML"},
		"misspelt, no YAML": {"---\nname: x\nd: Use this: [\ncaisso: {raise: {FS: 1}}\n---\n", "x", "!a.md:4: the front matter is no YAML"},
		"a question":        {"---\nname: x\n? caisson\n: {raise: {FS: 1}}\n---\n", "x", "!a.md:3: the key caisson is not written plainly"},
		"in flow":           {"---\n{name: x, caisson: {raise: {FS: 1}}}\n---\n", "x", "!"},
		"in flow, near":     {"---\n{name: x, caison: {raise: {FS: 1}}}\n---\n", "x", "!a.md:2: there is no key"},
		"a tag":             {"---\n!!str caisson: {raise: {FS: 1}}\nname: x\n---\n", "x", "!"},
		"an alias":          {"---\nname: x\nd: &k caisson\n*k : {raise: {FS: 1}}\n---\n", "x", "!"},
		"merged":            {"---\nname: x\nd: &m {caisson: {raise: {FS: 1}}}\n<<: *m\n---\n", "x", "!a.md:4"},
		"binary":            {"---\nname: x\n!!binary Y2Fpc3Nvbg==: {raise: {FS: 1}}\n---\n", "x", "!a.md:3"},
		"inside a text":     {"---\nname: x\nd: \"a\n\ncaisson: {raise: {FS: 1}}\n\n\"\n---\n", "x", "!"},
		"old line ends":     {"---\rname: x\rcaisson: {raise: {FS: 1}}\r---\rtext\r", "x", "!a.md:1"},
		"one old line end":  {"---\nname: x\rcaisson: {raise: {FS: 1}}\n---\n", "x", "!"},
		"leading line":      {"\n---\nname: x\ncaisson: {raise: {FS: 1}}\n---\n", "x", "!a.md:1: the front matter does not begin with a plain ---"},
		"leading, none":     {"\n---\nname: x\nmodel: y\n---\n", "x", ""},
		"begins with more":  {"--- {name: x, caisson: {raise: {FS: 1}}}\n---\n", "x", "!a.md:1"},
		"TOML":              {"+++\nname = \"x\"\n[caisson]\n+++\n", "a", "!a.md:1"},
		"only mentioned":    {"---\nname: x\ndescription: runs caisson and reads caisson.yaml\ntools: [caisson]\n# caisson: x\n---\n", "x", ""},
		"other keys":        {"---\nname: x\nreason: a\nseason: b\nmission: c\n---\n", "x", ""},
		"not YAML":          {"---\ncaisson: {raise: [\n---\n", "a", "!not YAML"},
		"a link":            {source.Unread + "120000 abc", "a", "!it is a link, no file, or longer than 1024 KiB"},
		"too long":          {source.Unread + "abc", "a", "!it is a link, no file, or longer than 1024 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			as := Agents("p/", map[string][]byte{".claude/agents/a.md": []byte(c.text), ".claude/agents/x.txt": []byte("caisson: x"), "other/b.md": []byte("x")})
			if len(as) != 1 || as[0].Name != c.who {
				t.Fatalf("%+v", as)
			}
			if want, bad := strings.CutPrefix(c.want, "!"); bad {
				if as[0].Err == nil || task.CodeOf(as[0].Err) != task.CodePolicy || !strings.Contains(as[0].Err.Error(), want) || as[0].Policy != nil {
					t.Errorf("%v, want %s", as[0].Err, want)
				}
				return
			}
			if as[0].Err != nil || (as[0].Policy == nil) != (c.want == "") {
				t.Fatalf("%+v", as[0])
			}
			if as[0].Policy == nil {
				return
			}
			r, err := policy.Merge([]policy.Sourced{*as[0].Policy, policy.Shipped()}, policy.Context{Home: "/home/me"})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.Raised[0].Axis) + " " + string(rune('0'+r.Raised[0].Level)) + " " + r.Raised[0].From.Where; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	// It may demand and ask, and loosens nothing.
	as := Agents("", map[string][]byte{".qwen/agents/a.md": []byte("---\ncaisson: {floors: {FS: 0}}\n---\n")})
	if _, err := policy.Merge([]policy.Sourced{*as[0].Policy}, policy.Context{Home: "/h"}); task.CodeOf(err) != task.CodePolicy || !strings.Contains(err.Error(), "agent's definition") {
		t.Errorf("%v", err)
	}
}

// TestHomeAgents: one that is a link counts, and one that cannot be read takes
// its name and no other.
func TestHomeAgents(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".claude", "agents")
	demand := "---\ncaisson: {raise: {NET: 2}}\n---\n"
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(home, "mine.md"), []byte(demand), 0o644),
		os.Symlink("../../mine.md", filepath.Join(dir, "linked.md")), os.Symlink("nothing", filepath.Join(dir, "gone.md")),
		os.WriteFile(filepath.Join(dir, "plain.md"), []byte(demand), 0o644), os.WriteFile(filepath.Join(dir, "quiet.md"), []byte("text\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "long.md"), []byte(demand+strings.Repeat("x", MaxFile)), 0o644),
		os.WriteFile(filepath.Join(dir, "open.md"), []byte(demand), 0o644), os.Chmod(filepath.Join(dir, "open.md"), 0o666)); err != nil {
		t.Fatal(err)
	}
	l := &Loader{Home: home, Places: Places{UID: os.Getuid()}}
	got := map[string]string{}
	for _, a := range l.homeAgents() {
		switch {
		case a.Err != nil && task.CodeOf(a.Err) == task.CodePolicy && task.HintOf(a.Err) != "":
			got[a.Name] = "unusable"
		case a.Policy != nil:
			got[a.Name] = "demands"
		default:
			got[a.Name] = "nothing"
		}
	}
	want := map[string]string{"linked": "demands", "gone": "unusable", "plain": "demands", "quiet": "nothing", "long": "unusable", "open": "unusable"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSettings(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"none":            {".claude/settings.json", `{"permissions": {"allow": ["caisson"]}}`, ""},
		"a demand":        {".claude/settings.json", "{\n  \"hooks\": {},\n  \"caisson\": {\"raise\": {\"NET\": 2}}\n}", "NET 2"},
		"with comments":   {".claude/settings.json", "{\n // caisson\n \"caisson\": {}}", "!cannot be read"},
		"comments alone":  {".gemini/settings.json", "{\n // mine\n \"a\": 1}", ""},
		"twice":           {".gemini/settings.json", `{"caisson": {"raise": {"NET": 2}}, "caisson": {}}`, "!stands there twice"},
		"another case":    {".gemini/settings.json", `{"CAISSON": {}}`, "!written caisson"},
		"in disguise":     {".gemini/settings.json", `{"\u0063aisson": {"raise": {"NET": 2}}}`, "NET 2"},
		"cut":             {".qwen/settings.json", `{"caisson": {}`, "!cannot be read"},
		"unknown key":     {".qwen/settings.json", "{\n\n\"caisson\": {\"x\": 1}}", "!.qwen/settings.json:3: there is no key"},
		"duplicate below": {".qwen/settings.json", `{"caisson": {"net": "none", "net": "open"}}`, "!a second time"},
		"toml":            {".codex/config.toml", "model = \"x\"\n[caisson]\nnet = \"none\"\n", "!.codex/config.toml:2"},
		"a link":          {".claude/settings.json", source.Unread + "120000 abc", ""},
		"a link, lying":   {".claude/settings.json", source.Unread + "link to x: 00", ""},
		"too long":        {".claude/settings.json", source.Unread + "abc", "!longer than 1024 KiB"},
		"a pipe":          {".qwen/settings.json", source.Unread + "prw-r--r--", "!is no file"},
		"toml without":    {".codex/config.toml", "model = \"x\" # caisson\n", ""},
	} {
		docs, err := Settings("", map[string][]byte{c.file: []byte(c.text)})
		if want, bad := strings.CutPrefix(c.want, "!"); bad {
			if task.CodeOf(err) != task.CodePolicy || task.HintOf(err) == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
			continue
		}
		if err != nil || (len(docs) == 1) != (c.want != "") || len(docs) == 1 && docs[0].Document.Raise[task.NET] != 2 {
			t.Errorf("%s: %v, %v", name, docs, err)
		}
	}
}

func FuzzAgents(f *testing.F) {
	f.Add([]byte("---\nname: x\ncaisson:\n  raise: {NET: 2}\n---\n"))
	f.Add([]byte("---\ncaisson: {raise: [\n---\n"))
	f.Add([]byte("{\"caisson\": {\"net\": \"none\"}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, a := range Agents("", map[string][]byte{".claude/agents/a.md": data}) {
			if a.Err != nil && (a.Policy != nil || task.CodeOf(a.Err) != task.CodePolicy) {
				t.Fatalf("%+v", a)
			}
		}
		docs, err := Settings("", map[string][]byte{".claude/settings.json": data, ".codex/config.toml": data})
		if err != nil && task.CodeOf(err) != task.CodePolicy {
			t.Fatal(err)
		}
		for _, d := range docs {
			if d.Document.Version != policy.Version {
				t.Fatalf("%+v", d)
			}
		}
	})
}
