//go:build linux

package source

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
)

// FuzzHead resolves HEAD through a loose and a packed ref that a task wrote.
func FuzzHead(f *testing.F) {
	oid := strings.Repeat("a", 40)
	f.Add([]byte("ref: refs/heads/main\n"), []byte(oid+"\n"), []byte("# pack-refs with: peeled\n"+oid+" refs/heads/b\n"))
	f.Add([]byte("ref: refs/heads/main\n"), []byte("ref: refs/heads/main\n"), []byte(""))
	f.Add([]byte("ref: refs/heads/b\n"), []byte(""), []byte(oid+" refs/heads/b\n^"+oid+"\n"))
	f.Add([]byte("ref: refs/heads/main/below\n"), []byte("x"), []byte("\x00"))
	f.Add([]byte(oid), []byte("ref: ../../HEAD\n"), []byte(oid+" refs/../x\n"))
	dir := f.TempDir()
	if err := os.MkdirAll(dir+"/refs/heads", 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, head, loose, packed []byte) {
		for n, b := range map[string][]byte{"HEAD": head, "refs/heads/main": loose, "packed-refs": packed} {
			if err := os.WriteFile(dir+"/"+n, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, err := tree.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if oid, err := resolveHead(r); err == nil && oid != "" && !git.IsOID(oid) {
			t.Errorf("HEAD is %q", oid)
		}
	})
}

// FuzzTreeList reads what git lists of a tree whose names a task chose.
func FuzzTreeList(f *testing.F) {
	oid := strings.Repeat("a", 40)
	f.Add([]byte("100644 blob " + oid + "\ta b\x00120000 blob " + oid + "\tl\x00160000 commit " + oid + "\td/m\x00"))
	f.Add([]byte("100644 blob " + oid + "\t../x\x00"))
	f.Add([]byte("100644 blob " + oid + "\ta\x00100644 blob " + oid + "\ta/b\x00"))
	f.Add([]byte("040000 tree " + oid + "\t.git\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := parseTree(b)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, e := range entries {
			if seen[e.path] || strings.ContainsRune(e.path, 0) || strings.HasPrefix(e.path, "/") {
				t.Errorf("accepted %q", e.path)
			}
			seen[e.path] = true
			for _, part := range strings.Split(e.path, "/") {
				if part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git") {
					t.Errorf("accepted %q", e.path)
				}
			}
		}
		_, _ = foldClash(entries)
	})
}

// FuzzNames holds shown names and branch names to what they promise.
func FuzzNames(f *testing.F) {
	for _, n := range append([]string{"feature/x", "HEAD", "-x", "refs/heads/x", "a..b", "日本", "x@{1}", "\u202egnp.exe", "\"q\""}, strangeNames...) {
		f.Add(n, "refs/heads/x")
	}
	f.Fuzz(func(t *testing.T, name, other string) {
		q := quote(name)
		if !utf8.ValidString(q) || strings.ContainsFunc(q, func(r rune) bool {
			return r != ' ' && !unicode.IsPrint(r) && !unicode.IsGraphic(r) || unicode.IsControl(r)
		}) {
			t.Errorf("%q is shown as %q", name, q)
		}
		if strings.HasPrefix(q, `"`) {
			if back, err := strconv.Unquote(q); err != nil || back != name {
				t.Errorf("%q is shown as %s, which reads back as %q", name, q, back)
			}
		} else if q != name {
			t.Errorf("%q is shown as %q", name, q)
		}
		ref, err := branchRef(name)
		if err != nil {
			return
		}
		if !git.ValidRef(ref) || strings.HasPrefix(name, "-") || strings.EqualFold(name, "head") || git.IsOID(name) || strings.ContainsAny(name, " \n\x00\x7f") {
			t.Errorf("accepted %q", name)
		}
		if refsClash(ref, other) != refsClash(other, ref) || !refsClash(ref, ref+"/x") || !refsClash(ref, strings.ToUpper(ref)) {
			t.Errorf("clashes of %q with %q", ref, other)
		}
	})
}
