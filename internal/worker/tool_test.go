//go:build linux

package worker_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// tool calls one and fails the test where the channel does.
func (b *box) tool(name string, args any) worker.ToolReply {
	b.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.client.Tool(context.Background(), name, raw, nil)
	if err != nil {
		b.t.Fatalf("%s %.200s: %v", name, raw, err)
	}
	b.t.Cleanup(r.Close)
	return r
}

// folder is one that the worker reaches whoever it is.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "caisson-tools")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func put(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file comes back through the frame, through a descriptor where it is long,
// and as the open file where it is longer than a result.
func TestToolReadFile(t *testing.T) {
	b := start(t)
	dir := folder(t)
	for name, content := range map[string]string{
		"small": "one\ntwo\n",
		"long":  strings.Repeat("0123456789abcde\n", 100<<10/16),
		"huge":  strings.Repeat("0123456789abcde\n", 3<<20/16),
	} {
		r := b.tool(contract.ReadFile, contract.ReadFileArgs{Path: put(t, dir+"/"+name, content), Limit: 1 << 40})
		if r.Failure != nil {
			t.Fatalf("%s: %v", name, r.Failure)
		}
		var got contract.ReadFileResult
		if err := json.Unmarshal(r.Result, &got); err != nil {
			t.Fatal(err)
		}
		if got.Size != int64(len(content)) || !strings.HasPrefix(content, got.Content) || got.Truncated != (name == "huge") || got.Lines != int64(strings.Count(content, "\n")) {
			t.Errorf("%s: %+.300v", name, got)
		}
		if (r.File != nil) != (name == "huge") {
			t.Errorf("%s: file %v", name, r.File)
		}
		if r.File != nil {
			whole := make([]byte, len(content)+1)
			if n, _ := r.File.ReadAt(whole, 0); string(whole[:n]) != content {
				t.Errorf("%s: the open file has %d other bytes", name, n)
			}
		}
	}
	r := b.tool(contract.ReadFile, contract.ReadFileArgs{Path: dir + "/none"})
	if r.Failure == nil || r.Failure.Code != string(contract.NotFound) || r.Result != nil {
		t.Errorf("a missing file: %+v", r)
	}
	if r := b.tool("no_such", struct{}{}); r.Failure == nil || r.Failure.Code != string(contract.BadArgs) {
		t.Errorf("a missing tool: %+v", r)
	}
	if code, out, _ := b.sh("echo still here"); code != 0 || out != "still here\n" {
		t.Errorf("the tool space after it: %d %q", code, out)
	}
}
