//go:build linux

package tools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Pieces have all files of a part in order, each piece has its bound, and a file
// that is longer alone comes without its lines.
func TestFoundPieces(t *testing.T) {
	long := contract.GrepFile{Path: "long", Count: 40}
	for i := range 40 {
		long.Lines = append(long.Lines, contract.GrepLine{Number: i + 1, Match: true, Text: strings.Repeat("<\x00", 150)})
	}
	part := &contract.GrepResult{Searched: 500}
	var want []contract.GrepFile
	for i := range 400 {
		f := contract.GrepFile{Path: fmt.Sprintf("dir/%d", i), Count: 1, Lines: []contract.GrepLine{{Number: 1, Match: true, Text: strings.Repeat("x", i)}}}
		part.Files, want = append(part.Files, f), append(want, f)
		if i%100 == 0 {
			part.Files = append(part.Files, long)
			want = append(want, contract.GrepFile{Path: "long", Count: 40})
		}
	}
	for _, dir := range []string{"/d", "/" + strings.Repeat("\x01", 1000)} {
		var got []contract.GrepFile
		searched, matches := 0, 0
		c := &Call{Found: func(b json.RawMessage) bool {
			var r contract.GrepResult
			if err := json.Unmarshal(b, &r); err != nil || len(b) > FoundMost || r.Path != dir {
				t.Fatalf("%d bytes, %q, %v", len(b), r.Path, err)
			}
			got, searched, matches = append(got, r.Files...), searched+r.Searched, matches+r.Matches
			return true
		}}
		c.found(dir, part)
		if searched != 500 || matches != 400+4*40 || !reflect.DeepEqual(got, want) {
			t.Errorf("%d files of %d, %d searched, %d matches", len(got), len(want), searched, matches)
		}
	}
	if len(part.Files[1].Lines) != 40 {
		t.Error("the result lost lines")
	}
	n := 0
	c := &Call{Found: func(json.RawMessage) bool { n++; return false }}
	if c.found("/d", part); n != 1 {
		t.Errorf("told %d times after it was enough", n)
	}
	n = 0
	c.Found = func(b json.RawMessage) bool { n++; return len(b) <= FoundMost }
	if c.found("/d", &contract.GlobResult{Files: make([]contract.FoundFile, 5000)}); n < 5000*20/FoundMost {
		t.Errorf("%d pieces", n)
	}
}
