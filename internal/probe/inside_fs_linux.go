package probe

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readPath tries to read the first bytes of a file or one name of a folder. A mask (an
// empty file or folder in its place) counts as refused.
func readPath(path string) Result {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		// ENXIO: a socket is there. ENOTDIR: a parent is not the host's folder.
		return verdict(errnoOf(err), unix.ENXIO).also(unix.ENOTDIR)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return failed(err, "stat")
	}
	buf := make([]byte, 4096)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		for {
			n, err := unix.ReadDirent(fd, buf)
			if err != nil {
				return verdict(errnoOf(err))
			}
			if n <= 0 {
				return Result{Outcome: Denied, Detail: "an empty folder"}
			}
			if _, _, names := unix.ParseDirent(buf[:n], -1, nil); len(names) > 0 {
				return Result{Outcome: Allowed, Detail: "a folder with entries"}
			}
		}
	}
	n, err := unix.Read(fd, buf[:8]) // some files of /proc give whole words only
	if err != nil {
		return verdict(errnoOf(err), unix.EAGAIN)
	}
	if n == 0 {
		return Result{Outcome: Denied, Detail: "an empty file"}
	}
	return Result{Outcome: Allowed, Detail: "read"}
}

// absent tries to read one of the host's secrets, by a way that leads to the root.
func (in *inside) absent(way, path string) Result {
	r := readPath(way + path)
	if r.Outcome != Allowed || in.spec.Source == "" || !below(path, in.spec.Source) {
		return r
	}
	var st unix.Stat_t
	if want := in.spec.Ident[path]; want != "" && unix.Stat(way+path, &st) == nil && ident(&st) != want {
		return Result{Outcome: Denied, Detail: "another file of that name, in the source"}
	}
	return r
}

func ident(st *unix.Stat_t) string {
	return strconv.FormatUint(uint64(st.Dev), 10) + ":" + strconv.FormatUint(st.Ino, 10)
}

// openWrite opens an existing file for writing, without changing it.
func openWrite(path string) Result {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return verdict(errnoOf(err)).also(unix.ENOTDIR)
	}
	unix.Close(fd)
	return Result{Outcome: Allowed}
}

// create makes a file in dir and takes it away again; for a file it opens it
// for writing.
func (in *inside) create(dir string) Result {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil { // nameless: nothing to take away
		unix.Close(fd)
		return Result{Outcome: Allowed}
	}
	if err == unix.ENOTDIR {
		return openWrite(dir)
	}
	if err != unix.EOPNOTSUPP && err != unix.EISDIR && err != unix.ENOENT && err != unix.EINVAL {
		return verdict(errnoOf(err))
	}
	path := strings.TrimSuffix(dir, "/") + "/.caisson-probe-" + strconv.Itoa(in.pid)
	fd, err = unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return verdict(errnoOf(err))
	}
	unix.Close(fd)
	if err := unix.Unlink(path); err != nil {
		return Result{Outcome: Allowed, Errno: errnoName(errnoOf(err)), Detail: "could not be removed again"}
	}
	return Result{Outcome: Allowed}
}

func (in *inside) mountTable(string) Result {
	if len(in.mounts) == 0 {
		return Result{Outcome: Failed, Detail: "no mount table"}
	}
	stray := strayMounts(in.spec, in.mounts)
	return boolResult(len(stray) == 0, strings.Join(stray[:min(len(stray), 8)], ", "))
}

// connectUnix tries every type of unix socket. Only an address that nothing
// answers, or a refused family, is a refusal.
func connectUnix(path string) Result {
	sa := &unix.SockaddrUnix{Name: path}
	if strings.HasPrefix(path, "\x00") {
		sa.Name = "@" + path[1:]
	}
	var last Result
	for _, typ := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		fd, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			last = verdict(errnoOf(err))
			continue
		}
		err = unix.Connect(fd, sa)
		unix.Close(fd)
		// EPROTOTYPE: another type listens there. EAGAIN: its queue is full.
		last = verdict(errnoOf(err), unix.EAGAIN).also(unix.ENOTDIR)
		if err == unix.EPROTOTYPE {
			last.Detail = "a socket of another type"
			continue
		}
		if err == unix.EINVAL && len(sa.Name) > 107 {
			return connectLong(path, typ)
		}
		return last
	}
	if last.Errno == "EPROTOTYPE" {
		last.Outcome = Allowed
	}
	return last
}

// connectLong reaches a socket whose path does not fit an address through a
// descriptor of its folder.
func connectLong(path string, typ int) Result {
	dir, name, ok := cutLast(path, '/')
	if !ok || len(name) > 60 {
		return Result{Outcome: Failed, Detail: "path too long"}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return verdict(errnoOf(err)).also(unix.ENOTDIR)
	}
	defer unix.Close(fd)
	s, err := unix.Socket(unix.AF_UNIX, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return verdict(errnoOf(err))
	}
	defer unix.Close(s)
	err = unix.Connect(s, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(fd) + "/" + name})
	return verdict(errnoOf(err), unix.EAGAIN, unix.EPROTOTYPE)
}

