//go:build linux

package exact

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// maxMemory is what caisson's own processes may hold at most, in kB, whatever a
// repository or a task has. git is another program.
const maxMemory = 400 << 10

// peak reads the most memory that a process has held, in kB; 0 when it is gone.
func peak(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	n, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "kB", 2)[0]))
	return n
}

// measured runs the product, prints how long it took and how much memory it and
// the task's supervisor have held, and fails where that is beyond all measure.
func (w *world) measured(id string, args ...string) harness.Result {
	t := w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*harness.Limit)
	defer cancel()
	cmd := w.Command(ctx, w.repo, harness.Bin(), args...)
	supervisor := 0
	if id != "" {
		supervisor = harness.Decode[struct{ Supervisor struct{ PID int } }](t, w.ok("show", "--json", id)).Supervisor.PID
	}
	most := 0
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				if p := cmd.Process; p != nil {
					most = max(most, peak(p.Pid))
				}
				if supervisor > 0 {
					most = max(most, peak(supervisor))
				}
			}
		}
	}()
	begun := time.Now()
	r := harness.Run(t, cmd)
	took := time.Since(begun)
	close(stop)
	<-done
	t.Logf("%-60.60s %8.2f s, at most %d MiB in caisson", strings.Join(args, " "), took.Seconds(), most>>10)
	if most > maxMemory {
		t.Errorf("%q held %d MiB", args, most>>10)
	}
	if r.Exit != 0 && r.Exit != 7 {
		t.Errorf("%.3000s", r.String())
	}
	return r
}

// TestManyFiles works on a repository of very many files (CAISSON_TEST_FULL=1:
// 100,000): run, changes of every kind in a tenth of them, every way out, the end.
func TestManyFiles(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		n := count(4_000, 100_000)
		w.Mkdir(t, w.repo)
		w.git("init", "-q", "-b", "main")
		make := fmt.Sprintf("import os\nfor i in range(%d):\n    d = 'p%%03d/q%%02d' %% (i %% 200, i // 200 %% 25)\n    os.makedirs(d, exist_ok=True)\n    open('%%s/f%%d.txt' %% (d, i), 'w').write('file %%d\\n' %% i * 5)\n", n)
		w.sh(w.repo, "python3 -c \""+make+"\"; git add -A; git commit -qm many")
		w.clone(w.plain, "")
		base := w.git("rev-parse", "HEAD")
		if r := w.measured("", "run", "--keep", "never", "--", "sh", "-c", "git status --porcelain | wc -l; find . -name '*.txt' | wc -l"); r.Stdout != fmt.Sprintf("0\n%d\n", n) {
			t.Errorf("inside: %q", r.Stdout)
		}
		begun := time.Now()
		id := w.open()
		t.Logf("%-60s %8.2f s", "open", time.Since(begun).Seconds())
		edit := fmt.Sprintf(`python3 -c "
import os, shutil
for i in range(0, %d, 10):
    p = 'p%%03d/q%%02d/f%%d.txt' %% (i %% 200, i // 200 %% 25, i)
    k = i // 10 %% 5
    if k < 2: open(p, 'a').write('more\n')
    elif k == 2: os.remove(p)
    elif k == 3: os.makedirs('moved/%%d' %% (i %% 7), exist_ok=True); os.rename(p, 'moved/%%d/%%d' %% (i %% 7, i))
    else: open(p + '.new', 'w').write('new %%d\n' %% i)
"`, n)
		w.in(id, edit)
		w.sh(w.plain, edit)
		w.sh(w.plain, "git add -A")
		want := w.sh(w.plain, "git -c diff.renameLimit=0 diff --cached --no-renames --name-status -z "+base)
		got := w.measured(id, "diff", "--json", id)
		if n := len(harness.Decode[struct{ Changes []any }](t, got.Stdout).Changes); n == 0 {
			t.Error("no changes: a dead test")
		}
		w.measured(id, "diff", "--stat", id)
		w.measured(id, "export", "--patch", "-o", w.Dir+"/p", id)
		w.measured(id, "branch", id, "many")
		if got := w.git("diff", "--no-renames", "--name-status", "-z", base, "many"); got != strings.TrimSuffix(want, "\n") {
			t.Errorf("the change set differs %s", first(got, want))
		}
		if tree := strings.TrimSpace(w.sh(w.plain, "git write-tree")); w.git("rev-parse", "many^{tree}") != tree {
			t.Error("the branch is not what plain git made")
		}
		w.measured(id, "apply", "--yes", "--allow-risky", id)
		if out := w.sh(w.repo, "git add -A; git diff --cached --name-only many | wc -l"); strings.TrimSpace(out) != "0" {
			t.Errorf("%s files differ after apply", out)
		}
		w.measured(id, "close", "--keep", "never", id)
		w.measured("", "diff", "--name-status", "-z", id)
	})
}

