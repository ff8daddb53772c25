//go:build linux

package results

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// lister prints every file of a folder as JSON: path → kind and content, all in base64.
const lister = `
import os, sys, json, base64, stat
e = lambda b: base64.b64encode(b).decode()
out = {}
for d, dirs, names in os.walk(b'.'):
    if d == b'.' and b'.git' in dirs: dirs.remove(b'.git')
    for n in names + [x for x in dirs if os.path.islink(os.path.join(d, x))]:
        p = os.path.join(d, n)[2:]; s = os.lstat(p)
        if p == b'.git': continue
        if stat.S_ISLNK(s.st_mode): v = b'link ' + os.readlink(p)
        elif stat.S_ISREG(s.st_mode): v = (b'exec ' if s.st_mode & 0o100 else b'file ') + open(p, 'rb').read()
        else: v = b'special'
        out[e(p)] = e(v)
json.dump(out, sys.stdout)`

// inside lists a task's files as they are inside.
func (p *place) inside(id string) map[string]string {
	p.t.Helper()
	var coded map[string]string
	if err := json.Unmarshal([]byte(p.python(id, lister)), &coded); err != nil {
		p.t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range coded {
		kb, _ := base64.StdEncoding.DecodeString(k)
		vb, _ := base64.StdEncoding.DecodeString(v)
		out[string(kb)] = string(vb)
	}
	return out
}

// names are file names that tools lose.
var names = []string{"with space", "é", "new\nline", "a -> b", "ta\tb", "\"quoted\"", "back\\slash", "\xff\xfe", "-dash", "--output=x", ":(top)x", "*", "$(x)", "esc\x1b[2Jape", "bidi\u202ecod", "Twin", "twin",
	"build/x", "dist/x", "env/x", "target/x", "pic.svg", "doc.pdf", "CON", "aux.txt", "a:b", "trailing.", " lead", strings.Repeat("n", 255), strings.Repeat("d/", 60) + "deep", "cr\rname", "\u200bzero", "nfc\u00e9", "nfde\u0301"}

// exactBase is a repository of every kind of content.
func exactBase() map[string]string {
	m := map[string]string{
		"a.txt": "a\nb\nc\n", "gone.txt": "gone\n", "moved.txt": strings.Repeat("a line that stays\n", 30), "crlf.txt": "one\r\ntwo\r\n", "mixed.txt": "one\r\ntwo\nthree\r", "empty": "", "noeol": "no line end",
		"latin1.txt": "caf\xe9\n", "utf16.txt": "\xff\xfeh\x00i\x00\n\x00", "bin": "\x00\x01\x02\xff" + strings.Repeat("\x00", 5000), "tool.sh": "#!/bin/sh\n", "to-link": "soon a link\n", "to-dir": "soon a folder\n", "d/e/f": "f\n", "d/e/g": "g\n",
		"big.bin": strings.Repeat("0123456789abcdef", 1<<14), "assets/p.psd": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n",
	}
	for i, n := range names {
		if i%2 == 0 {
			m["n/"+n] = "before\n"
		}
	}
	return m
}

// exactEdit changes everything in exactBase in every way; it runs inside.
func exactEdit() string {
	list, _ := json.Marshal(mapped(names, func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }))
	return `
import os, json, base64, shutil
w = lambda p, b: (os.makedirs(os.path.dirname(p) or b'.', exist_ok=True), open(p, 'wb').write(b))
w(b'a.txt', b'a\nB\nc\nd\n'); os.remove('gone.txt'); os.rename('moved.txt', 'd/moved here.txt'); open('d/moved here.txt', 'ab').write(b'one more\n')
w(b'crlf.txt', b'one\r\n2\r\n'); w(b'mixed.txt', b'one\r\ntwo\r\nthree\r'); w(b'empty', b'now something'); w(b'noeol', b''); w(b'latin1.txt', b'caf\xe9s\n'); w(b'utf16.txt', b'\xff\xfeh\x00o\x00\n\x00')
b = bytearray(open('bin', 'rb').read()); b[7] = 9; w(b'bin', bytes(b)); os.chmod('tool.sh', 0o755); os.remove('to-link'); os.symlink('d/e/f', 'to-link'); os.remove('to-dir'); w(b'to-dir/in/it', b'x\n')
shutil.rmtree('d/e'); w(b'd/e', b'a file now\n'); w(b'new/empty', b''); w(b'new/bin', bytes(range(256)) * 9); w(b'new/x.sh', b'#!/bin/sh\n'); os.chmod('new/x.sh', 0o755); os.symlink('nowhere', 'new/dangling'); os.symlink('..', 'new/up')
b = bytearray(open('big.bin', 'rb').read()); b[100000] = 65; w(b'big.bin', bytes(b)); w(b'assets/p.psd', open('assets/p.psd', 'rb').read().replace(b'12345', b'54321')); w(b'assets/new.psd', open('assets/p.psd', 'rb').read())
for n in [base64.b64decode(x) for x in json.loads('''` + string(list) + `''')]:
    w(b'n/' + n, b'after\n')
w(b'ends\\with', b'x'); os.chmod('a.txt', 0o664)
`
}

