package linux

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// Where an unprivileged user owns no cgroup, or none that bounds what it must, the
// systemd manager of the user, or of the machine, makes one on request: a scope, with limits that systemd itself sets. The request is one
// D-Bus message; this file speaks just enough of the protocol for it. What
// comes back decides nothing: the limits are read from the kernel afterwards.

const kindScope = "scope"

// userManager is the socket of the systemd manager of a user. The private one
// is systemd's own; on the session bus one must say hello first.
type userManager struct {
	path string
	bus  bool
}

// findUserManager looks where systemd puts the sockets of uid below dir
// (/run/user).
func findUserManager(dir string, uid int) (userManager, bool) {
	base := filepath.Join(dir, strconv.Itoa(uid))
	for _, m := range []userManager{{filepath.Join(base, "systemd/private"), false}, {filepath.Join(base, "bus"), true}} {
		var st unix.Stat_t
		if unix.Lstat(m.path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && int(st.Uid) == uid {
			return m, true
		}
	}
	return userManager{}, false
}

// findSystemManager is root's: systemd itself, at its private socket.
func findSystemManager(path string) (userManager, bool) {
	var st unix.Stat_t
	ok := unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK && st.Uid == 0
	return userManager{path: path}, ok
}

func scopeName(group string) string { return group + ".scope" }

// start asks for a scope around pid with the given limits.
func (m userManager) start(ctx context.Context, name string, pid int, l task.Limits) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if t, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(t); err != nil {
			return err
		}
	}
	r := bufio.NewReader(conn)
	if err := authenticate(conn, r); err != nil {
		return fmt.Errorf("authenticate to %s: %w", m.path, err)
	}
	serial := uint32(1)
	if m.bus {
		if err := call1(conn, r, serial, dbusHeader{dest: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", iface: "org.freedesktop.DBus", member: "Hello"}, nil); err != nil {
			return err
		}
		serial++
	}
	return call1(conn, r, serial, dbusHeader{dest: "org.freedesktop.systemd1", path: "/org/freedesktop/systemd1", iface: "org.freedesktop.systemd1.Manager",
		member: "StartTransientUnit", signature: "ssa(sv)a(sa(sv))"}, scopeBody(name, pid, l))
}

func authenticate(w io.Writer, r *bufio.Reader) error {
	hex := fmt.Sprintf("%x", strconv.Itoa(os.Getuid()))
	if _, err := io.WriteString(w, "\x00AUTH EXTERNAL "+hex+"\r\n"); err != nil {
		return err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "OK ") {
		return fmt.Errorf("refused: %q", strings.TrimSpace(line))
	}
	_, err = io.WriteString(w, "BEGIN\r\n")
	return err
}

// marshal builds the little-endian D-Bus form of values.
type marshal struct{ b []byte }

func (m *marshal) align(n int) {
	for len(m.b)%n != 0 {
		m.b = append(m.b, 0)
	}
}

func (m *marshal) u32(v uint32) { m.align(4); m.b = binary.LittleEndian.AppendUint32(m.b, v) }
func (m *marshal) u64(v uint64) { m.align(8); m.b = binary.LittleEndian.AppendUint64(m.b, v) }
func (m *marshal) str(s string) { m.u32(uint32(len(s))); m.b = append(append(m.b, s...), 0) }
func (m *marshal) sig(s string) { m.b = append(append(append(m.b, byte(len(s))), s...), 0) }

// array writes the elements that fill appends; elem is their alignment.
func (m *marshal) array(elem int, fill func()) {
	m.u32(0)
	at := len(m.b)
	m.align(elem)
	start := len(m.b)
	fill()
	binary.LittleEndian.PutUint32(m.b[at-4:], uint32(len(m.b)-start))
}

func scopeBody(name string, pid int, l task.Limits) []byte {
	m := &marshal{}
	m.str(name)
	m.str("fail")
	prop := func(name, sig string, value func()) {
		m.align(8)
		m.str(name)
		m.sig(sig)
		value()
	}
	m.array(8, func() {
		prop("Description", "s", func() { m.str("caisson boundary") })
		prop("PIDs", "au", func() { m.array(4, func() { m.u32(uint32(pid)) }) })
		prop("CollectMode", "s", func() { m.str("inactive-or-failed") })
		prop("MemoryMax", "t", func() { m.u64(uint64(l.MemoryBytes)) })
		prop("MemorySwapMax", "t", func() { m.u64(0) })
		prop("TasksMax", "t", func() { m.u64(uint64(l.Pids)) })
		prop("CPUQuotaPerSecUSec", "t", func() { m.u64(uint64(l.CPUs * 1e6)) })
	})
	m.array(8, func() {})
	return m.b
}

