//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what the figures were taken on.
type machine struct {
	facts map[string]string
	order []string
	fsync time.Duration
}

func (m *machine) fact(key, format string, args ...any) {
	if m.facts == nil {
		m.facts = map[string]string{}
	}
	m.order = append(m.order, key)
	m.facts[key] = fmt.Sprintf(format, args...)
}

func look(ctx context.Context, b *bench) *machine {
	m := &machine{}
	m.fact("date", "%s", time.Now().UTC().Format("2 January 2006, 15:04 UTC"))
	m.fact("processor", "%s, %d CPUs, %s", cpu(), runtime.NumCPU(), memoryTotal())
	m.fact("kernel", "Linux %s", readLine("/proc/sys/kernel/osrelease"))
	m.fact("user id", "%d", os.Geteuid())
	m.fact("load at the start", "%s", load())
	m.fsync = fsyncCost(b.dir)
	m.fact("file system of state and repositories", "%s; write and fsync of 4 KiB p50 %s ms", fsName(b.dir), ms(m.fsync))
	m.fact("bench", "%s", runtime.Version())
	for _, argv := range [][]string{{b.o.caisson, "version"}, {"git", "--version"}, {"bwrap", "--version"}, {"unshare", "--version"}, {"crun", "--version"}, {"runc", "--version"},
		{"podman", "--version"}, {"docker", "--version"}, {"dockerd", "--version"}, {"slirp4netns", "--version"}, {"pasta", "--version"}} {
		name := filepath.Base(argv[0])
		if _, err := exec.LookPath(argv[0]); err != nil {
			m.fact(name, "not present")
			continue
		}
		// Some make folders of their own to tell their version.
		out, err := do(ctx, argv, []string{"HOME=" + b.dir, "XDG_RUNTIME_DIR=" + b.dir, "TMPDIR=" + b.dir}, nil)
		first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
		if err != nil {
			first = err.Error()
		}
		m.fact(name, "%s", first)
	}
	return m
}

// end notes what only the end can tell.
func (m *machine) end() { m.fact("load at the end", "%s", load()) }

func (m *machine) write(w *strings.Builder) {
	w.WriteString("\n## Machine\n\n| | |\n|---|---|\n")
	for _, k := range m.order {
		fmt.Fprintf(w, "| %s | %s |\n", k, cell(m.facts[k]))
	}
}

func cpu() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

func memoryTotal() string {
	var kb float64
	if _, err := fmt.Sscanf(readLine("/proc/meminfo"), "MemTotal: %f kB", &kb); err != nil {
		return "unknown memory"
	}
	return fmt.Sprintf("%.0f GiB", kb/1024/1024)
}

// load is the number of processes that wanted to run, over 1, 5 and 15 minutes.
func load() string {
	f := strings.Fields(readLine("/proc/loadavg"))
	if len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], ", ")
}

func readLine(path string) string {
	b, _ := os.ReadFile(path)
	first, _, _ := strings.Cut(string(b), "\n")
	return first
}

// fsyncCost measures what durability costs here.
func fsyncCost(dir string) time.Duration {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return 0
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for i := range 21 {
		at := time.Now()
		if _, err := f.WriteAt(make([]byte, 4096), int64(i)*4096); err != nil || f.Sync() != nil {
			return 0
		}
		took = append(took, time.Since(at))
	}
	return percentile(took, 50)
}

func fsName(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	names := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.TMPFS_MAGIC: "tmpfs (durability costs nothing here)", unix.XFS_SUPER_MAGIC: "xfs",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs"}
	if n, ok := names[int64(st.Type)]; ok {
		return n
	}
	return fmt.Sprintf("type %#x", st.Type)
}
