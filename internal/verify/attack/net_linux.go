//go:build linux

package attack

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func dial(kind int, sa unix.Sockaddr) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	return unix.Connect(fd, sa)
}

func sendTo(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("hostile"), 0, &unix.SockaddrUnix{Name: path})
}

// fromPair connects one half of a pair, which a filter that only knows socket
// lets through.
func fromPair(path string) error {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	if err := unix.Connect(p[0], &unix.SockaddrUnix{Name: path}); err != nil {
		return err
	}
	_, err = unix.Write(p[0], []byte("hostile"))
	return err
}

func sockets() {
	kinds := map[string]int{".stream": unix.SOCK_STREAM, ".dgram": unix.SOCK_DGRAM, ".seq": unix.SOCK_SEQPACKET}
	for i, prefix := range c.Unix {
		for ext, kind := range kinds {
			p := prefix + ext
			add("P16", "connect to "+p, func() error { return dial(kind, &unix.SockaddrUnix{Name: p}) })
			add("P16", "connect through a link to "+p, func() error {
				l := filepath.Join(c.Work, fmt.Sprintf("s%d%s", i, ext))
				if err := os.Symlink(p, l); err != nil {
					return err
				}
				defer os.Remove(l)
				return dial(kind, &unix.SockaddrUnix{Name: l})
			})
			add("P16", "connect through a link to the folder of "+p, func() error {
				l := filepath.Join(c.Work, fmt.Sprintf("d%d%s", i, ext))
				if err := os.Symlink(filepath.Dir(p), l); err != nil {
					return err
				}
				defer os.Remove(l)
				return dial(kind, &unix.SockaddrUnix{Name: l + "/" + filepath.Base(p)})
			})
			add("P16", "connect to /proc/self/root"+p, func() error { return dial(kind, &unix.SockaddrUnix{Name: "/proc/self/root" + p}) })
			add("P16", "connect relative to a descriptor: "+p, func() error {
				fd, err := unix.Open(filepath.Dir(p), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return dial(kind, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(p))})
			})
			add("P16", "connect from within the folder: "+p, func() error {
				if err := os.Chdir(filepath.Dir(p)); err != nil {
					return err
				}
				defer os.Chdir(c.Work)
				return dial(kind, &unix.SockaddrUnix{Name: filepath.Base(p)})
			})
			add("P16", "hard link to "+p, func() error {
				l := filepath.Join(c.Work, fmt.Sprintf("h%d%s", i, ext))
				if err := os.Link(p, l); err != nil {
					return err
				}
				defer os.Remove(l)
				return dial(kind, &unix.SockaddrUnix{Name: l})
			}).kernel() // another file system outside
		}
		add("P16", "send a datagram to "+prefix+".dgram", func() error { return sendTo(prefix + ".dgram") })
		add("P16", "connect half a pair to "+prefix+".dgram", func() error { return fromPair(prefix + ".dgram") })
	}
	for _, k := range c.Known {
		add(k[0], "connect to "+k[1], func() error {
			if !c.Inside && slices.Contains(c.Real, k[1]) { // what listens there is not to be disturbed
				return unix.Access(k[1], unix.W_OK)
			}
			return dial(unix.SOCK_STREAM, &unix.SockaddrUnix{Name: k[1]})
		})
	}
	for _, n := range c.Abstract {
		add("P17", "connect to @"+n, func() error { return dial(unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "@" + n}) })
		add("P17", "send a datagram to @"+n+".dgram", func() error { return sendTo("@" + n + ".dgram") })
		add("P17", "connect half a pair to @"+n+".dgram", func() error { return fromPair("@" + n + ".dgram") })
		for _, list := range []string{"/proc/net/unix", "/proc/1/net/unix", "/proc/self/net/unix", "/proc/thread-self/net/unix"} {
			t := add("P17", "see @"+n+" in "+list, func() error {
				data, err := os.ReadFile(list)
				if err != nil {
					return err
				}
				if !strings.Contains(string(data), n) {
					return errConfined
				}
				return nil
			})
			if list == "/proc/1/net/unix" {
				t.kernel() // pid 1 of the host may live in another network namespace
			}
		}
	}
	for _, v := range c.Env {
		add("ENV", "know "+v, func() error {
			if os.Getenv(v) == "" {
				return unix.ENOENT
			}
			return nil
		})
	}
	for _, a := range c.Net {
		add("P41", "connect to "+a, func() error {
			conn, err := net.DialTimeout("tcp", a, 5*time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		})
		add("P41", "send a datagram to "+a, func() error {
			conn, err := net.DialTimeout("udp", a, 5*time.Second)
			if err != nil {
				return err
			}
			defer conn.Close()
			for range 2 { // the second is told about the first
				if _, err := conn.Write([]byte("hostile")); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
	}
	beyond := []string{"192.168.65.7:2375", "172.17.0.1:2375", "10.0.2.2:22", "169.254.169.254:80", "1.1.1.1:53", "[fd00::1]:80", "[fe80::1%lo]:80", "100.100.100.200:80"}
	for _, a := range beyond {
		add("P40", "connect to "+a, func() error {
			conn, err := net.DialTimeout("tcp", a, 2*time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		}).harms("it would leave this machine")
	}
}

// ways is P40 and META.
func ways() {
	for _, a := range []string{"1.1.1.1:53", "9.9.9.9:443", "[2606:4700:4700::1111]:53", "192.0.2.1:9"} {
		// A datagram socket that is connected asks for a route and sends nothing.
		add("P40", "find a way to "+a, func() error {
			conn, err := net.Dial("udp", a)
			if err == nil {
				conn.Close()
			}
			return err
		}).kernel()
	}
	for _, a := range []string{"169.254.169.254:80", "[fd00:ec2::254]:80"} {
		add("META", "connect to "+a, func() error {
			conn, err := net.DialTimeout("tcp", a, time.Second)
			if err == nil {
				conn.Close()
			}
			return err
		}).kernel()
	}
}

const loads = "the kernel may load a module for it, which would stay"

// families is P21: every family, type and protocol that the kernel may know.
func families() {
	allowed := map[int]bool{unix.AF_UNIX: true, unix.AF_INET: true, unix.AF_INET6: true, unix.AF_NETLINK: true}
	types := []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_RDM, unix.SOCK_SEQPACKET, unix.SOCK_DCCP, unix.SOCK_PACKET}
	socket := func(f, t, p uintptr) error {
		fd, _, e := unix.RawSyscall(unix.SYS_SOCKET, f, t, p)
		if e != 0 {
			return e
		}
		unix.Close(int(fd))
		return nil
	}
	for f := range 46 {
		if allowed[f] {
			continue
		}
		for _, bit := range []uintptr{0, 1 << 32, 1 << 63} {
			what := fmt.Sprintf("socket of family %d", f)
			if bit != 0 {
				what += fmt.Sprintf(" with a bit %#x that the kernel ignores", bit)
			}
			t := add("P21", what, func() error {
				var last error
				for _, t := range types {
					for proto := range uintptr(8) {
						if last = socket(uintptr(f)|bit, uintptr(t), proto); last == nil {
							return nil
						}
					}
				}
				return last
			}).root().kernel()
			if !loaded(f) {
				t.marks(loads)
			}
		}
	}
	for f, n := range map[int]string{unix.AF_INET: "INET", unix.AF_INET6: "INET6"} {
		for _, x := range []struct {
			what        string
			typ, proto  int
			privileged_ bool
		}{{"raw ICMP", unix.SOCK_RAW, 1, true}, {"raw", unix.SOCK_RAW, 255, true}, {"ping", unix.SOCK_DGRAM, 1, false}, {"ping 6", unix.SOCK_DGRAM, 58, false}, {"SCTP", unix.SOCK_STREAM, 132, false},
			{"SCTP packets", unix.SOCK_SEQPACKET, 132, false}, {"UDPLITE", unix.SOCK_DGRAM, 136, false}, {"MPTCP", unix.SOCK_STREAM, 262, false}, {"DCCP", unix.SOCK_DCCP, 33, false},
			{"L2TP", unix.SOCK_DGRAM, 115, false}, {"SMC", unix.SOCK_STREAM, 256, false}, {"PACKET", unix.SOCK_PACKET, 0, true}, {"RDM", unix.SOCK_RDM, 0, false}} {
			plain := add("P21", n+" "+x.what, func() error { return socket(uintptr(f), uintptr(x.typ), uintptr(x.proto)) }).root().kernel()
			high := add("P21", n+" "+x.what+" with high bits", func() error {
				return socket(uintptr(f)|1<<32, uintptr(x.typ)|unix.SOCK_CLOEXEC|1<<33, uintptr(x.proto)|1<<34)
			}).root().kernel()
			if x.proto > 1 && x.proto != 58 && x.proto != 255 {
				plain.marks(loads)
				high.marks(loads)
			}
		}
	}
	for proto := 1; proto <= 22; proto++ {
		t := add("P21", fmt.Sprintf("netlink of protocol %d", proto), func() error {
			if err := socket(unix.AF_NETLINK, unix.SOCK_RAW, uintptr(proto)); err == nil {
				return nil
			}
			return socket(unix.AF_NETLINK|1<<32, unix.SOCK_DGRAM, uintptr(proto)|1<<32)
		}).kernel()
		if !slices.Contains([]int{unix.NETLINK_USERSOCK, unix.NETLINK_KOBJECT_UEVENT, unix.NETLINK_GENERIC, unix.NETLINK_AUDIT}, proto) {
			t.marks(loads)
		}
	}
	for f := range 46 {
		if f == unix.AF_UNIX {
			continue
		}
		t := add("P21", fmt.Sprintf("pair of family %d", f), func() error {
			var p [2]int32
			for _, t := range types {
				if _, _, e := unix.RawSyscall6(unix.SYS_SOCKETPAIR, uintptr(f), uintptr(t), 0, uintptr(unsafe.Pointer(&p)), 0, 0); e == 0 {
					return nil
				} else if e != unix.EAFNOSUPPORT && e != unix.EPERM {
					return e
				}
			}
			return unix.EAFNOSUPPORT
		}).kernel()
		if !loaded(f) {
			t.marks(loads)
		}
	}
	for _, x := range []struct {
		what   string
		family int
		typ    int
		proto  int
	}{{"UNIX stream", unix.AF_UNIX, unix.SOCK_STREAM, 0}, {"UNIX datagram", unix.AF_UNIX, unix.SOCK_DGRAM, 0}, {"UNIX packets", unix.AF_UNIX, unix.SOCK_SEQPACKET, 0}, {"TCP", unix.AF_INET, unix.SOCK_STREAM, 6},
		{"UDP", unix.AF_INET, unix.SOCK_DGRAM, 17}, {"TCP 6", unix.AF_INET6, unix.SOCK_STREAM, 0}, {"UDP 6", unix.AF_INET6, unix.SOCK_DGRAM, 0}, {"route netlink", unix.AF_NETLINK, unix.SOCK_RAW, 0}} {
		add("USE", x.what, func() error { return socket(uintptr(x.family), uintptr(x.typ), uintptr(x.proto)) })
	}
}