func mapped(in []string, f func(string) string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = f(s)
	}
	return out
}

// TestExact brings one change home on every way there is, and compares each
// with what the task has, byte by byte: apply, plain git apply of diff and of
// export --patch, a branch, a bundle, a folder (A10, A11, A13).
func TestExact(t *testing.T) {
	each(t, exactBase(), func(p *place) {
		clone := func(name string) string {
			dir := p.Dir + "/" + name
			p.git("clone", "-q", "--no-hardlinks", p.repo, dir)
			return dir
		}
		head := p.git("rev-parse", "HEAD")
		id := p.open()
		p.python(id, exactEdit())
		// Part of it is committed inside, part staged, part neither.
		p.in(id, "git add -A n; git commit -qm 'names' ; git add new")
		want := p.inside(id)

		diffed := clone("diffed")
		patch := p.ok("diff", id)
		p.Write(p.t, p.Dir+"/p1", patch, 0o644)
		p.Git(p.t, diffed, "apply", "--binary", p.Dir+"/p1")
		harness.Same(p.t, "git apply of diff", harness.Files(p.t, diffed), want)

		patched := clone("patched")
		p.ok("export", "--patch", "-o", p.Dir+"/p2", id)
		p.Git(p.t, patched, "apply", "--binary", p.Dir+"/p2")
		harness.Same(p.t, "git apply of export --patch", harness.Files(p.t, patched), want)
		if out := p.ok("export", "--patch", id); out != read(p.t, p.Dir+"/p2") {
			p.t.Error("export --patch to standard output is another one than to a file")
		}

		p.ok("export", "--dir", p.Dir+"/folder", id)
		harness.Same(p.t, "export --dir", harness.Files(p.t, p.Dir+"/folder"), want)

		p.ok("export", "--bundle", "-o", p.Dir+"/b", id)
		p.git("bundle", "verify", "-q", p.Dir+"/b")
		bundled := clone("bundled")
		ref := strings.Fields(p.git("bundle", "list-heads", p.Dir+"/b"))
		p.Git(p.t, bundled, "fetch", "-q", p.Dir+"/b", ref[1])
		p.Git(p.t, bundled, "checkout", "-q", "FETCH_HEAD")
		harness.Same(p.t, "export --bundle", harness.Files(p.t, bundled), want)

		p.untouched("diff and export")
		p.ok("branch", id, "result/x")
		p.untouched("branch", `\.git/(logs/)?refs/heads/result(/x)?`)
		if n := p.git("rev-list", "--count", head+"..result/x"); n != "2" {
			p.t.Errorf("the branch has %s commits, want the task's own and one on top", n)
		}
		branched := clone("branched")
		p.Git(p.t, branched, "checkout", "-q", "result/x")
		harness.Same(p.t, "branch", harness.Files(p.t, branched), want)
		p.git("branch", "-qD", "result/x")

		p.remember()
		v, r := p.rep("apply", "--allow-risky", "--yes", id)
		if r.Exit != 0 || !v.Applied || len(v.Changes) == 0 {
			p.t.Fatal(r)
		}
		harness.Same(p.t, "apply", harness.Files(p.t, p.repo), want)
		if got := p.git("rev-parse", "HEAD"); got != head {
			p.t.Errorf("apply moved HEAD to %s", got)
		}
		p.outside("apply")
		p.unmarked("apply")
		p.git("fsck", "--strict", "--no-dangling")
		// Once more: nothing to do, and nothing is done.
		p.remember()
		v, r = p.rep("apply", "--allow-risky", "--yes", id)
		if r.Exit != 0 || len(v.Changes) != 0 || len(v.Conflicts) != 0 {
			p.t.Errorf("apply again: %v", r)
		}
		p.untouched("apply again")
		p.ok("close", id)
		p.git("fsck", "--strict", "--no-dangling")
	})
}

