//go:build linux

package source

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func (o *opened) rendered(opt DiffOptions) string {
	o.t.Helper()
	r := o.result()
	defer r.Close()
	var b bytes.Buffer
	if err := r.Diff(context.Background(), &b, opt); err != nil {
		o.t.Fatal(err)
	}
	return b.String()
}

// TestFileOfZerosInADiff: a file that takes no room inside must not make git
// read it into memory, nor keep the rest of the diff from being seen.
func TestFileOfZerosInADiff(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a file of many megabytes several times; not with -short")
	}
	o := basic(t).open(Options{})
	o.file("seen.txt", "seen\n")
	zeros := func(size int64) {
		t.Helper()
		o.file("zeros", "")
		if err := os.Truncate(o.p.Source+"/zeros", size); err != nil {
			t.Fatal(err)
		}
	}
	zeros(20 << 20)
	if s := o.rendered(DiffOptions{}); !strings.Contains(s, "GIT binary patch") || !strings.Contains(s, "+seen") {
		t.Error("a file of an ordinary size is not in the patch")
	}
	zeros(maxPatchBlob + 1)
	s := o.rendered(DiffOptions{})
	if !strings.Contains(s, "/zeros differ\n") || strings.Contains(s, "GIT binary patch") || !strings.Contains(s, "+seen") {
		t.Errorf("diff:\n%s", s)
	}
	r := o.result()
	defer r.Close()
	_, err := r.Export(context.Background(), ExportOptions{Form: FormPatch, W: &bytes.Buffer{}})
	if task.CodeOf(err) != task.CodeLimit {
		t.Errorf("export --patch: %v", err)
	}
}

// TestManyRenamesInADiff: what git would compare for hours is not compared; what
// was only moved is still seen as moved.
func TestManyRenamesInADiff(t *testing.T) {
	l := basic(t)
	text := func(i int, more string) string { return strings.Repeat(fmt.Sprintf("line %d\n", i), 200) + more }
	for i := range 40 {
		l.write(fmt.Sprintf("old/%d", i), text(i, ""))
	}
	l.commit("many")
	o := l.open(Options{})
	move := func(size int64) {
		t.Helper()
		for i := range 40 {
			o.file(fmt.Sprintf("new/%d", i), text(i, "changed\n"))
			_ = os.Remove(fmt.Sprintf("%s/old/%d", o.p.Source, i))
		}
		o.file("new/0", text(0, ""))
		o.file("zeros", "")
		if err := os.Truncate(o.p.Source+"/zeros", size); err != nil {
			t.Fatal(err)
		}
	}
	move(1)
	if s := o.rendered(DiffOptions{NameStatus: true}); strings.Count(s, "R") != 40 {
		t.Errorf("renames with changes are not found:\n%s", s)
	}
	move(maxRenameWork/40 + 1)
	if s := o.rendered(DiffOptions{NameStatus: true}); strings.Count(s, "R100") != 1 || strings.Count(s, "R") != 1 {
		t.Errorf("the search is not bounded:\n%s", s)
	}
}
