package linux

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// To move a process into a control group the kernel stops every fork on the
// machine and waits until all processors have seen that, milliseconds for each
// hierarchy. A process that is born in its group costs nothing, and has at no
// moment been outside it.

// inGroups runs start, which starts a process from the calling thread with
// attr, so that it is born in the groups, and returns in which of them it was.
// The thread must be locked and must end when there is an error: it may then be
// in a group that is not its own.
func inGroups(gs []*group, attr *syscall.SysProcAttr, start func() error) (map[*group]bool, error) {
	born := map[*group]bool{}
	var back []int
	defer func() {
		for _, fd := range back {
			unix.Close(fd)
		}
	}()
	dir := -1
	var v2 *group
	for _, g := range gs {
		if g.v2 {
			if fd, err := g.open(); err == nil && v2 == nil {
				dir, v2 = fd, g
				defer unix.Close(fd)
			}
			continue
		}
		// In a version 1 hierarchy a thread may change groups by itself, and
		// what it starts is where it is. First the way back.
		home, err := unix.Open(filepath.Join(g.parent, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if writeFile(filepath.Join(g.members(), "tasks"), "0") != nil {
			unix.Close(home)
			continue
		}
		back = append(back, home)
		born[g] = true
	}
	var err error
	if v2 != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, dir
		if err = start(); err == nil {
			born[v2] = true
		}
		attr.UseCgroupFD, attr.CgroupFD = false, 0
	}
	if v2 == nil || err != nil { // an old kernel, or a filter without clone3
		err = start()
	}
	for _, fd := range back {
		if _, berr := ignoringEINTR(func() (int, error) { return unix.Write(fd, []byte("0")) }); berr != nil {
			err = errors.Join(err, fmt.Errorf("leave the worker's control group again: %w", berr))
		}
	}
	return born, err
}

// open takes hold of the group, below the one that was made, that the processes
// are in.
func (g *group) open() (int, error) {
	var st unix.Stat_t
	if err := unix.Lstat(g.dir, &st); err != nil || g.ino == 0 || st.Ino != g.ino {
		return -1, unix.ESTALE
	}
	return unix.Open(g.members(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
