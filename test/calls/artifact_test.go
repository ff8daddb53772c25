//go:build linux

package calls

import (
	"crypto/sha256"
	"encoding/hex"
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
