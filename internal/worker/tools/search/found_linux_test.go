package search

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// What is told while a search goes on is what its result begins with.
func TestFound(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("d%02d/f%03d", i%30, i)] = "foo\nbar\nfoo\n"
	}
	dir := makeTree(t, files)
	for name, limit := range map[string]int{"all": 10000, "cut": 50} {
		var parts []contract.GrepFile
		searched, matches, times := 0, 0, 0
		p := placeAt(t, dir)
		p.FoundEvery = time.Nanosecond
		p.Found = func(part any) {
			r := part.(*contract.GrepResult)
			times++
			parts, searched, matches = append(parts, r.Files...), searched+r.Searched, matches+r.Matches
		}
		r, err := Grep(context.Background(), p, &contract.GrepArgs{Pattern: "foo", Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if times == 0 || len(parts) > len(r.Files) || !reflect.DeepEqual(parts, r.Files[:len(parts)]) || searched > r.Searched || matches != 2*len(parts) {
			t.Errorf("grep, %s: %d parts with %d files, %d searched, %d matches; the result has %d, %d", name, times, len(parts), searched, matches, len(r.Files), r.Searched)
		}
		var found []contract.FoundFile
		p.Found = func(part any) { found = append(found, part.(*contract.GlobResult).Files...) }
		g, err := Find(context.Background(), p, &contract.GlobArgs{Pattern: "**/f*", Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 || !reflect.DeepEqual(found, g.Files[:len(found)]) {
			t.Errorf("glob, %s: %d files, the result has %d", name, len(found), len(g.Files))
		}
	}
}
