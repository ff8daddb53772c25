//go:build linux

package attack

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// tty is P30: what a program could do to the terminal that it shares. a[0] is
// the config.
func tty(a []string) {
	_ = json.Unmarshal([]byte(a[0]), &c)
	for _, where := range []string{"0", "1", "2", "/dev/tty"} {
		fd := func() (int, error) {
			if where == "/dev/tty" {
				return unix.Open(where, unix.O_RDWR|unix.O_CLOEXEC, 0)
			}
			return int(where[0] - '0'), nil
		}
		ioctl := func(req uintptr, arg uintptr) func() error {
			return func() error {
				f, err := fd()
				if err != nil {
					return err
				}
				return call(unix.SYS_IOCTL, uintptr(f), req, arg)
			}
		}
		ch := []byte("x")
		zero := int32(0)
		for _, high := range []uintptr{0, 1 << 32, 0xdeadbeef << 32} {
			note := ""
			if high != 0 {
				note = fmt.Sprintf(" with high bits %#x", high)
			}
			add("P30", "push input on "+where+note, ioctl(unix.TIOCSTI|high, ptr(&ch[0]))).root()
			add("P30", "TIOCLINUX on "+where+note, ioctl(0x541c|high, ptr(&ch[0]))).reached()
			add("P30", "set the line discipline of "+where+note, ioctl(unix.TIOCSETD|high, ptr(&zero)))
			add("P30", "take the console on "+where+note, ioctl(unix.TIOCCONS|high, 0)).harms("it would move the machine's console")
		}
		if x32 != 0 {
			add("P30", "push input on "+where+" by the x32 number", func() error {
				f, err := fd()
				if err != nil {
					return err
				}
				return call(514|x32, uintptr(f), unix.TIOCSTI, ptr(&ch[0]))
			}).reached().kernel()
		}
	}
	// A new session steals the terminal of another: only by force, and for that root is needed.
	for _, force := range []string{"0", "1"} {
		t := add("P30", "steal the terminal, force "+force, func() error {
			cmd := again("sub", "steal", force)
			cmd.Stdin = os.Stdin
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			return child(cmd)
		})
		if force == "0" {
			t.harms("the kernel refuses it always")
		} else {
			t.harms("the session would lose its terminal")
		}
	}
	for _, t := range tries {
		run(t)
	}
	var st, pts unix.Stat_t
	_ = unix.Fstat(0, &st)
	_ = unix.Stat("/dev/pts", &pts)
	fmt.Printf("{\"Prop\":\"PTS\",\"Name\":\"%v\"}\n", st.Dev == pts.Dev)
}

// setid runs programs whose files carry somebody else's authority and prints
// what they became.
func setid(a []string) {
	for _, p := range a {
		out, err := exec.Command(p, append(slices.Clone(self), "whoami")...).CombinedOutput()
		fmt.Printf("%s: %s", filepath.Base(p), out)
		if err != nil {
			fmt.Printf("%v\n", err)
		}
	}
	// The content of a program in memory, and run from there.
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
	if err == nil {
		data, _ := os.ReadFile("/proc/self/exe")
		f := os.NewFile(uintptr(fd), "x")
		_, _ = f.Write(data)
		out, err := exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd), append(slices.Clone(self), "whoami")...).CombinedOutput()
		fmt.Printf("memfd: %s%v\n", out, err)
	}
}
