package stage

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LandlockABI returns the kernel's Landlock version, 0 when it has none.
func LandlockABI() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

const (
	landlockRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// landlockFile are the rights that make sense on something that is not a folder.
	landlockFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// handled returns the filesystem rights and scopes that ABI abi can restrict.
func handled(abi int) (fs, scopes uint64) {
	fs = 1<<13 - 1 // EXECUTE … MAKE_SYM
	if abi >= 2 {
		fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		scopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	if abi >= 9 {
		fs |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	return fs, scopes
}

// landlock restricts the calling thread, and with it everything that this
// thread starts. Only this one: threads that each restrict themselves stand in
// domains that cannot signal each other, and so would their children. Everything below the root may be read and run: what may be seen is
// decided by the mounts, and a descriptor that leads elsewhere gives nothing.
// Only what the plan lists may be changed.
//
// Of /proc nothing: a tool that lowered its own oom_score_adj could have the
// kernel end I or W in its place. Who may trace needs the memory of others there.
// tree is the one /proc in which scores may be written; no path leads to it.
func landlock(p *Plan, tree int) error {
	rules := []pathRule{
		{"/", landlockRead},
		// The worker's own file lies outside every mount; calls start from it.
		{"/proc/self/exe", unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE},
		{"/dev", unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
	}
	if tree >= 0 {
		rules = append(rules, pathRule{"/proc/self/fd/" + strconv.Itoa(tree), unix.LANDLOCK_ACCESS_FS_WRITE_FILE})
	}
	if p.Ptrace || tree < 0 {
		rules = append(rules, pathRule{"/proc", unix.LANDLOCK_ACCESS_FS_WRITE_FILE})
	}
	for _, w := range p.Landlock {
		rules = append(rules, pathRule{w, ^uint64(0)})
	}
	set, err := ruleset(rules, true)
	if err != nil {
		return err
	}
	defer unix.Close(set)
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0)
	return errnoErr(errno)
}

// landlockWorker restricts every thread of W, which has no scopes: W signals
// nobody but itself. What file tools reach is everything but /proc, /sys and
// /dev, whose files the kernel makes up: no path that a tool prepares leads W to
// its own memory. They make files and folders and nothing else.
func landlockWorker(writable []string) error {
	const (
		read   = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
		change = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
			unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
	)
	top, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	var rules []pathRule
	for _, e := range top {
		switch name := e.Name(); {
		case name == "proc" || name == "sys" || name == "dev" || e.Type()&os.ModeSymlink != 0:
		default:
			rules = append(rules, pathRule{"/" + name, read})
		}
	}
	for _, w := range writable {
		if w != "/dev" && !strings.HasPrefix(w, "/dev/") {
			rules = append(rules, pathRule{w, read | change})
		}
	}
	set, err := ruleset(rules, false)
	if err != nil {
		return err
	}
	defer unix.Close(set)
	// It ends the program where threads fare differently.
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0)
	return errnoErr(errno)
}

// pathRule allows rights on a path and all below it.
type pathRule struct {
	path   string
	rights uint64
}

// ruleset makes one that refuses everything but rules. The caller closes it.
func ruleset(rules []pathRule, scoped bool) (int, error) {
	abi := LandlockABI()
	if abi < 1 {
		return -1, errors.New("the kernel has none, though the host said it has")
	}
	fs, scopes := handled(abi)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: fs}
	if scoped {
		attr.Scoped = scopes
	}
	size := uintptr(8)
	if abi >= 6 {
		size = 24
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, errno
	}
	for _, r := range rules {
		if err := allow(int(set), r, fs); err != nil {
			unix.Close(int(set))
			return -1, err
		}
	}
	return int(set), nil
}

func allow(set int, r pathRule, handled uint64) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: r.path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		r.rights &= landlockFile
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: r.rights & handled, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return &os.PathError{Op: "allow", Path: r.path, Err: errno}
	}
	return nil
}
