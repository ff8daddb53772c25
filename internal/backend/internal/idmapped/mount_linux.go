package idmapped

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// HostID derives from a boundary's token an id that nobody has: of the range that the
// usual allocations (subordinate ids, dynamic users, containers) leave free.
func HostID(token string) int {
	const first, count = 0x70000000, 0x0fff0000
	sum := sha256.Sum256([]byte("caisson host id " + token))
	return first + int(binary.BigEndian.Uint32(sum[:4])%count)
}

// Set is folders, each as a mount that is nowhere yet.
type Set struct {
	sources []string
	fds     []int
}

// Detach makes mounts of sources, which are absolute paths of folders without links,
// in which what belongs to the user and the group of this process belongs to seen.
// helper is a program that waits for its standard input when it is started with the
// argument guest. The caller closes the set.
func Detach(helper string, seen int, sources []string) (*Set, error) {
	ns, err := namespace(helper, seen)
	if err != nil {
		return nil, fmt.Errorf("a user namespace with a map: %w", err)
	}
	defer ns.Close()
	s := &Set{}
	for _, src := range sources {
		if err := s.add(src, ns); err != nil {
			s.Close()
			return nil, fmt.Errorf("%s: %w", src, err)
		}
	}
	return s, nil
}

func (s *Set) add(src string, ns *os.File) error {
	at, err := unix.Openat2(unix.AT_FDCWD, src, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(fd)
		return fmt.Errorf("mount_setattr: %w", err)
	}
	s.sources, s.fds = append(s.sources, src), append(s.fds, fd)
	return nil
}

// Attach makes dir and puts each mount at a folder in it. It returns the places by
// their sources. Remove takes them away, also after an error.
func (s *Set) Attach(dir string) (map[string]string, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	at := map[string]string{}
	for i, fd := range s.fds {
		place := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(place, 0o700); err != nil {
			return nil, err
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return nil, fmt.Errorf("move_mount: %w", err)
		}
		at[s.sources[i]] = place
	}
	return at, nil
}

// Close gives up the mounts that were not attached.
func (s *Set) Close() {
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
	s.fds = nil
}

// Remove takes away what Attach made in dir; nothing being there is no error. What is
// still mounted is never gone into: behind it are files of a task's.
func Remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		place := filepath.Join(dir, e.Name())
		for err == nil {
			err = unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		if !errors.Is(err, unix.EINVAL) { // it is no mount any more
			return &os.PathError{Op: "unmount", Path: place, Err: err}
		}
		if err = unix.Rmdir(place); err != nil {
			return &os.PathError{Op: "rmdir", Path: place, Err: err}
		}
	}
	return os.Remove(dir)
}

// namespace returns a user namespace whose only purpose is its map.
func namespace(helper string, seen int) (*os.File, error) {
	in, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	defer hold.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// The death signal comes when the thread ends, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proc, err := os.StartProcess(helper, []string{"caisson-worker", "guest"}, &os.ProcAttr{Env: []string{}, Files: []*os.File{in, null, null}, Sys: &syscall.SysProcAttr{
		Cloneflags:                 unix.CLONE_NEWUSER,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: seen, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: seen, Size: 1}},
		GidMappingsEnableSetgroups: true,
		Pdeathsig:                  syscall.SIGKILL,
	}})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = proc.Kill()
		_, _ = proc.Wait()
	}()
	return os.Open("/proc/" + strconv.Itoa(proc.Pid) + "/ns/user")
}
