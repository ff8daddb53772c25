package linux

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// systemDirs may be neither a source, nor a place inside that a source takes,
// nor lie within one. An ordinary folder below most of them is fine.
var systemDirs = []string{
	"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/nix", "/nix/store", "/opt", "/proc", "/root", "/run",
	"/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/libx32", "/usr/local",
	"/usr/sbin", "/usr/share", "/usr/src", "/var", "/var/lib", "/var/cache", "/var/log", "/var/run", "/var/tmp",
}

// closedDirs are the places inside below which nothing of a person's may appear.
var closedDirs = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run/boundary", "/sbin", "/sys", "/usr/bin", "/usr/include",
	"/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/libx32", "/usr/sbin", "/usr/share"}

// place is where a file lies in its file system, whatever names lead there: a
// bind mount or a link changes the name, not the place.
type place struct{ dev, path string }

func (p place) contains(q place) bool {
	if p.dev != q.dev {
		return false
	}
	_, in := below(q.path, p.path)
	return in || p.path == q.path
}

// mountTable answers questions about the mounts of this process.
type mountTable []mountEntry

// placeOf finds the place of a path without links.
func (mt mountTable) placeOf(path string) (place, bool) {
	best := -1
	for i, m := range mt {
		_, in := below(path, m.point)
		if (in || path == m.point) && (best < 0 || len(m.point) >= len(mt[best].point)) {
			best = i // a later mount at the same point covers the earlier
		}
	}
	if best < 0 {
		return place{}, false
	}
	rel, in := below(path, mt[best].point)
	if !in {
		rel = ""
	}
	return place{mt[best].dev, filepath.Join(mt[best].root, rel)}, true
}

// exposed lists every place that a recursive bind of path shows.
func (mt mountTable) exposed(path string) []place {
	var out []place
	if p, ok := mt.placeOf(path); ok {
		out = append(out, p)
	}
	for _, m := range mt {
		if _, in := below(m.point, path); in {
			out = append(out, place{m.dev, m.root})
		}
	}
	return out
}

// kernelFS are file systems that show the kernel, its devices or its processes
// instead of files. The host's own never appear in a boundary.
var kernelFS = map[string]bool{
	"proc": true, "sysfs": true, "devtmpfs": true, "devpts": true, "cgroup": true, "cgroup2": true, "debugfs": true, "tracefs": true, "securityfs": true,
	"configfs": true, "pstore": true, "bpf": true, "efivarfs": true, "binfmt_misc": true, "mqueue": true, "nsfs": true, "selinuxfs": true, "fusectl": true,
	"rpc_pipefs": true, "nfsd": true, "resctrl": true,
}

// kernelView returns the first mount of such a file system that a recursive bind
// of path shows.
func (mt mountTable) kernelView(path string) (point, fstype string, found bool) {
	best := -1
	for i, m := range mt {
		_, above := below(path, m.point)
		if (above || path == m.point) && (best < 0 || len(m.point) >= len(mt[best].point)) {
			best = i
		}
		if _, in := below(m.point, path); in && kernelFS[m.fstype] {
			return m.point, m.fstype, true
		}
	}
	if best >= 0 && kernelFS[mt[best].fstype] {
		return mt[best].point, mt[best].fstype, true
	}
	return "", "", false
}

// protected is a host path that must stay apart, resolved.
type protected struct {
	name, real, why string
	at              place
	inodes          [][2]uint64 // of it and of every folder above it
}

func (mt mountTable) protect(path, why string) (protected, bool) {
	if path == "" || !filepath.IsAbs(path) {
		return protected{}, false
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		// What is not there yet is protected by the name it would get.
		dir, derr := filepath.EvalSymlinks(filepath.Dir(path))
		if derr != nil {
			return protected{}, false
		}
		real = filepath.Join(dir, filepath.Base(path))
	}
	p := protected{name: path, real: real, why: why}
	p.at, _ = mt.placeOf(real)
	for d := real; ; d = filepath.Dir(d) {
		var st unix.Stat_t
		if unix.Lstat(d, &st) == nil {
			p.inodes = append(p.inodes, [2]uint64{st.Dev, st.Ino})
		}
		if d == "/" {
			return p, true
		}
	}
}