type dbusHeader struct{ dest, path, iface, member, signature string }

// call1 sends one method call and waits for its answer.
func call1(w io.Writer, r io.Reader, serial uint32, h dbusHeader, body []byte) error {
	m := &marshal{b: []byte{'l', 1, 0, 1}}
	m.u32(uint32(len(body)))
	m.u32(serial)
	field := func(code byte, sig, value string) {
		if value == "" {
			return
		}
		m.align(8)
		m.b = append(m.b, code)
		m.sig(sig)
		if sig == "g" {
			m.sig(value)
		} else {
			m.str(value)
		}
	}
	m.array(8, func() {
		field(1, "o", h.path)
		field(2, "s", h.iface)
		field(3, "s", h.member)
		field(6, "s", h.dest)
		field(8, "g", h.signature)
	})
	m.align(8)
	if _, err := w.Write(append(m.b, body...)); err != nil {
		return err
	}
	for {
		typ, reply, text, err := readReply(r)
		switch {
		case err != nil:
			return err
		case reply != serial: // a signal, or the answer to hello
		case typ == 2:
			return nil
		case typ == 3:
			return errors.New(text)
		}
	}
}

const maxReply = 1 << 20

// readReply reads one message: its type, the serial it answers and, of an
// error, name and text.
func readReply(r io.Reader) (typ byte, reply uint32, text string, err error) {
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, "", err
	}
	if head[0] != 'l' || head[3] != 1 {
		return 0, 0, "", errors.New("not a little-endian D-Bus message")
	}
	bodyLen, fieldLen := binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[12:])
	if bodyLen > maxReply || fieldLen > maxReply {
		return 0, 0, "", errors.New("the answer is too long")
	}
	fields := make([]byte, (fieldLen+7)&^7)
	body := make([]byte, bodyLen)
	if _, err := io.ReadFull(r, fields); err != nil {
		return 0, 0, "", err
	}
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, 0, "", err
	}
	for i := 0; i+4 <= int(fieldLen); {
		code, sig := fields[i], fields[i+2]
		i += 4 // code; signature: length, one letter, zero. Fields start at multiples of 8.
		if sig == 'g' {
			if i >= len(fields) {
				break
			}
			i += int(fields[i]) + 2
		} else {
			if i+4 > len(fields) {
				break
			}
			n := binary.LittleEndian.Uint32(fields[i:])
			i += 4
			switch {
			case code == 5:
				reply = n
			case sig == 's' || sig == 'o':
				if code == 4 && int(n) <= len(fields)-i {
					text = string(fields[i : i+int(n)])
				}
				i += int(n) + 1
			}
		}
		i = (i + 7) &^ 7
	}
	if head[1] == 3 && len(body) >= 4 {
		if n := binary.LittleEndian.Uint32(body); int(n) <= len(body)-4 {
			text += ": " + string(body[4:4+n])
		}
	}
	return head[1], reply, text, nil
}

// scopeGroup waits until pid is in the scope and returns its cgroup.
func scopeGroup(ctx context.Context, name string, pid int, roots cgroupRoots) (*group, error) {
	mounts, err := readFile(roots.mountinfo)
	if err != nil {
		return nil, err
	}
	var root mountEntry
	for _, m := range parseMountinfo(string(mounts)) {
		if m.fstype == "cgroup2" {
			root = m
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for delay := time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		data, err := readFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Split(string(data), "\n") {
			path, ok := strings.CutPrefix(line, "0::")
			if !ok || filepath.Base(path) != name {
				continue
			}
			dir, ok := ownGroup(root, path)
			if !ok {
				return nil, fmt.Errorf("the scope's cgroup %s is not below %s", path, root.point)
			}
			g := &group{dir: dir, hierarchy: hierarchy{v2: true, parent: filepath.Dir(dir), ctl: map[string]bool{}}}
			for ctl, file := range map[string]string{"memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max"} {
				if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
					g.ctl[ctl] = true
				}
			}
			var st unix.Stat_t
			if err := unix.Stat(dir, &st); err != nil {
				return nil, err
			}
			g.ino = st.Ino
			return g, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("systemd did not move the worker into %s in time", name)
		case <-time.After(delay):
		}
	}
}

// scopeResource names the scope that Create would ask for.
func scopeResource(group, token string) backend.Resource {
	return backend.Resource{Kind: kindScope, Name: scopeName(group), Token: token}
}
