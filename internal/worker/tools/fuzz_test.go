//go:build linux

package tools

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Whatever the arguments are, a call ends in a result of its type or in a
// refusal that is no fault of ours, and leaves nothing open.
func FuzzRun(f *testing.F) {
	for n, s := range []string{
		`{"path":"text","offset":2,"limit":1}`, `{"path":"new","content":"x","executable":true}`, `{"path":"text","edits":[{"old":"b","new":"c","replace_all":true}]}`,
		`{"path":"book","mode":"insert","cell_type":"raw","source":"x"}`, `{"limit":2}`, `{"pattern":"**/*.{a,b}","hidden":true}`, `{"pattern":"a.*b","multiline":true,"after":3}`,
	} {
		f.Add(byte(n), []byte(s))
	}
	dir := at(f).dir
	f.Fuzz(func(t *testing.T, n byte, raw []byte) {
		p := &place{t: t, dir: dir, root: NewRoot(dir)}
		tool := contract.Tools[n%7]
		args, _, err := contract.Decode(tool.Name, raw)
		if err == nil && leaves(args) {
			return // a fuzzer does not write outside its folder
		}
		p.put("text", "a\r\nb\nb\n")
		p.put("book", jupyter)
		before := descriptors(t)
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		defer stop()
		c := &Call{Root: p.root, In: -1, Out: -1}
		res, fail := Run(ctx, c, tool.Name, raw)
		if c.Out >= 0 {
			_ = unix.Close(c.Out)
		}
		switch {
		case fail != nil && (fail.Code == contract.Internal || !fail.Code.Known() || res != nil):
			t.Fatalf("%s %s: %v", tool.Name, raw, fail)
		case fail == nil && err != nil:
			t.Fatalf("%s %s was done, though %v", tool.Name, raw, err)
		case fail == nil:
			d := json.NewDecoder(strings.NewReader(string(res)))
			d.DisallowUnknownFields()
			if err := d.Decode(tool.Result()); err != nil {
				t.Fatalf("%s %s: %s: %v", tool.Name, raw, res, err)
			}
		}
		if after := descriptors(t); after > before {
			t.Fatalf("%s %s: %d descriptors before, %d after", tool.Name, raw, before, after)
		}
	})
}

// leaves reports whether a path of args may lead out of the folder.
func leaves(args any) bool {
	f := reflect.ValueOf(args).Elem().FieldByName("Path")
	return f.IsValid() && (strings.Contains(f.String(), "/") || strings.Contains(f.String(), ".."))
}
