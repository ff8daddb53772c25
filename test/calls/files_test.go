//go:build linux

package calls

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

const notebook = "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 1,\n   \"metadata\": {},\n   \"outputs\": [{\"x\": 1.50}],\n   \"source\": [\n    \"a\"\n   ]\n  }\n ],\n \"metadata\": {\"k\":  1},\n \"nbformat\": 4,\n \"nbformat_minor\": 4\n}\n"

// TestFiles has files changed by tools and looked at by commands of the task,
// by the host, and the other way round.
func TestFiles(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)
		sh(c, contract.ShellArgs{Command: `printf 'one\r\ntwo\r\n' >crlf.txt; chmod 755 crlf.txt; printf 'caf\351\n' >latin.txt; truncate -s 20M huge; printf 'a\0b' >binary; mkfifo fifo
			ln -s crlf.txt link; ln -s /proc/self/environ environ; ln -s fifo pipe; mkdir dir; printf '\211PNG\r\n\032\n' >image.png`})
		_, w := call[contract.WriteFileResult](c, contract.WriteFile, contract.WriteFileArgs{Path: "n.ipynb", Content: notebook})
		if w.SHA256 == "" || !w.Created {
			t.Errorf("%+v", w)
		}
		zero := 0
		res, e := call[contract.EditFileResult](c, contract.EditFile, contract.EditFileArgs{Path: "link", Edits: []contract.Edit{{Old: "one\ntwo\n", New: "eins\nzwei\ndrei\n"}}})
		if e.Newline != "crlf" || res.Claimed.Failure != nil {
			t.Errorf("%+v", e)
		}
		call[contract.NotebookEditResult](c, contract.NotebookEdit, contract.NotebookEditArgs{Path: "n.ipynb", Index: &zero, Source: "b\nc"})
		call[contract.WriteFileResult](c, contract.WriteFile, contract.WriteFileArgs{Path: "latin.txt", Content: "thé\n"})
		_, out := sh(c, contract.ShellArgs{Command: `test -L link && stat -c '%a %u' crlf.txt && od -An -c crlf.txt latin.txt && ls -a | grep -c caisson-`})
		if want := "755 1000\n   e   i   n   s  \\r  \\n   z   w   e   i  \\r  \\n   d   r   e   i\n  \\r  \\n   t   h 351  \\n\n0\n"; out.Stdout != want {
			t.Errorf("a command sees %q", out.Stdout)
		}
		// On the host: the one change, every other byte as it was.
		want := strings.NewReplacer("\"execution_count\": 1", "\"execution_count\": null", `[{"x": 1.50}]`, "[]", "\"a\"\n", "\"b\\n\",\n    \"c\"\n").Replace(notebook)
		if _, got := call[contract.ReadFileResult](c, contract.ReadFile, contract.ReadFileArgs{Path: "n.ipynb"}); got.Content != want {
			t.Errorf("the notebook became\n%s", got.Content)
		}
		if _, got := call[contract.ReadFileResult](c, contract.ReadFile, contract.ReadFileArgs{Path: "huge", As: "base64"}); !got.Truncated || got.Base64 != "" || got.Size != 20<<20 {
			t.Errorf("%+v", got)
		}
		for _, f := range []struct {
			tool string
			args any
			want contract.Code
		}{
			{contract.ReadFile, contract.ReadFileArgs{Path: "none"}, contract.NotFound},
			{contract.ReadFile, contract.ReadFileArgs{Path: "dir"}, contract.IsDir},
			{contract.ReadFile, contract.ReadFileArgs{Path: "fifo"}, contract.NotRegular},
			{contract.ReadFile, contract.ReadFileArgs{Path: "/proc/self/environ"}, contract.Outside},
			{contract.ReadFile, contract.ReadFileArgs{Path: "binary", As: "text"}, contract.Binary},
			{contract.EditFile, contract.EditFileArgs{Path: "huge", Edits: []contract.Edit{{Old: "a", New: "b"}}}, contract.TooBig},
			{contract.EditFile, contract.EditFileArgs{Path: "crlf.txt", Edits: []contract.Edit{{Old: "x", New: "y"}}}, contract.NoMatch},
			{contract.WriteFile, contract.WriteFileArgs{Path: "a.txt", ExpectSHA256: strings.Repeat("0", 64)}, contract.Changed},
			{contract.WriteFile, contract.WriteFileArgs{Path: "a.txt", CreateOnly: true}, contract.Exists},
		} {
			res, said := try(c, f.tool, f.args)
			if res == nil || res.Claimed.Failure == nil || res.Claimed.Failure.Code != string(f.want) || res.Claimed.Result != nil {
				t.Errorf("%s %+v: %+v %+v, want %s", f.tool, f.args, res, said, f.want)
			}
		}
		for _, name := range []string{"pipe", "environ", "fifo"} {
			for tool, args := range map[string]any{contract.ReadFile: contract.ReadFileArgs{Path: name}, contract.WriteFile: contract.WriteFileArgs{Path: name, Content: "x"}} {
				if res, _ := try(c, tool, args); res != nil && res.Claimed.Failure == nil {
					t.Errorf("%s %s was done", tool, name)
				}
			}
		}
		// What is not the model's to say is recorded and does nothing.
		res, _ = try(c, contract.ReadFile, `{"path":"a.txt","backend":"none","root":"/"}`)
		if res == nil || !slices.Equal(res.Refused, []string{"backend", "root"}) {
			t.Errorf("%+v", res)
		}
		id.OK(t, c.repo, "apply", "--allow-risky", c.task)
		if b, err := os.ReadFile(filepath.Join(c.repo, "crlf.txt")); string(b) != "eins\r\nzwei\r\ndrei\r\n" {
			t.Errorf("applied: %q %v", b, err)
		}
	})
}
