//go:build linux

// Command attacker is hostile task content that wants to speak in the worker's
// name: it tries what the names of its arguments say and prints, one JSON object
// a line, what became of it.
//
// Its limit: it judges nothing and shares no code with the product. It is told
// what is no secret (numbers and names of frames), never a key.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// line is one attempt.
type line struct {
	What  string
	Did   string // "denied", "possible" or "done": what cannot be denied and must have no effect
	Errno string `json:",omitempty"`
	Layer string `json:",omitempty"` // which denied it
	Leak  string `json:",omitempty"` // hex of what was read of the worker
	Ask   string `json:",omitempty"` // a question; the answer is one line of input
}

func say(l line) {
	b, _ := json.Marshal(l)
	fmt.Println(string(b))
}

var stdin = bufio.NewReader(os.Stdin)

func ask(q string) string {
	say(line{Ask: q})
	s, _ := stdin.ReadString('\n')
	return strings.TrimSpace(s)
}

// about is whom the attempts are against.
var about proc

// became reports whether that process is another program by now: between its
// fork and its exec a tool looks like the guardian that starts it.
func became() bool {
	if about.pid == 0 || about.role == "?" || about.role == "number" {
		return false
	}
	cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", about.pid))
	a := strings.Split(string(cmd), "\x00")
	return len(a) < 2 || a[0] != "caisson-worker" || a[1] != about.role
}

// try reports what err means. layer is who denies it where the system call
// filter does not.
func try(what, layer string, nr int, err error) bool {
	l := line{What: what, Did: "possible"}
	if err == nil && became() {
		l.Did = "done"
	}
	if err != nil {
		l.Did, l.Layer = "denied", layer
		var e syscall.Errno
		switch {
		case errors.As(err, &e):
			l.Errno = unix.ErrnoName(e)
		default:
			l.Errno = err.Error()
		}
		switch {
		case nr >= 0 && filtered(nr):
			l.Layer = "seccomp"
		case e == unix.ESRCH || e == unix.ENOENT:
			l.Layer = "not visible (pid namespace, fresh /proc)"
		case e == unix.EROFS:
			l.Layer = "read-only mount"
		}
	}
	say(l)
	return err == nil
}

func done(what string) { say(line{What: what, Did: "done"}) }

const access = "access check (user namespace, not dumpable, Landlock)"

// filtered reports whether a call does not even reach the kernel's own checks:
// arguments that it would call invalid are answered with a refusal.
func filtered(nr int) bool {
	m := ^uintptr(0)
	_, _, e := unix.RawSyscall6(uintptr(nr), m, m, m, m, m, m)
	return e == unix.EPERM || e == unix.ENOSYS
}

// proc is one process that can be seen.
type proc struct {
	pid  int
	role string // of the worker's processes; "" of others
}

// visible lists the worker's processes, and process 1 and the parent in any
// case: what cannot be seen may still have a number.
func visible() (out []proc) {
	seen := map[int]bool{os.Getpid(): true}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, n := range names {
		pid, _ := strconv.Atoi(filepath.Base(n))
		cmd, _ := os.ReadFile(n + "/cmdline")
		if a := strings.Split(string(cmd), "\x00"); len(a) > 1 && a[0] == "caisson-worker" && !seen[pid] {
			out, seen[pid] = append(out, proc{pid, a[1]}), true
		}
	}
	for _, pid := range []int{1, os.Getppid()} {
		if !seen[pid] {
			out, seen[pid] = append(out, proc{pid, "?"}), true
		}
	}
	return out
}

var probes = map[string]func(args []string){}

func main() {
	if entry() {
		return
	}
	if len(os.Args) < 2 {
		os.Exit(3)
	}
	if f := probes[os.Args[1]]; f != nil {
		f(os.Args[2:])
		say(line{Ask: "end"})
		return
	}
	fmt.Fprintln(os.Stderr, "no such probe")
	os.Exit(3)
}

// isSocket reports whether fd is one that is not this program's own making.
func isSocket(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK
}

var spoken int

// speak says what it can on a socket that it should not have: what lies in it is
// read, then a forged message is sent. role is of whom it was taken.
func speak(fd int, via, role string) {
	if spoken++; spoken > 6 {
		return // enough has been said
	}
	name := fmt.Sprintf("socket of %s by %s", role, via)
	ask("quiet")
	// While the host asks the worker for something, whatever lies in the socket is
	// looked at.
	stop, read := make(chan bool), make(chan []byte, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, _, err := unix.Recvfrom(fd, buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if err == nil && n > 0 {
				read <- buf[:n]
				return
			}
			select {
			case <-stop:
				read <- nil
				return
			default:
			}
		}
	}()
	ask("ping")
	close(stop)
	if b := <-read; b != nil {
		say(line{What: "read from the " + name, Did: "possible", Leak: hex.EncodeToString(b)})
	}
	told := strings.Fields(ask("next")) // sequence, operation, digest, of the frame that the worker would send now
	var msg []byte
	if role == "relay" && len(told) == 3 {
		seq, _ := strconv.ParseUint(told[0], 10, 64)
		op, _ := strconv.ParseUint(told[1], 10, 64)
		msg = exitEvent(seq, op, told[2])
	} else {
		msg = exitRecord()
	}
	_, err := unix.SendmsgN(fd, msg, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	try("speak on the "+name, access, -1, err)
	ask("spoken")
}

// exitEvent is a frame that says: the command ended well. Its tag is a guess.
func exitEvent(seq, op uint64, digest string) []byte {
	body := []byte(`{"req":"` + digest + `","event":"exit","status":0}`)
	b := make([]byte, 64)
	copy(b, "csn1")
	b[4] = 3
	be := func(at int, v uint64, n int) {
		for i := range n {
			b[at+i] = byte(v >> (8 * (n - 1 - i)))
		}
	}
	be(8, seq, 8)
	be(16, op, 8)
	be(24, uint64(len(body)), 4)
	return append(b, body...)
}

// exitRecord is what a guardian says when its program ended with 42.
func exitRecord() []byte {
	b := make([]byte, 24)
	b[0], b[5] = 3, 42
	return b
}

// own lists descriptors above the three that a program is given.
func own() (fds []int) {
	ents, _ := os.ReadDir("/proc/self/fd")
	for _, e := range ents {
		fd, _ := strconv.Atoi(e.Name())
		if t, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && fd > 2 && !strings.HasPrefix(t, "anon_inode:") && !strings.HasPrefix(t, "/proc/") {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds
}
