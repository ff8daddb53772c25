//go:build linux

package exact

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/caisson-dev/caisson/test/harness"
)

// conversions are lines of a .gitattributes, each for a folder of its own.
var conversions = []string{
	"", "* text", "* text=auto", "* text=auto eol=crlf", "* text eol=crlf", "* text eol=lf", "* -text", "* binary", "* -crlf", "* crlf=input", "* eol=crlf",
	"* ident", "* ident text eol=crlf", "*16.txt text working-tree-encoding=UTF-16", "le16.txt text working-tree-encoding=UTF-16LE-BOM eol=crlf", "latin.txt working-tree-encoding=ISO-8859-1",
	"* export-subst", "* export-ignore", "* merge=union", "* merge=binary", "* diff=python whitespace=trailing-space", "* filter=missing", "* filter=lfs diff=lfs merge=lfs -text",
	"[attr]mine text eol=crlf\n* mine", "*.txt !text\n* text=auto eol=crlf", "* text=auto\n*.sh eol=lf\n*.txt eol=crlf", "* linguist-generated -delta", "\"q u*\" eol=crlf\n*.no text eol=crlf",
}

// contents are what stands in each of these folders.
func contents() map[string]string {
	utf := func(order byte, s string) string {
		var b strings.Builder
		if order == 'b' {
			b.WriteString("\xfe\xff")
		} else {
			b.WriteString("\xff\xfe")
		}
		for _, u := range utf16.Encode([]rune(s)) {
			if order == 'b' {
				b.WriteString(string([]byte{byte(u >> 8), byte(u)}))
			} else {
				b.WriteString(string([]byte{byte(u), byte(u >> 8)}))
			}
		}
		return b.String()
	}
	return map[string]string{
		"lf.txt": "one\ntwo\nthree\n", "crlf.txt": "one\r\ntwo\r\nthree\r\n", "mixed.txt": "one\r\ntwo\nthree\r\n", "cr.txt": "one\rtwo\r", "bare.txt": "one\r\ntwo\rthree\n", "nul.txt": "one\r\n\x00two\n",
		"noeol.txt": "one\ntwo", "empty.txt": "", "id.txt": "$Id$\nx\n$Id: 1234 $\n$Id: two words $\n$Format:%H$\n", "run.sh": "#!/bin/sh\necho hi\n", "q u": "quoted\n", "plain.no": "no\n",
		"be16.txt": utf('b', "größe\r\nzwei\n"), "le16.txt": utf('l', "größe\nzwei\n"), "latin.txt": "gr\xf6\xdfe\n", "utf8.txt": "größe\n日本\n", "bom.txt": "\xef\xbb\xbfx\r\n", "ctrlz.txt": "x\r\n\x1a",
	}
}

// changeAll is what is done to every file, inside and in the plain clone alike.
const changeAll = `export LC_ALL=C; for d in c*; do ( cd "$d"
for f in *.txt *.sh *.no 'q u'; do [ -e "$f" ] || continue; case $f in lf.txt|nul.txt|id.txt) ;; le16.txt) printf 'm\000\n\000' >>$f;; be16.txt) printf '\000m\000\n' >>$f;; *) printf 'more\n' >>"$f";; esac; done
[ ! -e lf.txt ] || sed -i 's/two/2\r/' lf.txt; [ ! -e nul.txt ] || sed -i 's/two/2/' nul.txt; [ ! -e id.txt ] || sed -i 's/^x/y/' id.txt; rm -f cr.txt; [ ! -e run.sh ] || mv run.sh moved.sh
printf 'new\r\nfile\r\n' >newcrlf.txt; printf 'new\nfile\n' >newlf.txt; printf 'new\r\nmixed\n$Id$\n' >newmixed.txt; printf 'tool\r\n' >new.sh; chmod +x new.sh ); done`

// TestAttributes has every kind of conversion, under every setting of the user
// that decides about line ends: what is inside is what a plain checkout is, and
// what comes out is what plain git makes of the same edits.
func TestAttributes(t *testing.T) {
	for i, config := range []string{"", "[core]\n\tautocrlf = true\n", "[core]\n\tautocrlf = input\n", "[core]\n\teol = crlf\n\tsafecrlf = true\n"} {
		for _, late := range []bool{false, true} {
			if !long() && (late != (i == 2) || i == 0) {
				continue // 1 and 3, and 2 late, in every run
			}
			t.Run(fmt.Sprintf("config %d late %t", i, late), func(t *testing.T) {
				one(t, config, func(w *world) { w.attributes(late) })
			})
		}
	}
}

// attributes makes the repository. late: the files were committed as they are
// before there was an attribute, so their objects are not what git would record.
func (w *world) attributes(late bool) {
	t := w.t
	w.Mkdir(t, w.repo)
	w.git("init", "-q", "-b", "main")
	put := func(name, text string) { w.Write(t, filepath.Join(w.repo, name), text, 0o644) }
	for i, attr := range conversions {
		for name, text := range contents() {
			put(fmt.Sprintf("c%02d/%s", i, name), text)
		}
		if !late && attr != "" {
			put(fmt.Sprintf("c%02d/.gitattributes", i), attr+"\n")
		}
	}
	add := "git -c core.safecrlf=false add -A; git commit -qm files"
	if late {
		add = "git -c core.autocrlf=false -c core.safecrlf=false add -A; git commit -qm files"
	}
	w.sh(w.repo, add)
	if late {
		for i, attr := range conversions {
			if attr != "" && !strings.Contains(attr, "working-tree-encoding") {
				put(fmt.Sprintf("c%02d/.gitattributes", i), attr+"\n")
			}
		}
		w.sh(w.repo, "git -c core.safecrlf=false add c*/.gitattributes; git commit -qm attributes")
	}
	// As a user has it who cloned it: every file as a checkout makes it.
	w.sh(w.repo, "rm -rf c*; git -c core.safecrlf=false checkout -q -f HEAD -- .; sleep 0.1; git status >/dev/null")
	w.clone(w.plain, "")
	base := w.git("rev-parse", "HEAD")
	id := w.open()
	harness.Same(t, "inside against a plain clone", w.inside(id), harness.Files(t, w.plain))
	w.in(id, changeAll)
	w.sh(w.plain, changeAll)
	if n := w.matches(id, base); n < 200 {
		t.Errorf("only %d changes: a dead test", n)
	}
	if late {
		// Where no clean checkout can exist, git takes the patch no more than we do.
		w.allOrNothing(id)
	} else {
		w.applies(id, base)
	}
	w.homeUntouched()
}
