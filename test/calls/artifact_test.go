//go:build linux

package calls

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestArtifact publishes a file, which then is the host's: what becomes of the
// task changes it no more.
func TestArtifact(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)
		sh(c, contract.ShellArgs{Command: "printf 'report\n' >/run/boundary/out/'re port;.txt'"})
		_, r := call[contract.PublishArtifactResult](c, contract.PublishArtifact, contract.PublishArtifactArgs{Path: "/run/boundary/out/re port;.txt", Title: "A \x1b[31mreport"})
		sum := sha256.Sum256([]byte("report\n"))
		if r.SHA256 != hex.EncodeToString(sum[:]) || r.Size != 7 || strings.ContainsRune(r.Title, 0x1b) {
			t.Errorf("%+v", r)
		}
		sh(c, contract.ShellArgs{Command: "echo other >/run/boundary/out/'re port;.txt'; rm -f /run/boundary/out/*"})
		id.OK(t, c.repo, "close", c.task)
		v := harness.Decode[task.View](t, id.OK(t, c.repo, "show", "--json", c.task))
		if len(v.Artifacts) != 1 {
			t.Fatalf("%+v", v.Artifacts)
		}
		b, err := os.ReadFile(v.Artifacts[0].Path)
		if err != nil || string(b) != "report\n" || !strings.HasPrefix(v.Artifacts[0].Path, filepath.Join(id.State, "tasks", c.task)+"/") {
			t.Errorf("%s: %q, %v", v.Artifacts[0].Path, b, err)
		}
		if out := id.OK(t, c.repo, "show", c.task); !strings.Contains(out, v.Artifacts[0].Path) {
			t.Errorf("show does not name it: %s", out)
		}
	})
}

// TestArtifactAttacks tries to have the host read something else than a file of
// the output store.
func TestArtifactAttacks(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)
		secret := filepath.Join(id.Tmp, "secret")
		id.Write(t, secret, "secret\n", 0o644)
		sh(c, contract.ShellArgs{Command: `cd /run/boundary/out; ln -s ` + secret + ` link; ln -s ` + id.Tmp + ` dir; mkfifo pipe; ln -s / root; mkdir sub; echo fine >sub/fine; ln -s sub sublink; echo in >` + c.repo + `/in; ln -s fine sub/inner`})
		for _, bad := range []string{"link", "dir/secret", "pipe", "root" + secret, "sub", "sublink/fine", "sub/inner", "../out/link", secret, "../../../" + secret, c.repo + "/in", "nothing", "/proc/self/environ",
			"/run/boundary/out/../../.." + secret, "."} {
			res, r := try(c, contract.PublishArtifact, contract.PublishArtifactArgs{Path: bad})
			if res == nil || res.Claimed.Failure == nil {
				t.Errorf("%s was published: %v", bad, r)
			}
		}
		// The control: the same way of asking, for what may be published.
		for _, good := range []string{"sub/fine", "/run/boundary/out/sub/fine", "./sub/../sub/fine"} {
			call[contract.PublishArtifactResult](c, contract.PublishArtifact, contract.PublishArtifactArgs{Path: good})
		}
		if v := harness.Decode[task.View](t, id.OK(t, c.repo, "show", "--json", c.task)); len(v.Artifacts) != 3 {
			t.Errorf("%+v", v.Artifacts)
		}
	})
}

// TestOutputOfAnotherProcess reads the link to a long output through an MCP
// server that does not hold the task.
func TestOutputOfAnotherProcess(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)
		cmd := id.Command(t.Context(), c.repo, harness.Bin(), "mcp", "--task", c.task)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		dec, n := json.NewDecoder(out), 0
		ask := func(method string, params any, result any) {
			t.Helper()
			n++
			if err := json.NewEncoder(in).Encode(map[string]any{"jsonrpc": "2.0", "id": n, "method": method, "params": params}); err != nil {
				t.Fatal(err)
			}
			for {
				var m struct {
					ID     int
					Result json.RawMessage
					Error  any
				}
				if err := dec.Decode(&m); err != nil {
					t.Fatal(err)
				}
				if m.ID != n {
					continue
				}
				if err := json.Unmarshal(m.Result, result); err != nil || m.Error != nil {
					t.Fatalf("%s: %v %v", method, m.Error, err)
				}
				return
			}
		}
		var nothing struct{}
		ask("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}}, &nothing)
		if _, err := in.Write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		var called struct {
			Content []struct{ Type, URI string }
		}
		ask("tools/call", map[string]any{"name": "shell", "arguments": map[string]any{"command": "seq 1 100000"}}, &called)
		uri := called.Content[len(called.Content)-1].URI
		var read struct {
			Contents []struct{ Text string }
		}
		ask("resources/read", map[string]any{"uri": uri}, &read)
		if len(read.Contents) != 1 || !strings.HasPrefix(read.Contents[0].Text, "1\n2\n") || !strings.HasSuffix(read.Contents[0].Text, "\n100000\n") {
			t.Errorf("%s: %.100v", uri, read.Contents)
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}
