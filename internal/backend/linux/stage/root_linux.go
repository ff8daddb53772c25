package stage

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The two empty things that masks are binds of, on the read-only root.
const (
	emptyFile = "/run/boundary/.empty"
	emptyDir  = "/run/boundary/.void"
)

// BuildRoot makes W's own root out of the plan and enters it. It must run right
// after clone, in the new namespaces, with the set-up capabilities. It closes
// fds and returns an O_PATH descriptor of the boundary's own devpts, which the
// caller sends to the host and closes.
func BuildRoot(p *Plan, fds []int) (devpts int, err error) {
	const step = "root"
	defer closeAll(fds)
	old := unix.Umask(0)
	defer unix.Umask(old)

	// Nothing mounted here may show on the host, nor the other way round.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, fail(step, "make mounts private", err)
	}
	limitUser(p.UserLimits)
	b := &builder{step: step, root: -1}
	// Sources are opened before anything covers the host path they lie under.
	srcs, err := b.sources(p.Steps, fds)
	defer func() { closeAll(srcs) }()
	if err != nil {
		return -1, err
	}
	if b.root, err = newRoot(); err != nil {
		return -1, err
	}
	defer unix.Close(b.root)
	if err := b.mkdir("/run/boundary", 0o755); err != nil {
		return -1, err
	}
	if err := b.mkdir(emptyDir, 0o555); err != nil {
		return -1, err
	}
	if err := b.file(emptyFile, 0o444, ""); err != nil {
		return -1, err
	}
	devpts = -1
	defer func() {
		if err != nil && devpts >= 0 {
			unix.Close(devpts)
			devpts = -1
		}
	}()
	for i, s := range p.Steps {
		if err := b.run(s, srcs[i]); err != nil {
			return devpts, err
		}
		if s.Op == "devpts" && devpts < 0 {
			if devpts, err = b.open(s.Target, 0); err != nil {
				return -1, fail(step, "open devpts", err)
			}
		}
	}
	if devpts < 0 {
		return -1, &Error{Step: step, Op: "open devpts", Detail: "the plan has none"}
	}
	if err := enter(b.root); err != nil {
		return devpts, err
	}
	if err := unix.Sethostname([]byte(p.Hostname)); err != nil {
		return devpts, fail(step, "set the host name", err)
	}
	if err := loopbackUp(); err != nil {
		return devpts, fail(step, "bring the loopback interface up", err)
	}
	return devpts, nil
}

