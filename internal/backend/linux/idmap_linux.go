package linux

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// As root, a boundary runs as a host id that nobody uses, and the task's
// folders are id-mapped mounts: outside their files belong to root, inside to
// the inside id, and no process inside is the kernel's uid 0.

// hostID derives the unused id from the token. The range is the one that the
// common id allocations (subordinate ids, dynamic users, containers) leave free.
func hostID(token string) int {
	const first, count = 0x70000000, 0x0fff0000
	sum := sha256.Sum256([]byte("caisson host id " + token))
	return first + int(binary.BigEndian.Uint32(sum[:4])%count)
}

// idmapNS returns a user namespace whose only purpose is its map: owner on
// disk to seen. A process that is paused in it and ended at once holds it.
func idmapNS(worker *os.File, ownerUID, ownerGID, seen int) (*os.File, error) {
	attr := &syscall.SysProcAttr{
		Cloneflags:                 unix.CLONE_NEWUSER,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: ownerUID, HostID: seen, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: ownerGID, HostID: seen, Size: 1}},
		GidMappingsEnableSetgroups: true,
		Pdeathsig:                  syscall.SIGKILL,
	}
	// The helper is a worker that waits for a plan that never comes.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pair[0])
	high, err := unix.FcntlInt(uintptr(pair[1]), unix.F_DUPFD_CLOEXEC, max(int(worker.Fd()), 4)+1)
	unix.Close(pair[1])
	if err != nil {
		return nil, err
	}
	far := os.NewFile(uintptr(high), "helper")
	defer far.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if err := sealDescriptors(); err != nil {
		return nil, err
	}
	// The death signal comes when the thread ends, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proc, err := startProcess(worker, &os.ProcAttr{
		Env: []string{}, Files: []*os.File{null, null, null, far}, Sys: attr,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = proc.Kill()
		_, _ = proc.Wait()
	}()
	return os.Open("/proc/" + strconv.Itoa(proc.Pid) + "/ns/user")
}

// seenFile is a host file or folder, opened without following a link, and what
// it was at that moment.
type seenFile struct {
	fd       int // O_PATH
	dev, ino uint64
	dir      bool
}

// look opens path, which must be absolute and without links.
func look(path string) (seenFile, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return seenFile{fd: -1}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return seenFile{fd: -1}, err
	}
	return seenFile{fd: fd, dev: st.Dev, ino: st.Ino, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// detach makes a detached mount of what was seen, id-mapped when ns is given.
func (s seenFile) detach(ns *os.File) (int, error) {
	fd, err := unix.OpenTree(s.fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	if ns == nil {
		return fd, nil
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("mount_setattr idmap: %w", err)
	}
	return fd, nil
}
