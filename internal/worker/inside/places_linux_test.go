package inside

import (
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is the test, or the worker's beginning in a process of its own, which a
// first argument asks for.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "places" {
		os.Exit(beginPlaces())
	}
	if len(os.Args) == 2 && os.Args[1] == "placed" {
		os.Exit(lookPlaces())
	}
	os.Exit(m.Run())
}

// beginPlaces begins as a builder does, leaves two descriptors in the places, and
// has what it becomes look at them. What stands in its input is done before that: "c"
// opens what the runtime would, "i" leaks.
func beginPlaces() int {
	var b [8]byte
	n, _ := unix.Read(0, b[:])
	for _, what := range b[:max(n, 0)] {
		flags := 0
		if what == 'c' {
			flags = unix.EPOLL_CLOEXEC
		}
		if _, err := unix.EpollCreate1(flags); err != nil {
			return 1
		}
	}
	if !onlyChannel() {
		return ExitInherit
	}
	if err := leave(0, 1); err != nil {
		return 1
	}
	_ = become("placed")
	return 1
}

// lookPlaces begins as a relay does.
func lookPlaces() int {
	if _, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil { // low, as the runtime's
		return 1
	}
	if !inherited(ChannelFD) || !inherited(spaceFD) || !inherited(reportFD) || onlyPlaces() != nil {
		return 2
	}
	for fd := ChannelFD + 1; fd < 1024; fd++ {
		if inherited(fd) != (fd == spaceFD || fd == reportFD) {
			return 3
		}
	}
	// The runtime's poller, if there is one by now, works.
	time.Sleep(time.Millisecond)
	return 0
}

// What the Go runtime opens for itself is no descriptor of the host's, and is not in
// the way; what the host leaks is refused, wherever it is.
func TestPlaces(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// What who started this test leaked into it is not to come in.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, before string
		leaked       []int
		want         int
	}{
		{"nothing else", "", nil, 0},
		{"the runtime was faster", "c", nil, 0},
		{"with both descriptors", "cc", nil, 0},
		{"a leak beside it", "ci", nil, ExitInherit},
		{"a leak in the first place", "", []int{4}, ExitInherit},
		{"a leak further up", "", []int{9}, ExitInherit},
		{"a leak far up", "", []int{900}, ExitInherit},
	} {
		t.Run(c.name, func(t *testing.T) {
			channel, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer channel.Close()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			_, _ = w.WriteString(c.before)
			_ = w.Close()
			cmd := exec.Command(self, "places")
			cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = r, os.Stderr, []*os.File{channel}
			for fd := ChannelFD + 1; len(c.leaked) > 0 && fd <= slices.Max(c.leaked); fd++ {
				var f *os.File // closed inside
				if slices.Contains(c.leaked, fd) {
					f = channel
				}
				cmd.ExtraFiles = append(cmd.ExtraFiles, f)
			}
			if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.want {
				t.Errorf("it ended with %v, want status %d", err, c.want)
			}
		})
	}
}