// blocks is what a file takes on the disk, in bytes.
func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestHugeFile has a file of 2 GB (CAISSON_TEST_FULL=1) in the base, changes it
// inside and makes another there. What takes no space inside takes none outside.
func TestHugeFile(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		size := int64(count(300, 2048)) << 20
		if testing.Short() {
			size = 80 << 20
		}
		w.repo = w.Repo(t, map[string]string{"a.txt": "a\n", ".gitignore": "*.img\n"})
		w.sh(w.repo, fmt.Sprintf("truncate -s %d base.bin; printf x | dd of=base.bin bs=1 seek=1000 conv=notrunc status=none; git -c core.bigFileThreshold=64m -c core.compression=1 add base.bin; git commit -qm big", size))
		begun := time.Now()
		id := w.open()
		t.Logf("%d MiB in the base: open %.2f s", size>>20, time.Since(begun).Seconds())
		w.in(id, fmt.Sprintf("[ $(stat -c %%s base.bin) = %d ]; printf changed | dd of=base.bin bs=1 seek=%d conv=notrunc status=none; truncate -s %d new.bin; printf end >>new.bin; truncate -s %d ignored.img; echo more >>a.txt", size, size/2, size-3, size))
		if out := w.measured(id, "diff", "--name-status", "-z", id).Stdout; out != "M\x00a.txt\x00M\x00base.bin\x00A\x00new.bin\x00" {
			t.Errorf("the change set is %q", out)
		}
		if out := w.measured(id, "diff", id).Stdout; len(out) > 1<<20 || !strings.Contains(out, "+more\n") {
			t.Errorf("the diff has %d bytes", len(out))
		}
		w.measured(id, "apply", "--yes", "--allow-risky", id)
		w.measured(id, "export", "--dir", w.Dir+"/out", id)
		for _, dir := range []string{w.repo, w.Dir + "/out"} {
			for name, at := range map[string]struct {
				off  int64
				text string
			}{"base.bin": {size / 2, "changed"}, "new.bin": {size - 3, "end"}} {
				f, err := os.Open(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				b := make([]byte, len(at.text))
				_, err = f.ReadAt(b, at.off)
				st, _ := f.Stat()
				f.Close()
				if err != nil || string(b) != at.text || st.Size() != size {
					t.Errorf("%s/%s: %q, %d bytes, %v", dir, name, b, st.Size(), err)
				}
				t.Logf("%s/%s takes %d MiB", filepath.Base(dir), name, blocks(t, filepath.Join(dir, name))>>20)
			}
		}
		if got := blocks(t, w.repo+"/new.bin"); got > size/4 {
			t.Errorf("applied, a file of holes takes %d MiB", got>>20)
		}
		w.sh(w.repo, "git reset -q --hard; rm -f new.bin")
		if long() {
			w.measured(id, "branch", id, "huge")
			w.measured(id, "export", "--bundle", "-o", w.Dir+"/b", id)
		}
		w.measured(id, "close", "--keep", "never", id)
		w.git("fsck", "--connectivity-only", "--no-dangling")
	})
}

// TestManyIgnored makes very many files that are ignored (CAISSON_TEST_FULL=1:
// a million), in one folder and beside every other file: they are looked at in
// bounded time and memory, and none is lost at the end.
func TestManyIgnored(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		n := count(20_000, 1_000_000)
		w.repo = w.Repo(t, map[string]string{"a.txt": "a\n", ".gitignore": "node_modules/\n*.o\n"})
		id := w.open()
		w.exec(id, []byte(fmt.Sprintf(`
import os
for i in range(%d):
    d = 'node_modules/%%d/%%d' %% (i // 20000, i // 200 %% 100)
    if i %% 200 == 0: os.makedirs(d, exist_ok=True)
    open(d + '/%%d.js' %% i, 'w').close()
for i in range(%d):
    if i %% 100 == 0: os.makedirs('src/%%d' %% (i // 100), exist_ok=True)
    open('src/%%d/%%d.o' %% (i // 100, i), 'w').close()
open('a.txt', 'a').write('more\n')
`, n, n/20)), "python3", "-")
		if out := w.measured(id, "diff", "--name-status", "-z", id).Stdout; out != "M\x00a.txt\x00" {
			t.Errorf("the change set is %.300q", out)
		}
		w.measured(id, "apply", "--yes", id)
		if out := w.measured(id, "close", "--dry-run", id); len(out.Stdout) > 4<<20 {
			t.Errorf("close --dry-run prints %d bytes", len(out.Stdout))
		}
		w.measured(id, "close", id)
		kept := strings.TrimSpace(w.sh(w.State, "find tasks/"+id+" \\( -name '*.js' -o -name '*.o' \\) | wc -l"))
		if kept != itoa(n+n/20) {
			t.Errorf("%s of %d ignored files are kept", kept, n+n/20)
		}
		w.measured("", "close", "--discard", id)
	})
}
