//go:build linux

package clients

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) {
	harness.Beside(4)
	os.Exit(harness.Main(m))
}

// full says that everything is tried.
func full() bool { return os.Getenv("CAISSON_TEST_FULL") != "" }

// alone runs f on a thread whose processes and sockets have a network of their
// own, with a loopback device and nothing else, where this process may make one.
func alone(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer func() { done <- nil }()
		if os.Getuid() == 0 {
			runtime.LockOSThread() // and never unlocked: the thread ends with its network
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Logf("no network namespace (%v): on this machine's loopback device", err)
			} else if err := loopbackUp(); err != nil {
				done <- err
				return
			}
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	var req struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], "lo")
	req.flags = unix.IFF_UP
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&req))); e != 0 {
		return e
	}
	return nil
}

// serve serves h on a loopback address of the calling thread's network until the
// test is over, and returns the address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + l.Addr().String()
}

// running finds the processes whose command line has this part.
func running(part string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		line, _ := os.ReadFile(d + "/cmdline")
		if strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), part) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, pid)
		}
	}
	return pids
}

// relays finds the workers of an identity's tasks.
func relays(id *harness.Identity) (pids []int) {
	for _, pid := range running("caisson-worker relay") {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		env, _ := os.ReadFile("/proc/" + f[1] + "/environ")
		if strings.Contains(string(env), "CAISSON_STATE_DIR="+id.State) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// until waits for a condition, as long as ctx lasts.
func until(ctx context.Context, ok func() bool) bool {
	for !ok() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true
}

// kill ends a process that the test found; one that is gone already is no error.
func kill(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
		return
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
}

func write(t *testing.T, id *harness.Identity, name, text string) string {
	t.Helper()
	p := filepath.Join(id.Dir, name)
	id.Write(t, p, text, 0o600)
	return p
}