// containedBy reports whether a bind of path (without links) would show p.
func (p protected) containedBy(path string, mt mountTable) bool {
	if _, in := below(p.real, path); in || p.real == path {
		return true
	}
	for _, e := range mt.exposed(path) {
		if p.at.dev != "" && e.contains(p.at) {
			return true
		}
	}
	return p.aliased(path, mt)
}

// aliased reports whether path is, by another name, p or a folder above it.
func (p protected) aliased(path string, mt mountTable) bool {
	if at, ok := mt.placeOf(path); ok && p.at.dev != "" && at.contains(p.at) {
		return true
	}
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return false
	}
	for _, i := range p.inodes {
		if i == [2]uint64{st.Dev, st.Ino} {
			return true
		}
	}
	return false
}

// holds reports whether a bind of path would show a part of p.
func (p protected) holds(path string, mt mountTable) bool {
	if _, in := below(path, p.real); in || path == p.real {
		return true
	}
	for _, e := range mt.exposed(path) {
		if p.at.dev != "" && p.at.contains(e) {
			return true
		}
	}
	return false
}

// CheckPaths refuses, without any effect, a spec whose mounts would overlap
// what must stay apart: what would be writable inside, and the places inside
// that a person's folders take, may not contain or equal a system folder,
// caisson's own files, another task's, HOME or the root; nothing of Spec.Absent
// may show through any mount. It looks through links and bind mounts. The error
// has the code unsafe_path.
func CheckPaths(s backend.Spec) error {
	s.Tools, _ = reconciled(s)
	mounts, err := readMounts()
	if err != nil {
		return task.Errorf(task.CodeUnavailable, "linux.paths", "read the mount table: %w", err)
	}
	return checkPaths(s, mounts)
}

func checkPaths(s backend.Spec, mt mountTable) error {
	var system, own, binaries []protected
	add := func(list *[]protected, path, why string) {
		if p, ok := mt.protect(path, why); ok {
			*list = append(*list, p)
		}
	}
	for _, d := range systemDirs {
		if d == "/tmp" || d == "/home" || d == "/" { // checked below as equals and ancestors; always there
			add(&system, d, "the system folder")
		} else if _, err := os.Stat(d); err == nil {
			add(&system, d, "the system folder")
		}
	}
	add(&system, s.Identity.Home, "the home folder")
	add(&system, s.Home, "the home folder")
	for _, a := range s.Absent {
		add(&own, a, "caisson's own or another task's files in")
	}
	add(&binaries, s.WorkerPath, "the running program")
	if exe, err := os.Executable(); err == nil {
		add(&binaries, exe, "the running program")
	}

	if err := checkHome(s.Home); err != nil {
		return err
	}
	for _, m := range append([]backend.Mount{s.Source, s.Out}, s.Write...) {
		if m.Source == "" || !m.Writable {
			continue
		}
		for i, list := range [][]protected{system, own, binaries} {
			hint := "work on another folder, named with --repo"
			if i == 1 {
				hint = keptApart
			}
			for _, p := range list {
				if p.containedBy(m.Source, mt) {
					return unsafePath("the writable folder %s contains or is %s %s", m.Source, p.why, p.name).WithHint("%s", hint)
				}
			}
		}
	}
	for _, m := range append(append([]backend.Mount{}, s.RO...), s.Tools...) {
		for _, p := range own {
			if p.containedBy(m.Source, mt) || p.holds(m.Source, mt) {
				return unsafePath("the folder %s would show %s %s", m.Source, p.why, p.name).WithHint(keptApart)
			}
		}
		if m.Source == "/" || m.Source == s.Identity.Home {
			return unsafePath("%s cannot be shown as a whole", m.Source).WithHint("name the folder in it that the task needs")
		}
		if point, fstype, found := mt.kernelView(m.Source); found {
			return unsafePath("the folder %s would show the host's %s at %s", m.Source, fstype, point).WithHint("name a folder that holds files")
		}
		// Whatever is hidden there now, the next service makes its socket anew.
		if hasPrefixDir(m.Source, "/run") && !hasPrefixDir(m.Source, "/run/media") {
			return unsafePath("the folder %s is where services of the host keep their sockets", m.Source).WithHint("copy what is needed to another folder")
		}
	}
	for _, m := range append(append([]backend.Mount{s.Source}, s.Write...), s.Objects...) {
		for _, p := range own {
			if m.Source != "" && p.containedBy(m.Source, mt) {
				return unsafePath("the folder %s would show %s %s", m.Source, p.why, p.name).WithHint(keptApart)
			}
		}
	}
	if s.Rootfs != "" {
		for _, p := range append(own, system[0]) {
			if p.containedBy(s.Rootfs, mt) {
				return unsafePath("the root file system %s contains or is %s %s", s.Rootfs, p.why, p.name).WithHint("give --rootfs a folder that holds an unpacked root and nothing else")
			}
		}
	}
	targets := append(append([]backend.Mount{s.Source}, s.RO...), s.Tools...)
	for i, m := range targets {
		if err := checkTarget(m.Target, s, mt, system, own); err != nil {
			if i > 0 {
				err = err.WithHint("give it another place with --ro DIR:PLACE")
			}
			return err
		}
		for _, o := range targets[:i] {
			if o.Target == m.Target {
				return unsafePath("both %s and %s would appear at %s", o.Source, m.Source, m.Target).WithHint("give one of them another place with --ro DIR:PLACE")
			}
		}
	}
	return nil
}

