//go:build linux

package probe

import (
	"encoding/json"

	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestOtherSandbox measures a boundary that somebody else's program makes, and
// then the same with one thing let in.
func TestOtherSandbox(t *testing.T) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip("bwrap is not installed")
	}
	type want map[task.Axis]int
	for _, c := range []struct {
		name  string
		extra func(w *world) []string
		want  want
	}{
		{"closed", func(*world) []string { return nil }, want{task.FS: 2, task.NET: 4, task.CPL: 2, task.PRC: 2, task.KRN: 0}},
		{"filtered", func(*world) []string { return nil }, want{task.FS: 2, task.NET: 4, task.CPL: 2, task.PRC: 2, task.KRN: 1}},
		{"own root", func(w *world) []string { w.spec.OwnRoot = true; return nil }, want{task.FS: 3, task.NET: 4, task.CPL: 2}},
		{"host network", func(*world) []string { return []string{"--share-net"} }, want{task.FS: 0, task.NET: 0, task.CPL: 0, task.PRC: 2}},
		{"secret let in", func(w *world) []string { return []string{"--ro-bind", w.plants.File, w.plants.File} }, want{task.FS: 1, task.NET: 4, task.CPL: 2}},
		{"socket let in", func(w *world) []string { return []string{"--ro-bind", w.plants.Socket, w.plants.Socket} }, want{task.FS: 0, task.NET: 0, task.CPL: 0}},
		{"etc let in", func(w *world) []string { return []string{"--bind", w.dir, "/etc"} }, want{task.FS: 0, task.NET: 4, task.CPL: 2}},
		{"environment let in", func(w *world) []string { return []string{"--setenv", "TOKEN", "x"} }, want{task.FS: 2, task.CRD: 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, os.Getuid())
			var fs unix.Statfs_t
			if c.name == "etc let in" && unix.Statfs(w.dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
				t.Skip("temporary files lie in memory here: a folder of theirs is no disk that could be let in")
			}
			w.spec.Agents = nil
			w.spec.Env = []string{"HOME", "PWD"}
			w.spec.Writable, w.spec.Home, w.spec.ReadOnly = []string{"/src", "/tmp"}, "/tmp", []string{"/", "/usr"}
			extra := c.extra(w)
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			src := filepath.Join(w.dir, "src")
			if err := os.Mkdir(src, 0o777); err != nil {
				t.Fatal(err)
			}
			spec, err := w.spec.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(src, "spec"), spec, 0o644); err != nil {
				t.Fatal(err)
			}
			infoR, infoW, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer infoR.Close()
			args := []string{"--unshare-all", "--uid", "1000", "--gid", "1000", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv", "--setenv", "HOME", "/tmp",
				"--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
				"--bind", src, "/src", "--ro-bind", exe, "/probe", "--info-fd", "3"}
			args = append(args, extra...)
			args = append(args, "--remount-ro", "/", "--chdir", "/src", "/probe", "inside-wait", "/src/spec", map[bool]string{true: "sealed", false: "open"}[c.name == "filtered"])
			cmd := exec.Command(bwrap, args...)
			cmd.ExtraFiles = []*os.File{infoW}
			cmd.Stderr = os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			outR, outW, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer outR.Close()
			cmd.Stdout = outW
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			infoW.Close()
			outW.Close()
			defer func() { in.Close(); _ = cmd.Wait() }()
			var info struct {
				Child int `json:"child-pid"`
			}
			if err := json.NewDecoder(infoR).Decode(&info); err != nil || info.Child == 0 {
				t.Skip("bwrap cannot make a sandbox here:", err)
			}
			// bwrap keeps its end of stdout open: the report ends where its JSON does.
			var raw json.RawMessage
			if err := json.NewDecoder(outR).Decode(&raw); err != nil {
				t.Fatal(err)
			}
			pid := info.Child
			for _, p := range Descendants(info.Child) {
				pid = p
			}
			view, err := ObserveHost(pid)
			if err != nil {
				t.Fatal(err)
			}
			var r Report
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			levels, seen, findings := Judge(&w.spec, raw, &Observation{Worker: &view, Levels: task.Vector{task.CRD: 1}, Seen: map[task.Axis]string{task.CRD: "allow-list"}, Touched: w.plants.Touched()})
			for a, l := range c.want {
				got := levels[a]
				if a == task.PRC && got > l {
					got = l // as an ordinary user it is one more
				}
				if got != l {
					t.Errorf("%s %d, want %d: %s", a, levels[a], l, seen[a])
				}
			}
			if t.Failed() || c.name == "filtered" {
				for _, x := range r.Checks {
					if !x.Outcome.proves() {
						t.Logf("%-18s %-9s %-12s %s %s", x.ID, x.Outcome, x.Errno, x.What, x.Detail)
					}
				}
				t.Logf("%v, %d µs of attempts, host pid %s, unread %v, findings %d", levels, r.Micros, strconv.Itoa(pid), view.Unread, len(findings))
			}
		})
	}
}