// limitUser lowers limits of this user namespace. A host whose /proc/sys is
// read-only (a container) does not let it; then the host's own limits hold.
func limitUser(limits map[string]int) {
	for name, n := range limits {
		fd, err := unix.Open("/proc/sys/user/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_, _ = unix.Write(fd, []byte(strconv.Itoa(n)))
		unix.Close(fd)
	}
}

// newRoot makes the tmpfs that becomes the root and attaches it where W can
// still reach it: over a host folder of its own private mount namespace.
func newRoot() (int, error) {
	const step = "root"
	fd, err := fsMount("tmpfs", []string{"size=16m", "nr_inodes=16384", "mode=0755"}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, fail(step, "mount the root tmpfs", err)
	}
	for _, dir := range []string{"/tmp", "/usr", "/dev", "/etc"} {
		if err = unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err == nil {
			return fd, nil
		}
	}
	unix.Close(fd)
	return -1, fail(step, "attach the root tmpfs", err)
}

// enter makes root the root and drops every host mount.
func enter(root int) error {
	const step = "root"
	if err := unix.Fchdir(root); err != nil {
		return fail(step, "enter", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fail(step, "pivot", err)
	}
	// Both are "." now; the old one is on top.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fail(step, "drop the host's mounts", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fail(step, "enter", err)
	}
	return fail(step, "make the root read-only", setAttr(unix.AT_FDCWD, "/", 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
}

// loopbackUp raises lo, the only interface there is.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
}

// builder runs steps relative to one root.
type builder struct {
	step string
	root int
}

// sources opens a detached mount for each step that has one; -1 elsewhere.
func (b *builder) sources(steps []Step, fds []int) ([]int, error) {
	out := make([]int, len(steps))
	for i := range out {
		out[i] = -1
	}
	for i, s := range steps {
		if s.Op != "bind" && s.Op != "dev" {
			continue
		}
		fd, err := b.source(s, fds)
		if err != nil {
			if s.has("optional") && errors.Is(err, unix.ENOENT) {
				continue
			}
			closeAll(out)
			return nil, fail(b.step, "open "+s.Source, err)
		}
		out[i] = fd
	}
	return out, nil
}

func (b *builder) source(s Step, fds []int) (int, error) {
	if s.FD > 0 {
		if s.FD > len(fds) {
			return -1, errors.New("its descriptor did not come with the plan")
		}
		fd, err := unix.FcntlInt(uintptr(fds[s.FD-1]), unix.F_DUPFD_CLOEXEC, 4)
		if err != nil {
			return -1, err
		}
		return b.checked(fd, s)
	}
	path, err := unix.Openat2(unix.AT_FDCWD, s.Source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return -1, err
	}
	if path, err = b.checked(path, s); err != nil {
		return -1, err
	}
	defer unix.Close(path)
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if s.Op == "bind" {
		flags |= unix.AT_RECURSIVE
	}
	return unix.OpenTree(path, "", flags)
}

// checked compares what was opened with what the host saw, and closes it when
// it is something else: a name alone proves nothing.
func (b *builder) checked(fd int, s Step) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	switch {
	case s.Op == "dev" && (st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != s.Dev):
		unix.Close(fd)
		return -1, errors.New("it is not the device it should be")
	case s.Op == "bind" && (s.Ino == 0 || st.Dev != s.Dev || st.Ino != s.Ino):
		unix.Close(fd)
		return -1, errors.New(Replaced)
	}
	return fd, nil
}

// run executes one step. src is the step's detached mount, -1 when it has none.
func (b *builder) run(s Step, src int) error {
	switch s.Op {
	case "dir":
		return b.mkdir(s.Target, s.Mode)
	case "file":
		return b.file(s.Target, s.Mode, s.Data)
	case "link":
		return b.link(s.Target, s.Data)
	case "bind", "dev":
		if src < 0 {
			return nil // optional and absent
		}
		return b.bind(s, src)
	case "tmpfs", "proc", "devpts", "mqueue":
		return b.mount(s)
	case "mask":
		return b.mask(s)
	case "over":
		return b.over(s, unix.MOUNT_ATTR_RDONLY)
	case "part":
		if err := b.mkdir(s.Target, 0o755); err != nil {
			return err
		}
		return b.over(s, 0)
	case "drop":
		return b.drop(s.Target)
	case "rotree":
		return b.readOnlyTree(s)
	case "readonly":
		t, err := b.open(s.Target, 0)
		if err != nil {
			return fail(b.step, "open "+s.Target, err)
		}
		defer unix.Close(t)
		return fail(b.step, "make "+s.Target+" read-only", setAttr(t, "", unix.AT_EMPTY_PATH, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
	}
	return &Error{Step: b.step, Op: "run the plan", Detail: "unknown operation " + s.Op}
}

func (b *builder) bind(s Step, src int) error {
	op := "mount " + s.Target
	attr := unix.MountAttr{Attr_set: uint64(s.attrs()) | unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_PRIVATE}
	if s.Op == "bind" {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	if err := setAttr(src, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		return fail(b.step, op, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return fail(b.step, op, err)
	}
	var err error
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = b.mkdir(s.Target, 0o755)
	} else {
		err = b.file(s.Target, 0o444, "")
	}
	if err != nil {
		return err
	}
	return b.attach(src, s.Target)
}

// mount mounts a new file system of the step's own kind.
func (b *builder) mount(s Step) error {
	op := "mount " + s.Op
	if s.Op == "tmpfs" {
		op = "mount a tmpfs at " + s.Target
	}
	var opts []string
	if s.Data != "" {
		opts = strings.Split(s.Data, ",")
	}
	fd, err := fsMount(s.Op, opts, s.attrs()|unix.MOUNT_ATTR_NOSUID)
	if err != nil {
		if s.has("optional") {
			return nil
		}
		return fail(b.step, op, err)
	}
	defer unix.Close(fd)
	if err := b.mkdir(s.Target, 0o755); err != nil {
		return err
	}
	return b.attach(fd, s.Target)
}

// mask covers a file or folder with an empty read-only one.
func (b *builder) mask(s Step) error {
	op := "mask " + s.Target
	t, err := b.open(s.Target, 0)
	if err != nil {
		if s.has("optional") && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES)) {
			return nil
		}
		return fail(b.step, op, err)
	}
	defer unix.Close(t)
	var st unix.Stat_t
	if err := unix.Fstat(t, &st); err != nil {
		return fail(b.step, op, err)
	}
	from := emptyFile
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		from = emptyDir
	}
	src, err := b.clone(from, 0)
	if err != nil {
		return fail(b.step, op, err)
	}
	defer unix.Close(src)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if err := setAttr(src, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fail(b.step, op, err)
	}
	return fail(b.step, op, move(src, t))
}

// over covers a file or folder with another one that lies elsewhere below the
// root.
func (b *builder) over(s Step, attrs uint64) error {
	src, err := b.clone(s.Source, 0)
	if err != nil {
		return fail(b.step, "open "+s.Source, err)
	}
	defer unix.Close(src)
	attr := unix.MountAttr{Attr_set: attrs | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if err := setAttr(src, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fail(b.step, "mount "+s.Target, err)
	}
	return b.attach(src, s.Target)
}

// drop takes a mount away from its place; what was mounted of it elsewhere stays.
func (b *builder) drop(target string) error {
	t, err := b.open(target, unix.O_DIRECTORY)
	if err != nil {
		return fail(b.step, "open "+target, err)
	}
	defer unix.Close(t)
	if err = unix.Fchdir(t); err == nil {
		err = unix.Unmount(".", unix.MNT_DETACH)
	}
	return fail(b.step, "take away "+target, errors.Join(err, unix.Fchdir(b.root)))
}

// readOnlyTree makes what is below a folder of a mount read-only by binding it
// over itself.
func (b *builder) readOnlyTree(s Step) error {
	op := "make " + s.Target + " read-only"
	src, err := b.clone(s.Target, unix.AT_RECURSIVE)
	if err != nil {
		if s.has("optional") && errors.Is(err, unix.ENOENT) {
			return nil
		}
		return fail(b.step, op, err)
	}
	defer unix.Close(src)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if err := setAttr(src, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		return fail(b.step, op, err)
	}
	return b.attach(src, s.Target)
}

func (b *builder) clone(path string, flags uint) (int, error) {
	t, err := b.open(path, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(t)
	return unix.OpenTree(t, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|flags)
}

func (b *builder) attach(src int, target string) error {
	t, err := b.open(target, 0)
	if err != nil {
		return fail(b.step, "open "+target, err)
	}
	defer unix.Close(t)
	return fail(b.step, "mount "+target, move(src, t))
}

func move(src, dst int) error {
	return unix.MoveMount(src, "", dst, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

func setAttr(fd int, path string, flags uint, a unix.MountAttr) error {
	return unix.MountSetattr(fd, path, flags, &a)
}

func fsMount(fs string, opts []string, attrs int) (int, error) {
	ctx, err := unix.Fsopen(fs, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(ctx)
	for _, o := range opts {
		if k, v, ok := strings.Cut(o, "="); ok {
			err = unix.FsconfigSetString(ctx, k, v)
		} else {
			err = unix.FsconfigSetFlag(ctx, o)
		}
		if err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, err
	}
	return unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
}

func (s Step) has(flag string) bool {
	for _, f := range s.Flags {
		if f == flag {
			return true
		}
	}
	return false
}

func (s Step) attrs() int {
	a := 0
	if s.has("ro") {
		a |= unix.MOUNT_ATTR_RDONLY
	}
	if s.has("nodev") {
		a |= unix.MOUNT_ATTR_NODEV
	}
	if s.has("noexec") {
		a |= unix.MOUNT_ATTR_NOEXEC
	}
	return a
}
