package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// cgroupPrefix starts the name of every cgroup of ours. The rest is the
// installation, the task and the start of the token: see groupName.
const cgroupPrefix = "caisson-"

// groupName names a boundary's cgroup in each hierarchy. It carries enough of
// the token that a stranger's cgroup cannot have it by accident.
func groupName(instance string, id task.ID, token string) string {
	return cgroupPrefix + instance + "-" + string(id) + "-" + token[:min(8, len(token))]
}

// hierarchy is one mounted cgroup tree and the place in it below which this
// process may make groups.
type hierarchy struct {
	v2     bool
	parent string          // absolute path of the folder in which groups are made
	ctl    map[string]bool // controllers that groups made there get
}

// cgroupRoots are the files that describe the layout; tests point them at a
// made-up machine.
type cgroupRoots struct {
	mountinfo, self string
	root            bool // we are root: other cgroups than our own may be parents
}

// hierarchies finds where groups can be made: on cgroup v1 and the hybrid
// layout below our own cgroup of each controller, and in the v2 tree, which
// even without controllers kills a group as one.
func hierarchies(r cgroupRoots) []hierarchy {
	mounts, err := readFile(r.mountinfo)
	if err != nil {
		return nil
	}
	self, err := readFile(r.self)
	if err != nil {
		return nil
	}
	own := map[string]string{} // controller ("" for v2) → our path
	for _, line := range strings.Split(string(self), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			own[c] = f[2]
		}
	}
	var out []hierarchy
	for _, m := range parseMountinfo(string(mounts)) {
		switch m.fstype {
		case "cgroup2":
			if dir, ok := ownGroup(m, own[""]); ok {
				if h, ok := v2Parent(m.point, dir, r.root); ok {
					out = append(out, h)
				}
			}
		case "cgroup":
			ctl := map[string]bool{}
			var path string
			for _, o := range strings.Split(m.super, ",") {
				if p, ok := own[o]; ok && (o == "memory" || o == "pids" || o == "cpu") {
					ctl[o], path = true, p
				}
			}
			if len(ctl) == 0 {
				continue
			}
			if dir, ok := ownGroup(m, path); ok && unix.Access(dir, unix.W_OK) == nil {
				out = append(out, hierarchy{parent: dir, ctl: ctl})
			}
		}
	}
	return out
}

// ownGroup translates our path in a hierarchy into a folder below its mount.
func ownGroup(m mountEntry, path string) (string, bool) {
	if path == "" || strings.HasPrefix(path, "/..") {
		return "", false
	}
	rel := path
	if m.root != "/" {
		var ok bool
		if rel, ok = strings.CutPrefix(path, m.root); !ok || (rel != "" && rel[0] != '/') {
			return "", false
		}
	}
	return filepath.Join(m.point, rel), true
}

// v2Parent chooses the folder of the v2 tree in which groups get the memory,
// pids and cpu controllers. A group with processes of its own cannot give
// controllers to its children, so usually it is an ancestor that does so
// already. Moving a process needs write access to the common ancestor too,
// hence only ancestors that we may write.
func v2Parent(mount, own string, root bool) (hierarchy, bool) {
	var best *hierarchy
	for dir := own; strings.HasPrefix(dir, mount); dir = filepath.Dir(dir) {
		if unix.Access(dir, unix.W_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
			break
		}
		h := hierarchy{v2: true, parent: dir, ctl: map[string]bool{}}
		data, _ := readFile(filepath.Join(dir, "cgroup.subtree_control"))
		for _, c := range strings.Fields(string(data)) {
			if c == "memory" || c == "pids" || c == "cpu" {
				h.ctl[c] = true
			}
		}
		if best == nil || len(h.ctl) > len(best.ctl) {
			best = &h
		}
		if len(best.ctl) == 3 || dir == mount {
			break
		}
	}
	if best == nil {
		return hierarchy{}, false
	}
	return *best, true
}

// group is one cgroup of a boundary.
type group struct {
	hierarchy
	dir   string
	ino   uint64 // 0: not made yet
	scope string // the unit, when systemd made it
	// nested: processes are in a group below dir, innerGroup. Tools that may
	// mount see no further up than that, so not the files with the limits, which
	// belong to their own user where the groups do.
	nested bool
}

const innerGroup = "inner"

// members is the folder of the group that the processes are in.
func (g *group) members() string {
	if g.nested {
		return filepath.Join(g.dir, innerGroup)
	}
	return g.dir
}

// groups names, without making them, the groups of one boundary.
func groups(hs []hierarchy, name string) []*group {
	var out []*group
	for _, h := range hs {
		out = append(out, &group{hierarchy: h, dir: filepath.Join(h.parent, name)})
	}
	return out
}

// limited reports which controllers bound the groups.
func limited(gs []*group) map[string]bool {
	out := map[string]bool{}
	for _, g := range gs {
		for c := range g.ctl {
			out[c] = true
		}
	}
	return out
}

