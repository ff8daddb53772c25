package probe

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// Plants are sentinels on the host: a file, a unix socket, an abstract socket
// and two loopback listeners. Whoever reaches one of the sockets leaves a
// connection in its queue.
type Plants struct {
	File     string // readable by its owner, not empty
	Socket   string // listening
	Abstract string // name without the leading NUL
	Dial     []string
	fds      []plantFD
}

type plantFD struct {
	fd   int
	name string
}

// Plant makes the sentinels; file and socket in dir, which must exist. The
// token makes their names unique. The caller closes them.
func Plant(dir, token string) (*Plants, error) {
	p := &Plants{File: filepath.Join(dir, sentinelFile(token)), Socket: filepath.Join(dir, sentinelSocket(token)), Abstract: "caisson-sentinel-" + token}
	if err := p.plant(); err != nil {
		_ = p.Close()
		return nil, task.Errorf(task.CodeStateStore, "probe.plant", "sentinels for the probe could not be made in %s: %w", dir, err).WithHint("CAISSON_RUNTIME_DIR names another folder")
	}
	return p, nil
}

func (p *Plants) plant() error {
	if err := os.WriteFile(p.File, []byte("caisson sentinel\n"), 0o600); err != nil {
		return err
	}
	name := p.Socket
	if len(name) > 107 { // does not fit an address: reach it through its folder
		fd, err := unix.Open(filepath.Dir(name), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		name = "/proc/self/fd/" + strconv.Itoa(fd) + "/" + filepath.Base(name)
	}
	if err := p.listen(unix.AF_UNIX, &unix.SockaddrUnix{Name: name}, "unix socket"); err != nil {
		return err
	}
	if err := p.listen(unix.AF_UNIX, &unix.SockaddrUnix{Name: "@" + p.Abstract}, "abstract socket"); err != nil {
		return err
	}
	if err := p.listen(unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, "127.0.0.1"); err != nil {
		return err
	}
	// A host without IPv6 has nothing to protect there.
	if err := p.listen(unix.AF_INET6, &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}, "::1"); err != nil && err != unix.EAFNOSUPPORT && err != unix.EADDRNOTAVAIL {
		return err
	}
	return nil
}

func (p *Plants) listen(family int, sa unix.Sockaddr, name string) error {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err = unix.Bind(fd, sa); err == nil {
		err = unix.Listen(fd, 64)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	p.fds = append(p.fds, plantFD{fd, name})
	got, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	switch a := got.(type) {
	case *unix.SockaddrInet4:
		p.Dial = append(p.Dial, netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String())
	case *unix.SockaddrInet6:
		p.Dial = append(p.Dial, netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)).String())
	}
	return nil
}

// Apply adds the sentinels to what s tries.
func (p *Plants) Apply(s *Spec) {
	s.Absent = append(s.Absent, p.File)
	s.Control = append(s.Control, p.Socket)
	s.Abstract = append(s.Abstract, p.Abstract)
	s.Dial = append(s.Dial, p.Dial...)
}

// Touched names the sentinels that somebody connected to since Plant. Any
// process of the host can touch them, so a name here lowers a level and never
// raises one.
func (p *Plants) Touched() []string {
	var out []string
	for _, l := range p.fds {
		for n := 0; n < 64; n++ {
			c, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			unix.Close(c)
			if n == 0 {
				out = append(out, l.name)
			}
		}
	}
	return out
}

// Close removes the sentinels.
func (p *Plants) Close() error {
	for _, l := range p.fds {
		unix.Close(l.fd)
	}
	p.fds = nil
	var first error
	for _, path := range []string{p.File, p.Socket} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) && first == nil {
			first = task.Errorf(task.CodeUnavailable, "probe.plant", "a sentinel could not be removed: %v", err)
		}
	}
	return first
}