// listUnix looks for the host's sockets in the kernel's list.
func (in *inside) listUnix(string) Result {
	b, err := readFile("/proc/self/net/unix")
	if err != nil {
		return verdict(errnoOf(err))
	}
	want := map[string]bool{}
	for _, l := range [][]string{in.spec.Control, in.spec.Agents} {
		for _, p := range l {
			want[p] = true
		}
	}
	for _, a := range in.spec.Abstract {
		want["@"+a] = true
	}
	for _, l := range lines(b) {
		if f := strings.SplitN(strings.TrimSpace(l), " ", 8); len(f) == 8 && want[lastField(l)] {
			return Result{Outcome: Allowed, Detail: lastField(l)}
		}
	}
	return Result{Outcome: Denied, Detail: strconv.Itoa(max(0, len(lines(b))-1)) + " sockets, none of the host"}
}

// lastField returns the path column of a line of /proc/net/unix.
func lastField(l string) string {
	if f := strings.Fields(l); len(f) >= 8 {
		if i := strings.Index(l, f[7]); i >= 0 && len(f) == 8 {
			return f[7]
		}
		return strings.Join(f[7:], " ")
	}
	return ""
}

// descriptors counts what this program inherited: exec closes everything that
// is marked close-on-exec, and the Go runtime marks all of its own.
func (in *inside) descriptors(string) Result {
	var left []string
	for _, fd := range openFDs() {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == unix.EBADF {
			continue
		}
		if err != nil {
			return failed(err, "fcntl")
		}
		if flags&unix.FD_CLOEXEC == 0 {
			name, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			left = append(left, strconv.Itoa(fd)+" "+name)
		}
	}
	return boolResult(len(left) == 0, strings.Join(left[:min(len(left), 8)], ", "))
}

// openFDs returns the descriptors above 2 that may be open: as /proc lists them,
// or all numbers where it does not.
func openFDs() []int {
	var out []int
	if names, err := listDir("/proc/self/fd"); err == nil && len(names) > 0 {
		for _, n := range names {
			if fd, err := strconv.Atoi(n); err == nil && fd > 2 {
				out = append(out, fd)
			}
		}
		return out
	}
	limit := uint64(4096)
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		limit = min(limit, r.Cur)
	}
	for fd := 3; fd < int(limit); fd++ {
		out = append(out, fd)
	}
	return out
}

func (in *inside) devices(string) Result {
	names, err := listDir("/dev")
	if err != nil {
		return verdict(errnoOf(err))
	}
	in.facts.Devices = names[:min(len(names), MaxTargets)]
	var more []string
	for _, n := range names {
		if !minimalDev[n] {
			more = append(more, n)
		}
	}
	return boolResult(len(more) == 0, strings.Join(more[:min(len(more), 8)], " "))
}

// mknod makes a node for the kernel's null device where files can be made.
func (in *inside) mknod(string) Result {
	last := Result{Outcome: Failed, Detail: "no writable folder to try it in"}
	for _, dir := range append([]string{in.spec.Home, "/tmp"}, in.spec.Writable...) {
		if dir == "" {
			continue
		}
		path := strings.TrimSuffix(dir, "/") + "/.caisson-probe-node-" + strconv.Itoa(in.pid)
		err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
		if err == nil {
			_ = unix.Unlink(path)
			return Result{Outcome: Allowed}
		}
		if err == unix.ENOENT || err == unix.EROFS || err == unix.ENOTDIR {
			continue // the folder, not the node, was refused
		}
		return verdict(errnoOf(err))
	}
	return last
}

func (in *inside) coreLimit(string) Result {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &r); err != nil {
		return failed(err, "getrlimit")
	}
	return boolResult(r.Max == 0, "hard limit "+strconv.FormatUint(r.Max, 10))
}

// environment compares names only; values are never looked at.
func (in *inside) environment(string) Result {
	// A shell or a terminal sets these by itself.
	plan := map[string]bool{"PWD": true, "OLDPWD": true, "SHLVL": true, "_": true, "TERM": true, "COLUMNS": true, "LINES": true}
	for _, n := range in.spec.Env {
		plan[n] = true
	}
	var more []string
	for _, kv := range os.Environ() {
		n, _, _ := strings.Cut(kv, "=")
		if len(in.facts.Env) < MaxTargets {
			in.facts.Env = append(in.facts.Env, n)
		}
		if !plan[n] {
			more = append(more, n)
		}
	}
	return boolResult(len(more) == 0, strings.Join(more[:min(len(more), 8)], " "))
}
