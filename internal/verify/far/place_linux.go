package far

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespaces are what a process needs in which this package is to play: to be set
// where it is started. An unprivileged user gets them in a user namespace with an id
// of its own.
func Namespaces() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if uid := os.Geteuid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN, unix.CAP_NET_BIND_SERVICE}
	}
	return a
}

// The addresses of what is played. For every program here they are elsewhere: only a
// route makes them this namespace's.
const (
	allowedAt = "93.184.215.14"
	lentAt    = "93.184.215.15"
	deniedAt  = "93.184.215.16"
	namesAt   = "93.184.215.53"
	metadata  = "169.254.169.254"
	private   = "10.9.0.1"
)

// routed are the ranges that lead to this namespace.
var routed = []string{"93.184.215.0/24", "10.9.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "192.0.0.0/24"}

// bundles are where programs look for certificates of authorities, as Go does.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem"}

// settle makes the namespaces of this process the place: addresses, name server,
// certificates. dir is an empty folder for what is put over files of the machine.
func settle(dir string, authority []byte) error {
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	for _, r := range routed {
		if err := route(netip.MustParsePrefix(r)); err != nil {
			return fmt.Errorf("a route for %s: %w", r, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	covers := map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:20 attempts:1\n", "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n"}
	for _, b := range bundles {
		if theirs, err := os.ReadFile(b); err == nil {
			covers[b] = string(theirs) + "\n" + string(authority)
			break
		}
	}
	for name, text := range covers {
		at, err := filepath.EvalSymlinks(name)
		if err != nil {
			return err
		}
		mine := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(mine, []byte(text), 0o644); err != nil {
			return err
		}
		if err := errors.Join(os.Chmod(mine, 0o644), unix.Mount(mine, at, "", unix.MS_BIND, "")); err != nil {
			return fmt.Errorf("cover %s: %w", name, err)
		}
	}
	return nil
}

// shed gives up what only making the place took, in every thread.
func shed() error {
	if os.Geteuid() == 0 {
		return nil
	}
	if _, _, e := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}

// route is `ip route add local PREFIX dev lo`.
func route(p netip.Prefix) error {
	const lo = 1 // of every network namespace
	e := binary.NativeEndian
	attr := func(kind uint16, v []byte) []byte {
		return append(e.AppendUint16(e.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(v))), kind), v...)
	}
	body := []byte{unix.AF_INET, byte(p.Bits()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	body = append(body, attr(unix.RTA_DST, p.Addr().AsSlice())...)
	body = append(body, attr(unix.RTA_OIF, e.AppendUint32(nil, lo))...)
	msg := e.AppendUint16(e.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body))), unix.RTM_NEWROUTE)
	msg = e.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	msg = append(e.AppendUint64(msg, 0), body...)
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || e.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel gave no answer that can be read")
	}
	if no := int32(e.Uint32(answer[unix.NLMSG_HDRLEN:])); no != 0 {
		return unix.Errno(-no)
	}
	return nil
}
