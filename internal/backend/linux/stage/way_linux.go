package stage

import (
	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/crossing"
)

// Crossings makes the sockets of a boundary that are the host's: those of its way
// out, then Unix sockets, then those by which the host connects to servers inside. It must run after
// BuildRoot, with the set-up capabilities, and before anything else is started.
// The caller sends them to the host and closes them; nothing inside keeps an end.
func Crossings(p *Plan) (fds []int, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	if p.Way != nil {
		if fds, err = crossing.Open(p.Way); err != nil {
			return nil, &Error{Step: "way out", Op: "make its sockets", Detail: err.Error()}
		}
	}
	local, err := openLocal(p.Local)
	if fds = append(fds, local...); err != nil {
		return fds, err
	}
	in, err := crossing.Inward(p.Inward)
	if err != nil {
		return fds, &Error{Step: "way in", Op: "make its sockets", Detail: err.Error()}
	}
	return append(fds, in...), nil
}

// openLocal makes Unix sockets at their names, and their folder read-only: none of
// them can be put in another's place.
func openLocal(names []string) (fds []int, err error) {
	const step = "lent sockets"
	if len(names) == 0 {
		return nil, nil
	}
	old := unix.Umask(0o111)
	defer unix.Umask(old)
	for _, n := range names {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			fds = append(fds, fd)
			if err = unix.Bind(fd, &unix.SockaddrUnix{Name: LocalDir + "/" + n}); err == nil {
				err = unix.Listen(fd, localBacklog)
			}
		}
		if err != nil {
			return fds, fail(step, "listen at "+n, err)
		}
	}
	return fds, fail(step, "make their folder read-only", setAttr(unix.AT_FDCWD, LocalDir, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
}

// localBacklog is how many programs inside may wait at one of them.
const localBacklog = 64
