//go:build linux

package calls

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestAwkwardPaths is P04 and P05 for the tools: a path that ends in an odd way, that
// leaves and comes back, that cannot be resolved or is too long is refused or means a
// file inside. Nothing of it is a file of the host's.
func TestAwkwardPaths(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)
		beside := id.Tmp + "/beside"
		id.Mkdir(t, beside)
		id.Write(t, beside+"/file", "of the host\n", 0o644)
		sh(c, contract.ShellArgs{Command: fmt.Sprintf(`mkdir dir && ln -s %[1]s link && ln -s %[1]s/file filelink && ln -s loop loop && ln -s .. up && mkdir locked && echo x >locked/file && chmod 0 locked`, beside)})
		refused := 0
		for _, path := range []string{
			"link/", "link/.", "link//file", "link/file", "link/new", "filelink", "filelink/", "filelink/.", "up/beside/file", "up/", "loop", "loop/x", "locked/file", "locked/new",
			"missing/../../beside/file", "missing/../link/file", "dir/../link/file", "..", ".", "/", "dir/", beside + "/file", beside + "/new", "/proc/self/root" + beside + "/file", "/proc/1/root" + beside + "/file",
			"a\x00b", "dir/\x00", strings.Repeat("a/", 2048) + "x", strings.Repeat("n", 256), strings.Repeat("../", 100) + strings.TrimPrefix(beside, "/") + "/file",
		} {
			for tool, args := range map[string]any{
				contract.WriteFile: contract.WriteFileArgs{Path: path, Content: "awkward"}, contract.ReadFile: contract.ReadFileArgs{Path: path},
				contract.EditFile: contract.EditFileArgs{Path: path, Edits: []contract.Edit{{Old: "of the host", New: "awkward"}}},
			} {
				if res, _ := try(c, tool, args); res == nil || res.Claimed.Failure != nil {
					refused++
				} else if strings.Contains(string(res.Claimed.Result), "of the host") {
					t.Errorf("%s %.60q: a file of the host's", tool, path)
				}
			}
		}
		if refused < 40 {
			t.Errorf("only %d were refused", refused)
		}
		entries, err := os.ReadDir(beside)
		if b, err2 := os.ReadFile(beside + "/file"); err != nil || err2 != nil || string(b) != "of the host\n" || len(entries) != 1 {
			t.Errorf("something changed on the host: %q %v %v %v", b, entries, err, err2)
		}
	})
}
