//go:build linux

package hostsockets_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/hostsockets"
	"github.com/caisson-dev/caisson/internal/worker/crossing"
)

const patience = 30 * time.Second

// apart runs f on a thread in a network namespace of its own, with loopback up. What
// f makes there stays usable elsewhere.
func apart(t *testing.T, f func() error) {
	t.Helper()
	end := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			end <- &skip{err}
			return
		}
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(s)
			var ifr *unix.Ifreq
			if ifr, err = unix.NewIfreq("lo"); err == nil {
				ifr.SetUint16(unix.IFF_UP)
				err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
			}
		}
		if err == nil {
			err = f()
		}
		end <- err
	}()
	err := <-end
	if s, ok := err.(*skip); ok {
		t.Skipf("a network namespace of its own cannot be made here: %v", s.error)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type skip struct{ error }

var way = &backend.Way{Proxy: 61080, Ports: []uint16{80, 443}, At: []string{"127.0.0.1:5432"}}

// handed opens a door, hands over what make returns, and takes it as pid.
func handed(t *testing.T, make func() ([]int, error), pid int) ([]int, error) {
	t.Helper()
	dir := t.TempDir()
	d, err := hostsockets.OpenDoor(dir)
	if err != nil {
		t.Fatal(err)
	}
	apart(t, func() error {
		fds, err := make()
		if err == nil {
			err = crossing.Send(filepath.Join(dir, hostsockets.DoorName), fds)
		}
		hostsockets.CloseAll(fds)
		return err
	})
	got, err := d.Take(pid)
	if cerr := d.Close(); cerr != nil {
		t.Error(cerr)
	}
	if err := crossing.Send(filepath.Join(dir, hostsockets.DoorName), nil); err == nil {
		t.Error("a closed door is open")
	}
	return got, err
}

func both(inward int) func() ([]int, error) {
	return func() ([]int, error) {
		fds, err := crossing.Open(&crossing.Way{Proxy: way.Proxy, Ports: way.Ports, At: way.At})
		if err != nil {
			return nil, err
		}
		in, err := crossing.Inward(inward)
		return append(fds, in...), err
	}
}

// What comes through a door is the host's: programs of that namespace are caught at
// whatever address, and the host connects to servers there.
func TestThroughADoor(t *testing.T) {
	got, err := handed(t, both(2), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var set hostsockets.Set
	defer set.Close()
	if err := set.Add(got, way, 2); err != nil {
		t.Fatal(err)
	}
	s, err := set.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Proxy.Addr().String() != "127.0.0.1:61080" || len(s.Direct) != 3 || len(s.Names) == 0 {
		t.Errorf("%v, %d, %d", s.Proxy.Addr(), len(s.Direct), len(s.Names))
	}
	// The sockets that lead inside are in that namespace: what the host itself listens
	// at is not reached by them, and what is caught there is.
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	at := netip.MustParseAddrPort(outside.Addr().String())
	if c, err := set.DialInside(t.Context(), at); err == nil {
		_ = c.Close()
		t.Error("a socket that leads inside leads outside")
	}
	caught := make(chan string, 1)
	for _, l := range s.Direct {
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			caught <- c.LocalAddr().String()
			_, _ = io.WriteString(c, "hello")
		}()
	}
	ctx, done := context.WithTimeout(t.Context(), patience)
	defer done()
	for range 5 { // more often than there are sockets: each is used again
		c, err := set.DialInside(ctx, netip.MustParseAddrPort("127.0.0.1:5432"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	select {
	case to := <-caught:
		if to != "127.0.0.1:5432" {
			t.Errorf("it came in at %s", to)
		}
	case <-ctx.Done():
		t.Error("nobody was caught")
	}
	if _, err := set.DialInside(ctx, netip.MustParseAddrPort("192.0.2.1:80")); err == nil {
		t.Error("an address that is none of loopback was dialled")
	}
}

// What is not the worker's, or not what was asked for, is not taken.
func TestNotTaken(t *testing.T) {
	if got, err := handed(t, both(1), os.Getpid()+1); err == nil {
		hostsockets.CloseAll(got)
		t.Error("another process was taken for the worker")
	}
	if got, err := handed(t, both(1), 0); err == nil {
		hostsockets.CloseAll(got)
		t.Error("a worker that is not known was believed")
	}
	for name, c := range map[string]struct {
		make   func() ([]int, error)
		inward int
		want   string
	}{
		"one is missing": {func() ([]int, error) {
			return crossing.Open(&crossing.Way{Proxy: way.Proxy, Ports: []uint16{80}, At: way.At})
		}, 0, "missing"},
		"one too many": {func() ([]int, error) {
			return crossing.Open(&crossing.Way{Proxy: way.Proxy, Ports: []uint16{80, 443, 8080}, At: way.At})
		}, 0, "none that was asked for"},
		"at another port": {func() ([]int, error) { return crossing.Open(&crossing.Way{Proxy: 61081, Ports: way.Ports, At: way.At}) }, 0, "none that was asked for"},
		"too few":         {func() ([]int, error) { return crossing.Inward(1) }, 2, "are to lead inside"},
		"inward, but bound": {func() ([]int, error) {
			return crossing.Open(&crossing.Way{Proxy: way.Proxy, Ports: way.Ports, At: way.At})
		}, 1, "is bound to"},
		"a file": {func() ([]int, error) {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			return []int{fd}, err
		}, 0, "none that was asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := handed(t, c.make, os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			set, err := hostsockets.Take(got, way, nil, c.inward)
			if err == nil {
				set.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Sockets of the host's own stand in folders whose paths are longer than a socket's
// address may be, and anybody may connect who reaches them.
func TestListenLocal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 200))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	old := unix.Umask(0o077)
	fd, err := hostsockets.ListenLocal(dir, "ssh", unix.SOCK_STREAM)
	unix.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	var set hostsockets.Set
	set.AddLocal(fd)
	defer set.Close()
	st, err := os.Stat(filepath.Join(dir, "ssh"))
	if err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("%v %v", st, err)
	}
	ls, err := set.LocalSockets()
	if err != nil || ls["ssh"] == nil {
		t.Fatalf("%v %v", ls, err)
	}
	go func() {
		if c, err := ls["ssh"].Accept(); err == nil {
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	c, err := net.DialTimeout("unix", "/proc/self/fd/"+strconv.Itoa(int(at.Fd()))+"/ssh", patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(c); string(b) != "hello" {
		t.Errorf("%q %v", b, err)
	}
	_ = ls["ssh"].Close()
	if _, err := os.Stat(filepath.Join(dir, "ssh")); err != nil {
		t.Errorf("a listener that was handed out took the name away: %v", err)
	}
}
