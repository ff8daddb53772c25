//go:build linux

package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// A search that takes its time tells what it found before it ends; what it told
// is the beginning of the result.
func TestToolFound(t *testing.T) {
	b := start(t)
	dir := folder(t)
	// How long a search takes is the machine's affair: until it takes long enough.
	for n := 0; ; {
		for range 2000 {
			d := fmt.Sprintf("%s/d%03d", dir, n%500)
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
			put(t, fmt.Sprintf("%s/f%d", d, n), strings.Repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", 500)+"needle\n")
			n++
		}
		var told []contract.GrepFile
		raw, _ := json.Marshal(contract.GrepArgs{Path: dir, Pattern: "(a|aa)+b|needle", Output: "files", Limit: contract.GrepMax})
		r, err := b.client.ToolFound(context.Background(), contract.Grep, raw, nil, func(part json.RawMessage) {
			var p contract.GrepResult
			if err := json.Unmarshal(part, &p); err != nil {
				t.Error(err)
			}
			told = append(told, p.Files...)
		})
		if err != nil {
			t.Fatal(err)
		}
		var all contract.GrepResult
		if err := json.Unmarshal(r.Result, &all); err != nil || len(told) > len(all.Files) || len(told) > 0 && !reflect.DeepEqual(told, all.Files[:len(told)]) {
			t.Fatalf("told of %d files of %d, %v", len(told), len(all.Files), err)
		}
		if len(told) > 0 {
			return
		}
		if n == 10000 {
			t.Fatalf("of %d files nothing was told", len(all.Files))
		}
	}
}

// toolInto calls a tool that must succeed.
func toolInto[T any](b *box, name string, args any) (out T) {
	b.t.Helper()
	r := b.tool(name, args)
	if r.Failure != nil {
		b.t.Fatalf("%s %+v: %v", name, args, r.Failure)
	}
	if err := json.Unmarshal(r.Result, &out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// The searching tools run in the live worker, under its filter and on its one processor.
func TestToolSearch(t *testing.T) {
	b := start(t)
	dir := folder(t)
	for i := range 600 {
		d := fmt.Sprintf("%s/d%d", dir, i%20)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, fmt.Sprintf("%s/f%d.txt", d, i), strings.Repeat("text\n", i%7)+fmt.Sprintf("needle %d\n", i))
	}
	if err := os.Mkdir(dir+"/.git", 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/.gitignore", "/d3/\n")
	put(t, dir+"/d4/.gitignore", "*\n")
	l := toolInto[contract.ListDirResult](b, contract.ListDir, contract.ListDirArgs{Path: dir})
	if len(l.Entries) != 22 || l.Path != dir || l.Entries[0].Name != ".git" || l.Entries[0].Kind != "dir" {
		t.Errorf("%+.400v", l)
	}
	g := toolInto[contract.GlobResult](b, contract.Glob, contract.GlobArgs{Path: dir, Pattern: "**/f1?.txt"})
	if len(g.Files) != 10 || g.Path != dir || g.Files[0].Path != "d10/f10.txt" {
		t.Errorf("%+.400v", g)
	}
	r := toolInto[contract.GrepResult](b, contract.Grep, contract.GrepArgs{Path: dir, Pattern: `needle \d+`})
	if r.Matches != 540 || len(r.Files) != 540 || r.Searched != 540 || r.Truncated {
		t.Errorf("%d matches in %d files of %d, truncated %v", r.Matches, len(r.Files), r.Searched, r.Truncated)
	}
	// Rules of the folders above hold below; a file that is named is searched whatever they say.
	if r := toolInto[contract.GrepResult](b, contract.Grep, contract.GrepArgs{Path: dir + "/d4", Pattern: "needle"}); r.Matches != 0 {
		t.Errorf("%d matches in an ignored folder", r.Matches)
	}
	if r := toolInto[contract.GrepResult](b, contract.Grep, contract.GrepArgs{Path: dir + "/d4/f4.txt", Pattern: "needle"}); r.Matches != 1 || r.Files[0].Path != "f4.txt" || r.Path != dir+"/d4" {
		t.Errorf("%+v", r)
	}
	for name, args := range map[string]any{
		contract.Glob: contract.GlobArgs{Path: dir, Pattern: "["}, contract.Grep: contract.GrepArgs{Path: dir, Pattern: "("}, contract.ListDir: contract.ListDirArgs{Path: dir + "/nothing"},
	} {
		if r := b.tool(name, args); r.Failure == nil {
			t.Errorf("%s %+v was not refused", name, args)
		}
	}
	if r := b.tool(contract.Grep, contract.GrepArgs{Path: "/proc", Pattern: "x"}); r.Failure == nil || r.Failure.Code != string(contract.Outside) {
		t.Errorf("grep in /proc: %+v", r.Failure)
	}
}
