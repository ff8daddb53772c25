package foreign

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
)

// Groups are the control groups of a boundary's first process, by controller; the
// unified one is "".
type Groups map[string]string

// GroupsOf finds them where the boundary runs under this kernel and is seen from
// here: nil where the process of that number is not certainly in one whose path has
// id in it.
func GroupsOf(pid int, id string) Groups {
	if pid <= 0 || len(id) < 12 {
		return nil
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || !strings.Contains(string(b), id) {
		return nil
	}
	out := Groups{}
	for line := range strings.Lines(strings.TrimSpace(string(b))) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !strings.Contains(f[2], id) || strings.Contains(f[2], "..") {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			dir := filepath.Join("/sys/fs/cgroup", f[1], f[2])
			if _, err := os.Stat(dir); err != nil {
				dir = filepath.Join("/sys/fs/cgroup", c, f[2])
			}
			out[c] = dir
		}
	}
	return out
}

func (g Groups) read(ctl, v1, v2 string) (string, bool) {
	dir, name := g[ctl], v1
	if dir == "" {
		dir, name = g[""], v2
	}
	if dir == "" {
		return "", false
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b)), err == nil
}

// Limit is a limit as the kernel has it; -1: none, or it cannot be read.
func (g Groups) Limit(ctl, v1, v2 string) int64 {
	s, _ := g.read(ctl, v1, v2)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// Measure puts into o what the groups' processes use.
func (g Groups) Measure(o *backend.Observation) {
	if n := g.Limit("memory", "memory.usage_in_bytes", "memory.current"); n >= 0 {
		o.MemoryBytes = n
	}
	if n := g.Limit("pids", "pids.current", "pids.current"); n >= 0 {
		o.Pids = n
	}
	if n := g.Limit("cpuacct", "cpuacct.usage", ""); n >= 0 {
		o.CPUSeconds = float64(n) / 1e9
	}
	events, _ := g.read("memory", "memory.oom_control", "memory.events")
	for line := range strings.Lines(events) {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			o.OOMKills = max(o.OOMKills, n)
		}
	}
}
