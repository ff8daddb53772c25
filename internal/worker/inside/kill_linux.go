package inside

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is one line of the tool space's process table.
type process struct {
	pid, ppid int
	state     byte
	start     string // field 22 of its stat: tells a reused pid apart
}

// readStat reads one process; ok is false when it is gone.
func readStat(pid int, buf []byte) (p process, ok bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return p, false
	}
	n, err := unix.Read(fd, buf)
	_ = unix.Close(fd)
	if err != nil || n <= 0 {
		return p, false
	}
	b := buf[:n]
	end := -1 // the name may hold anything, also ") R 1"
	for i, c := range b {
		if c == ')' {
			end = i
		}
	}
	if end < 0 || end+4 >= len(b) {
		return p, false
	}
	p.pid, p.state = pid, b[end+2]
	field, from := 4, end+4
	for i := from; i <= len(b); i++ {
		if i < len(b) && b[i] != ' ' {
			continue
		}
		switch field {
		case 4:
			p.ppid, err = strconv.Atoi(string(b[from:i]))
		case 22:
			p.start = string(b[from:i])
			return p, err == nil
		}
		field, from = field+1, i+1
	}
	return p, false
}

// descendants lists every process below root, parents first.
func descendants(root int) []process {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := d.Readdirnames(-1)
	_ = d.Close()
	buf := make([]byte, 1024)
	children := map[int][]process{}
	for _, n := range names {
		if n[0] < '0' || n[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, ok := readStat(pid, buf); ok {
			children[p.ppid] = append(children[p.ppid], p)
		}
	}
	var out []process
	queue := []int{root}
	for len(queue) > 0 {
		for _, p := range children[queue[0]] {
			out = append(out, p)
			queue = append(queue, p.pid)
		}
		queue = queue[1:]
	}
	return out
}

// signalProcess signals exactly the process that was seen, never a successor
// with its number.
func signalProcess(p process, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	var buf [1024]byte
	if now, ok := readStat(p.pid, buf[:]); ok && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	_ = unix.Close(fd)
}

// signalTree signals every descendant once and returns how many live.
func signalTree(root int, sigs ...syscall.Signal) (alive int) {
	for _, p := range descendants(root) {
		if p.state == 'Z' || p.state == 'X' {
			continue
		}
		alive++
		for _, s := range sigs {
			signalProcess(p, s)
		}
	}
	return alive
}

// killTree stops what it finds until it finds nothing new, then kills it.
// A stopped process keeps its place in the count of processes: killing at
// once would free places for those that fork faster than they can be read.
func killTree(root int) {
	for range 20 {
		fresh := 0
		for _, p := range descendants(root) {
			if p.state != 'Z' && p.state != 'X' && p.state != 'T' && p.state != 't' {
				fresh++
				signalProcess(p, unix.SIGSTOP)
			}
		}
		if fresh == 0 {
			break
		}
	}
	signalTree(root, unix.SIGKILL)
}