// outside checks that everything but the repository is as it was.
func (p *place) outside(what string) {
	p.t.Helper()
	p.untouched(what, ".*")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestExactNames compares the change set's names with plain git's, byte by byte.
func TestExactNames(t *testing.T) {
	user(t, exactBase(), func(p *place) {
		id := p.open()
		p.python(id, exactEdit())
		want := p.in(id, "git add -A; git diff --cached --name-status --no-renames -z HEAD")
		sorted := func(s string) []string {
			f := strings.Split(strings.TrimSuffix(s, "\x00"), "\x00")
			var out []string
			for i := 0; i+1 < len(f); i += 2 {
				if strings.HasPrefix(f[i], "R") && i+2 < len(f) {
					out = append(out, "D "+f[i+1], "A "+f[i+2])
					i++
					continue
				}
				out = append(out, f[i]+" "+f[i+1])
			}
			slices.Sort(out)
			return out
		}
		got := p.ok("diff", "--name-status", "-z", id)
		if g, w := sorted(got), sorted(want); !slices.Equal(g, w) {
			p.t.Errorf("the change set is\n%q\nwant\n%q", g, w)
		}
		// The reports name every file too, exactly.
		v, r := p.rep("apply", "--dry-run", id)
		if r.Exit != 0 || v.Schema != "caisson.apply/1" || !v.DryRun || v.Applied {
			p.t.Errorf("apply --dry-run: %v", r)
		}
		reported := map[string]bool{}
		for _, c := range v.Changes {
			name := c.Path
			if c.Path_base64 != "" {
				b, _ := base64.StdEncoding.DecodeString(c.Path_base64)
				name = string(b)
			}
			reported[name] = true
		}
		for _, w := range sorted(want) {
			if !reported[w[2:]] {
				p.t.Errorf("apply --dry-run does not name %q; it has %d: %.500q", w[2:], len(reported), slices.Sorted(maps.Keys(reported)))
				break
			}
		}
		p.untouched("looking")
		for doc, args := range map[string][]string{"caisson.diff/1": {"diff", id}, "caisson.branch/1": {"branch", id}, "caisson.export/1": {"export", "--dir", p.Dir + "/d", id}} {
			if v, r := p.rep(args...); r.Exit != 0 || v.Schema != doc || v.ID != id {
				p.t.Errorf("%q: %v", args, r)
			}
		}
		if v, r := p.rep("export", "--patch", "-o", p.Dir+"/p", id); r.Exit != 0 || v.Form != "patch" || v.To != p.Dir+"/p" {
			p.t.Error(r)
		}
		if b := p.git("rev-parse", "caisson/"+id+"^{tree}"); b != p.in(id, "git add -A; git write-tree")[:40] {
			p.t.Errorf("the default branch has the tree %s", b)
		}

	})
}
