package probe

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// ObserveHost reads what the host's own /proc says about the process pid. What
// cannot be read is listed in Unread and proves nothing. The process must not
// end during the call: that is an error.
func ObserveHost(pid int) (HostView, error) {
	v := HostView{PID: pid, NS: map[string]uint64{}, Own: OwnNamespaces(), UID: -1, Seccomp: -1, CapEff: ^uint64(0), CapPrm: ^uint64(0)}
	dir := "/proc/" + strconv.Itoa(pid)
	start, err := StartTime(pid)
	if err != nil {
		return v, task.Errorf(task.CodeUnavailable, "probe.observe", "process %d is not there: %v", pid, err)
	}
	v.Start = start
	unread := func(what string, err error) {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		v.Unread = append(v.Unread, what+": "+err.Error())
	}
	for _, n := range nsNames {
		ino, err := nsInode(dir + "/ns/" + n)
		if err != nil {
			unread("ns/"+n, err)
			continue
		}
		v.NS[n] = ino
	}
	if b, err := readFile(dir + "/status"); err != nil {
		unread("status", err)
	} else {
		v.readStatus(b)
	}
	if b, err := readFile(dir + "/uid_map"); err != nil {
		unread("uid_map", err)
	} else {
		v.UIDMap = fieldLines(b)
	}
	if b, err := readFile(dir + "/mountinfo"); err != nil {
		unread("mountinfo", err)
	} else {
		v.Mounts = parseMounts(b)
	}
	if b, err := readFile(dir + "/cgroup"); err != nil {
		unread("cgroup", err)
	} else {
		v.Cgroup = lines(b)
	}
	if b, err := readFile(dir + "/net/dev"); err != nil {
		unread("net/dev", err)
	} else {
		v.Interfaces = parseInterfaces(b)
	}
	v.Routes, err = routes(dir + "/net/")
	if err != nil {
		unread("net/route", err)
	}
	if again, err := StartTime(pid); err != nil || again != start || dying(pid) {
		return v, task.Errorf(task.CodeUnavailable, "probe.observe", "process %d ended while it was looked at", pid)
	}
	return v, nil
}

// dying reports whether a process waits to be reaped: then nothing of it shows what
// it was.
func dying(pid int) bool {
	b, err := readFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	i := strings.LastIndex(string(b), ") ") // a name may hold this too
	return i < 0 || i+2 >= len(b) || b[i+2] == 'Z' || b[i+2] == 'X'
}

func (v *HostView) readStatus(b []byte) {
	for _, l := range lines(b) {
		key, val, _ := strings.Cut(l, ":")
		f := strings.Fields(val)
		if len(f) == 0 {
			continue
		}
		switch key {
		case "Uid":
			if n, err := strconv.Atoi(f[0]); err == nil {
				v.UID = n
			}
		case "NoNewPrivs":
			v.NoNewPrivs = f[0] == "1"
		case "Seccomp":
			if n, err := strconv.Atoi(f[0]); err == nil {
				v.Seccomp = n
			}
		case "CapEff":
			v.CapEff = parseHex(f[0])
		case "CapPrm":
			v.CapPrm = parseHex(f[0])
		}
	}
}

// parseHex fails towards all bits set, which is every capability.
func parseHex(s string) uint64 {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return ^uint64(0)
	}
	return n
}

// OwnNamespaces returns the inode numbers of this process's namespaces, for
// Spec.HostNS. A namespace that cannot be read is left out.
func OwnNamespaces() map[string]uint64 {
	out := map[string]uint64{}
	for _, n := range nsNames {
		if ino, err := nsInode("/proc/self/ns/" + n); err == nil {
			out[n] = ino
		}
	}
	return out
}

func nsInode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// StartTime returns the start time of a process in clock ticks since boot.
func StartTime(pid int) (uint64, error) {
	b, err := readFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The name may hold blanks and parentheses: count from its last one.
	_, rest, ok := cutLast(string(b), ')')
	f := strings.Fields(rest)
	if !ok || len(f) < 20 {
		return 0, errors.New("unexpected form of stat")
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// Descendants returns the processes below pid, nearest first. A kernel without
// the children files gives none.
func Descendants(pid int) []int {
	var out []int
	for queue := []int{pid}; len(queue) > 0 && len(out) < 4096; queue = queue[1:] {
		dir := "/proc/" + strconv.Itoa(queue[0]) + "/task"
		tids, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, t := range tids {
			b, err := readFile(dir + "/" + t.Name() + "/children")
			if err != nil {
				continue
			}
			for _, f := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(f); err == nil {
					out = append(out, n)
					queue = append(queue, n)
				}
			}
		}
	}
	return out
}

// readFile reads at most 1 MiB of a file of /proc.
func readFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, 16<<10)
	for len(buf) < 1<<20 {
		if cap(buf)-len(buf) < 4<<10 {
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return buf, err
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
	}
	return buf, io.ErrShortBuffer
}

// routes lists the routes that leave loopback in the tables below dir.
func routes(dir string) ([]string, error) {
	b, err := readFile(dir + "route")
	if err != nil {
		return nil, err
	}
	var out []string
	for i, l := range lines(b) {
		if f := strings.Fields(l); i > 0 && len(f) > 1 && f[0] != "lo" {
			out = append(out, "ipv4 "+f[0]+" "+f[1])
		}
	}
	b, err = readFile(dir + "ipv6_route")
	if err == unix.ENOENT { // a kernel without IPv6
		return out, nil
	}
	if err != nil {
		return out, err
	}
	for _, l := range lines(b) {
		if f := strings.Fields(l); len(f) == 10 && f[9] != "lo" {
			out = append(out, "ipv6 "+f[9]+" "+f[0])
		}
	}
	return out, nil
}

// HostKernel is what Spec.HostKernel says.
func HostKernel() [2]string {
	var out [2]string
	for i, p := range []string{"/proc/sys/kernel/random/boot_id", "/proc/version"} {
		b, err := readFile(p)
		if err != nil {
			return [2]string{}
		}
		out[i] = strings.TrimSpace(string(b))
	}
	return out
}
