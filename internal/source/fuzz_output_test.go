//go:build linux

package source

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// FuzzBlob reads an answer of cat-file --batch: an object of a task, whose size
// and content it chose.
func FuzzBlob(f *testing.F) {
	f.Add([]byte(fuzzOID+" blob 3\nabc\n"), 10)
	f.Add([]byte(fuzzOID+" blob 3\nabc\n"), 1)
	f.Add([]byte(fuzzOID+" missing\n"), 1)
	f.Add([]byte(fuzzOID+" blob 9223372036854775807\nabc"), 4)
	f.Add([]byte(fuzzOID+" blob -1\n"), 4)
	f.Add([]byte(fuzzOID+" tree 99999999999999999999\n"), 4)
	f.Add([]byte("\n"), 0)
	f.Fuzz(func(t *testing.T, b []byte, most int) {
		most &= 1<<20 - 1
		in := bufio.NewReader(bytes.NewReader(b))
		got, err := readBlob(in, blobWant{oid: fuzzOID, max: most})
		if err != nil || got == nil {
			return
		}
		if len(got.data) > most || int64(len(got.data)) > got.size || got.size > int64(len(b)) {
			t.Errorf("%d bytes of %d out of %d", len(got.data), got.size, len(b))
		}
	})
}

// FuzzState reads the record of a task's source: what is not of this task and
// version is refused.
func FuzzState(f *testing.F) {
	id := task.NewID()
	good, err := json.Marshal(state{Version: 1, Task: id, Format: "sha1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"version":1,"task":"` + string(id) + `","trusted":{"a":null}}`))
	ws := Workspace{Task: id, Dir: f.TempDir()}
	if err := os.Mkdir(ws.shadow(), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(ws.shadow()+"/"+stateFile, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := ws.loadState()
		if err != nil && task.CodeOf(err) != task.CodeSource {
			t.Errorf("%v", err)
		}
		if err == nil && (s.Task != id || s.Version != 1) {
			t.Errorf("%+v", s)
		}
	})
}

// hostileArchives are seeds for FuzzUnpack: every shape that an attack has.
func hostileArchives(t testing.TB) [][]byte {
	long := strings.Repeat("n", 300)
	entries := []entry{
		{name: "a", text: "a"}, {name: "../up", text: "x"}, {name: "/abs", text: "x"}, {name: ".git/config", text: "x"}, {name: ".GIT/hooks/pre-commit", text: "x"},
		{name: "l", kind: tar.TypeSymlink, link: "/etc"}, {name: "l/passwd", text: "x"}, {name: "h", kind: tar.TypeLink, link: "../../x"},
		{name: "dev", kind: tar.TypeChar}, {name: "fifo", kind: tar.TypeFifo}, {name: "a/b", text: "below a file"}, {name: "a", text: "again"}, {name: long, text: long},
		{name: "set", text: "x", mode: 0o6755}, {name: "d/", kind: tar.TypeDir, mode: 0o1000}, {name: "nl\n\x1b[2J", text: "x"},
	}
	var out [][]byte
	for _, e := range entries {
		out = append(out, tarOf(t, e))
		if e.kind == 0 || e.kind == tar.TypeSymlink {
			out = append(out, zipOf(t, e))
		}
	}
	all := tarOf(t, entries...)
	return append(out, all, zipped(t, all), all[:len(all)/2], zipped(t, all)[:40])
}