// checkHome refuses a home that is a system folder: inside it is an empty,
// writable one, which must not cover what programs need.
func checkHome(home string) error {
	bad := slices.Contains([]string{"/", "/usr", "/var", "/run", "/home", "/opt", "/nix"}, home) // homes below these are usual
	for _, d := range closedDirs {
		bad = bad || hasPrefixDir(home, d)
	}
	if bad {
		return unsafePath("the home folder %s is the system's", home).WithHint("set HOME to a folder of your own")
	}
	return nil
}

// keptApart is the next step where a folder would bring caisson's own files along.
const keptApart = "name a folder without it; CAISSON_STATE_DIR and CAISSON_RUNTIME_DIR keep caisson's own files elsewhere"

const otherPlace = "choose another place with --at DIR"

// checkTarget judges a place inside.
func checkTarget(target string, s backend.Spec, mt mountTable, system, own []protected) *task.Error {
	if !filepath.IsAbs(target) || filepath.Clean(target) != target {
		return unsafePath("the place %s is not a clean absolute path", target).WithHint("write it as /some/folder")
	}
	// Only the trial boundary has no source.
	if s.Source.Source == "" && target == s.Source.Target {
		return nil
	}
	for _, d := range closedDirs {
		if _, in := below(target, d); in || target == d {
			return unsafePath("the place %s lies in the system folder %s", target, d).WithHint(otherPlace)
		}
	}
	names := []string{target}
	if real, err := filepath.EvalSymlinks(target); err == nil && real != target {
		names = append(names, real)
	}
	for _, name := range names {
		for i, p := range append(append([]protected{}, system...), own...) {
			hint := otherPlace
			if i >= len(system) {
				hint = keptApart
			}
			// By name for what is not there, by place for what is.
			_, in := below(p.real, name)
			_, named := below(p.name, name)
			if in || named || p.real == name || p.name == name {
				return unsafePath("the place %s contains or is %s %s", target, p.why, p.name).WithHint("%s", hint)
			}
			if _, err := os.Lstat(name); err == nil && p.aliased(name, mt) {
				return unsafePath("the place %s contains or is, by a link or a mount, %s %s", target, p.why, p.name).WithHint("%s", hint)
			}
		}
		for _, p := range own {
			if p.holds(name, mt) {
				return unsafePath("the place %s lies in %s %s", target, p.why, p.name).WithHint(otherPlace)
			}
		}
	}
	return nil
}

func unsafePath(format string, args ...any) *task.Error {
	return task.Errorf(task.CodeUnsafePath, "linux.paths", format, args...)
}