// create makes the group and sets its limits. A group of that name that exists
// already is not ours to use.
func (g *group) create(l task.Limits) error {
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(g.dir, &st); err != nil {
		return err
	}
	g.ino = st.Ino
	if g.nested {
		if err := os.Mkdir(g.members(), 0o755); err != nil {
			return err
		}
	}
	for _, s := range g.settings(l) {
		err := g.write(s.file, s.value)
		if errors.Is(err, fs.ErrNotExist) && s.optional {
			continue
		}
		if err != nil {
			return fmt.Errorf("set %s to %s: %w", filepath.Join(g.dir, s.file), s.value, err)
		}
	}
	return nil
}

// setting is one control file and what is written to it.
type setting struct {
	file, value string
	optional    bool // not every kernel has the file
}

const cpuPeriod = 100000 // microseconds

func (g *group) settings(l task.Limits) []setting {
	var out []setting
	quota := strconv.FormatInt(int64(l.CPUs*cpuPeriod), 10)
	mem := strconv.FormatInt(l.MemoryBytes, 10)
	switch {
	case g.ctl["memory"] && g.v2:
		out = append(out, setting{"memory.max", mem, false}, setting{"memory.swap.max", "0", true})
	case g.ctl["memory"]:
		out = append(out, setting{"memory.limit_in_bytes", mem, false}, setting{"memory.memsw.limit_in_bytes", mem, true})
	}
	if g.ctl["pids"] {
		out = append(out, setting{"pids.max", strconv.FormatInt(l.Pids, 10), false})
	}
	switch {
	case g.ctl["cpu"] && g.v2:
		out = append(out, setting{"cpu.max", quota + " " + strconv.Itoa(cpuPeriod), false})
	case g.ctl["cpu"]:
		out = append(out, setting{"cpu.cfs_period_us", strconv.Itoa(cpuPeriod), true}, setting{"cpu.cfs_quota_us", quota, true})
	}
	return out
}

// verify compares what the kernel says the limits are with the plan.
func (g *group) verify(l task.Limits) error {
	for _, s := range g.settings(l) {
		got, err := g.read(s.file)
		if errors.Is(err, fs.ErrNotExist) && s.optional {
			continue
		}
		if err != nil {
			return err
		}
		if got != s.value && !pageRounded(got, s.value) {
			return fmt.Errorf("%s is %s, not %s", filepath.Join(g.dir, s.file), got, s.value)
		}
	}
	return nil
}

// pageRounded reports whether got is want rounded down to whole pages, as the
// kernel keeps memory limits.
func pageRounded(got, want string) bool {
	g, err1 := strconv.ParseInt(got, 10, 64)
	w, err2 := strconv.ParseInt(want, 10, 64)
	return err1 == nil && err2 == nil && g <= w && w-g < int64(os.Getpagesize())
}

func (g *group) add(pid int) error {
	return writeFile(filepath.Join(g.members(), "cgroup.procs"), strconv.Itoa(pid))
}

func (g *group) write(file, value string) error {
	return writeFile(filepath.Join(g.dir, file), value)
}

func (g *group) read(file string) (string, error) {
	return readControl(filepath.Join(g.dir, file))
}

func readControl(path string) (string, error) {
	data, err := readFile(path)
	return strings.TrimSpace(string(data)), err
}

// groupsBelow returns the groups inside dir, the deepest first: a task that may mount
// can have made some.
func groupsBelow(dir string) []string {
	var out []string
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && p != dir {
			out = append(out, p)
		}
		return nil
	})
	slices.Reverse(out)
	return out
}

// exists reports whether the group is there and still the one that was made.
func (g *group) exists() (bool, error) {
	var st unix.Stat_t
	err := unix.Lstat(g.dir, &st)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return g.ino == 0 || st.Ino == g.ino, nil
}

// remove kills what is left in the group and removes it. nil means that the
// group is observed to be absent.
func (g *group) remove(ctx context.Context) error {
	delay := time.Millisecond
	for {
		there, err := g.exists()
		if err != nil || !there {
			return err
		}
		if g.v2 {
			// Kills all at once, also what forks meanwhile (kernel 5.14).
			_ = g.write("cgroup.kill", "1")
		} else {
			for _, dir := range append(groupsBelow(g.dir), g.dir) {
				killEach(dir)
			}
		}
		for _, dir := range groupsBelow(g.dir) {
			_ = unix.Rmdir(dir)
		}
		err = unix.Rmdir(g.dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		select {
		case <-ctx.Done():
			procs, _ := g.read("cgroup.procs")
			return fmt.Errorf("cgroup %s is still there (%v; processes %q)", g.dir, err, strings.Fields(procs))
		case <-time.After(delay):
			delay = min(2*delay, 50*time.Millisecond)
		}
	}
}

// killEach kills the members of the v1 group dir. Each is held by a descriptor
// before it is looked up again, so that a reused pid is never hit.
func killEach(dir string) {
	members := filepath.Join(dir, "cgroup.procs")
	procs, _ := readControl(members)
	for _, p := range strings.Fields(procs) {
		pid, err := strconv.Atoi(p)
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue // ourselves: a thread that starts W is on its way out
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		now, _ := readControl(members)
		for _, q := range strings.Fields(now) {
			if q == p {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			}
		}
		unix.Close(fd)
	}
}
