//go:build linux

package exact

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// history is a project with its real versions, oldest first: each is a packed
// folder.
type history struct {
	name     string
	versions [][]byte
}

// histories finds real ones on this machine, without a network: packages that
// the Go distribution and the module cache hold in several versions, and this
// project's own commits.
func histories(t *testing.T) (hs []history) {
	t.Helper()
	pack := func(cmd *exec.Cmd) []byte {
		out, err := cmd.Output()
		if err != nil {
			return nil
		}
		return out
	}
	folder := func(dir string) []byte {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return nil
		}
		return pack(exec.Command("tar", "-C", dir, "--exclude=.git", "--mode=u+w", "-cf", "-", "."))
	}
	root := ""
	if out, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		root = strings.TrimSpace(string(out))
	}
	for _, mod := range []string{"golang.org/x/term", "golang.org/x/text", "golang.org/x/sys"} {
		h := history{name: mod}
		list := []string{root + "/src/vendor/" + mod, root + "/src/cmd/vendor/" + mod}
		if out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", mod).Output(); err == nil {
			list = append(list, strings.TrimSpace(string(out)))
		}
		for _, dir := range list {
			if b := folder(dir); b != nil {
				h.versions = append(h.versions, b)
			}
		}
		hs = append(hs, h)
	}
	own := history{name: "this project"}
	top, err := exec.Command("git", "-c", "safe.directory=*", "rev-parse", "--show-toplevel").Output()
	if err == nil {
		git := func(args ...string) *exec.Cmd {
			return exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", strings.TrimSpace(string(top))}, args...)...)
		}
		commits := strings.Fields(string(pack(git("rev-list", "--first-parent", "--max-count=400", "HEAD"))))
		for n := count(2, 12); n >= 0; n-- { // steps of very different sizes
			if at := n * n * 2; at < len(commits) {
				own.versions = append(own.versions, pack(git("archive", "--format=tar", commits[at])))
			}
		}
	}
	return append(hs, own)
}

// TestRealHistories goes through real versions, one task a step: the task makes
// of version N what version N+1 is, half of the time with commits of its own,
// and every way out is what plain git says, byte for byte.
func TestRealHistories(t *testing.T) {
	for i, h := range histories(t) {
		t.Run(filepath.Base(h.name), func(t *testing.T) {
			if len(h.versions) < 2 {
				t.Skipf("there are %d versions of %s on this machine", len(h.versions), h.name)
			}
			if (i == 1 || i == 2) && !long() {
				t.Skip("large; CAISSON_TEST_FULL=1 takes it")
			}
			run := one
			if i == 0 {
				run = each
			}
			run(t, "", func(w *world) { w.goThrough(h) })
		})
	}
}

func (w *world) goThrough(h history) {
	t := w.t
	w.Mkdir(t, w.repo)
	w.git("init", "-q", "-b", "main")
	unpack := func(dir string, packed []byte) {
		t.Helper()
		if r := w.shell(dir, packed, replace); r.Exit != 0 {
			t.Fatal(r)
		}
	}
	commit := func(n int) string {
		w.sh(w.repo, fmt.Sprintf("git add -A -f; git commit -q --allow-empty -m 'version %d'", n))
		return w.git("rev-parse", "HEAD")
	}
	unpack(w.repo, h.versions[0])
	base := commit(0)
	total := 0
	for n, next := range h.versions[1:] {
		w.clone(w.plain, "")
		id := w.open()
		if r := w.exec(id, next, "sh", "-ec", replace); r.Exit != 0 {
			t.Fatal(r)
		}
		unpack(w.plain, next)
		// Names that the project itself ignores are no work, for git and for us.
		if n%2 == 1 {
			w.in(id, "for d in $(ls | head -n 5); do git add -- \"$d\"; git commit -qm \"$d\" || :; done")
		}
		total += w.matches(id, base)
		w.applies(id, base)
		w.sh(w.repo, "git reset -q --hard; git clean -qfdx")
		if r := w.do("close", "--keep", "never", id); r.Exit != 0 && r.Exit != 7 {
			t.Error(r)
		}
		if n == 0 {
			w.matches(id, base) // the same from its refs
		}
		w.sh(w.Dir, "rm -rf plain")
		unpack(w.repo, next)
		base = commit(n + 1)
	}
	t.Logf("%s: %d versions, %d fields of change sets compared", h.name, len(h.versions), total)
	if total == 0 {
		t.Error("nothing differs between the versions: a dead test")
	}
	w.homeUntouched()
}

// replace makes of a folder's files what comes in.
const replace = "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf -- {} +; tar -xf -"
