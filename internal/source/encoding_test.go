//go:build linux

package source

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// TestEncodingsOfManyFiles: git's parallel checkout loses the encoding of files
// that have one. What the task has is what a plain checkout is.
func TestEncodingsOfManyFiles(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q")
	const text = "\xff\xfeh\x00\xf6\x00\n\x00"
	for d := range 20 {
		l.write(fmt.Sprintf("d%02d/.gitattributes", d), "*.u16 text working-tree-encoding=UTF-16\n")
		l.write(fmt.Sprintf("d%02d/a.u16", d), text)
		for f := range 8 {
			l.write(fmt.Sprintf("d%02d/f%d", d, f), "f\n")
		}
	}
	l.commit("encoded")
	if got := l.git("cat-file", "-p", "HEAD:d00/a.u16"); got != "hö" {
		t.Fatalf("recorded as %q: a dead test", got)
	}
	o := l.open(Options{})
	for d := range 20 {
		b, err := os.ReadFile(fmt.Sprintf("%s/d%02d/a.u16", o.p.Source, d))
		if err != nil || string(b) != text {
			t.Errorf("d%02d: %q %v", d, b, err)
		}
	}
	if w := o.work(); !w.Empty() {
		t.Errorf("work: %+v", w)
	}
}

// TestOneConversionFails: a file that is not in the encoding that its attribute
// names counts with its bytes, and the files around it are converted as ever.
func TestOneConversionFails(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q")
	l.write(".gitattributes", "*.txt text eol=crlf\n*.u16 text working-tree-encoding=UTF-16\n")
	for f := range 6 {
		l.write(fmt.Sprintf("f%d.txt", f), "one\r\ntwo\r\n")
	}
	l.commit("all")
	o := l.open(Options{})
	for f := range 6 {
		o.file(fmt.Sprintf("f%d.txt", f), "one\r\ntwo\r\nthree\r\n")
	}
	o.file("bad.u16", "no byte order mark\r\n")
	o.file("good.u16", "\xff\xfeh\x00\xf6\x00\n\x00")
	r, err := Look(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for p, want := range map[string]string{"f0.txt": "one\ntwo\nthree\n", "f5.txt": "one\ntwo\nthree\n", "bad.u16": "no byte order mark\r\n", "good.u16": "hö\n"} {
		got, err := r.g.Run(context.Background(), r.cmd("cat-file", "blob", r.Tree+":"+p))
		if err != nil || string(got) != want {
			t.Errorf("%s is recorded as %q: %v", p, got, err)
		}
	}
}
