package harness

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Snapshot is what a product like this one can leave on a host, one line a
// thing, sorted: mounts, control groups, processes, network interfaces, System
// V objects.
type Snapshot []string

// TakeSnapshot looks at the whole host. Other programs change it too: compare
// what is yours, or look at Left.
func TakeSnapshot() Snapshot {
	var s Snapshot
	for _, m := range lines("/proc/self/mountinfo") {
		if f := strings.Fields(m); len(f) > 4 {
			s = append(s, "mount "+f[4])
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			s = append(s, "cgroup "+p)
		}
		return nil
	})
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range pids {
		if text := process(p); text != "" {
			s = append(s, "process "+filepath.Base(p)+" "+text)
		}
	}
	for _, n := range lines("/proc/net/dev") {
		if name, _, ok := strings.Cut(n, ":"); ok {
			s = append(s, "interface "+strings.TrimSpace(name))
		}
	}
	for _, kind := range []string{"shm", "msg", "sem"} {
		for _, l := range lines("/proc/sysvipc/" + kind)[1:] {
			if f := strings.Fields(l); len(f) > 1 {
				s = append(s, "sysv "+kind+" "+f[1])
			}
		}
	}
	slices.Sort(s)
	return s
}

// New returns what is in after and not in s.
func (s Snapshot) New(after Snapshot) []string {
	var out []string
	for _, x := range after {
		if _, found := slices.BinarySearch(s, x); !found {
			out = append(out, x)
		}
	}
	return out
}

// Left returns everything on the host that is this identity's own: mounts and
// processes that name its folders, control groups and containers with its
// installation's name, sockets, and every volume of its engine. It is empty when every task has ended.
func (id *Identity) Left() []string {
	inst := id.instance()
	var out []string
	for _, x := range TakeSnapshot() {
		if inst != "" && strings.Contains(x, inst) || strings.Contains(x, id.Dir+"/") {
			out = append(out, x)
		}
	}
	for _, x := range id.atEngine() {
		if inst != "" && strings.Contains(x, inst) || strings.HasPrefix(x, "volume ") {
			out = append(out, x)
		}
	}
	socks, _ := filepath.Glob(id.Runtime + "/*")
	for _, p := range socks {
		out = append(out, "in the runtime folder: "+p)
	}
	return out
}

// instance returns the part that names this installation in the names of its
// control groups, empty before the first task. The inventory is in a database;
// its file holds the name as plain text after "caisson-".
func (id *Identity) instance() string {
	for _, name := range []string{"/state.db", "/state.db-wal"} {
		data, err := os.ReadFile(id.State + name)
		if err != nil {
			continue
		}
		for _, part := range strings.Split(string(data), "/caisson-")[1:] {
			if len(part) > 8 && part[8] == '-' {
				return "caisson-" + part[:9]
			}
		}
	}
	return ""
}

// process returns a process's program and arguments, "" when it is gone.
func process(dir string) string {
	cmdline, err := os.ReadFile(dir + "/cmdline")
	if err != nil || len(cmdline) == 0 {
		return ""
	}
	exe, _ := os.Readlink(dir + "/exe")
	cwd, _ := os.Readlink(dir + "/cwd")
	return strconv.Quote(strings.ReplaceAll(string(cmdline), "\x00", " ")) + " exe " + exe + " cwd " + cwd
}

func lines(name string) []string {
	data, err := os.ReadFile(name)
	if err != nil {
		return []string{""}
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}
