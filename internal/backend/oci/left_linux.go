package oci

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// processesLocked are the living processes that are proven to be the boundary's: the one on
// record, those in a group of its name, and those of the runtime's own program that
// were started with its folder.
func (in *instance) processesLocked(name string, m *made) ([]sys.Ident, error) {
	var out []sys.Ident
	if in.ident != nil && sys.Look(*in.ident) == sys.Living {
		out = append(out, *in.ident)
	}
	pids, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var exe unix.Stat_t
	have := m.Program != "" && unix.Stat(m.Program, &exe) == nil
	for _, e := range pids {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// What it is, is looked at between two looks at who it is.
		id, err := sys.Identify(pid)
		if err != nil || !in.marked(pid, name, m, have, &exe) || sys.Look(id) != sys.Living {
			continue
		}
		out = append(out, id)
	}
	return out, nil
}

// marked reports whether process pid carries a mark of the boundary that nobody else
// can have.
func (in *instance) marked(pid int, name string, m *made, have bool, exe *unix.Stat_t) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	if b, err := os.ReadFile(dir + "/cgroup"); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && (strings.HasSuffix(f[2], "/"+name) || strings.Contains(f[2], "/"+name+"/")) {
				return true
			}
		}
	}
	if !have || m.State == "" {
		return false
	}
	b, err := os.ReadFile(dir + "/cmdline")
	if err != nil || !bytes.Contains(b, []byte(m.State+"\x00")) {
		return false
	}
	var st unix.Stat_t
	return unix.Stat(dir+"/exe", &st) == nil && st.Dev == exe.Dev && st.Ino == exe.Ino
}

// roots are the places of group trees.
func roots() []string {
	out, _ := filepath.Glob("/sys/fs/cgroup/*")
	return append(out, "/sys/fs/cgroup")
}

// groupsNamed are the control groups of a name that nobody else's can have: the
// runtime makes them at the top of each tree, or below the group that it is in.
func groupsNamed(name string) []string {
	if !strings.HasPrefix(name, prefix) || strings.Contains(name, "/") {
		return nil
	}
	var out []string
	own, _ := os.ReadFile("/proc/self/cgroup")
	seen := map[string]bool{}
	for _, root := range roots() {
		places := []string{root}
		for line := range strings.Lines(string(own)) {
			if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && f[2] != "/" && !strings.Contains(f[2], "..") {
				places = append(places, filepath.Join(root, f[2]))
			}
		}
		for _, p := range places {
			dir := filepath.Join(p, name)
			if st, err := os.Lstat(dir); err == nil && st.IsDir() && !seen[dir] {
				seen[dir] = true
				out = append(out, dir)
			}
		}
	}
	return out
}

// removeGroups removes them; what runs in one is ended before.
func removeGroups(name string) error {
	var errs []error
	for _, dir := range groupsNamed(name) {
		// Groups that something inside made lie deeper.
		var all []string
		_ = filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, p)
			}
			return nil
		})
		for i := len(all) - 1; i >= 0; i-- {
			if err := unix.Rmdir(all[i]); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("the control group %s: %w", all[i], err))
			}
		}
	}
	return errors.Join(errs...)
}

// canGroup reports whether control groups can be made at the top of the trees.
func canGroup() bool {
	if os.Geteuid() != 0 {
		return false
	}
	for _, p := range []string{"/sys/fs/cgroup/cgroup.subtree_control", "/sys/fs/cgroup/memory/cgroup.procs"} {
		if unix.Access(p, unix.W_OK) == nil {
			return true
		}
	}
	return false
}

// mountsBelow lists what is mounted below dir, inner places first.
func mountsBelow(dir string) []string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			out = append([]string{f[4]}, out...)
		}
	}
	return out
}
