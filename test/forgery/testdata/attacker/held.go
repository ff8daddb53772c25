//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

func init() { probes["F23"] = held }

// held is F23: files for the tools that the worker itself carries out, changed
// under its hands by a program that holds the same ones. The host names the paths;
// what it must not get is what the kernel would show to the worker alone.
func held([]string) {
	const dir = "/home/tester/src/f23"
	must := func(errs ...error) {
		if err := errors.Join(errs...); err != nil {
			try("lay out files", "", -1, err)
			os.Exit(4)
		}
	}
	must(os.RemoveAll(dir), os.MkdirAll(dir+"/pool", 0o755), os.Chdir(dir))
	write := func(name, text string) { must(os.WriteFile(name, []byte(text), 0o644)) }
	link := func(name, to string) { must(os.Symlink(to, name)) }

	write("plain", "plain\n")
	must(os.Link("plain", "second name"))
	for name, to := range magic {
		link("link-"+name, to)
	}
	link("hop", "/proc")
	link("hop2", "hop/self")
	must(unix.Mkfifo("fifo", 0o644))
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(err, unix.Bind(s, &unix.SockaddrUnix{Name: "sock"}))
	write("sparse", "")
	must(os.Truncate("sparse", 1<<40))
	write("long", strings.Repeat("a line of text\n", 1000))
	must(os.Truncate("long", 1<<25))
	for _, name := range []string{"n\nl", "\xff\xfe", "-rf", strings.Repeat("x", 255), " ", ".caisson-0123456789abcdef~", "\x1b[2J", "a\u202eb"} {
		write(name, "mine\n")
	}
	write("lease", "mine\n")
	if fd, err := unix.Open("lease", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		done(fmt.Sprintf("hold a lease that is never given up: %v", err))
	}

	// What takes turns under one name.
	write("s", "mine\n")
	write("pool/file", "mine\n")
	must(os.Mkdir("pool/dir", 0o755), unix.Mkfifo("pool/fifo", 0o644))
	write("pool/dir/inner", "mine\n")
	for name, to := range magic {
		link("pool/"+name, to)
	}
	turns, err := filepath.Glob("pool/*")
	must(err)
	// A folder, and the same name for the worker's own in /proc.
	must(os.MkdirAll("d/fd", 0o755), os.MkdirAll("d/task", 0o755))
	for _, f := range []string{"status", "environ", "maps", "cmdline", "mem", "fd/3", "syscall"} {
		write("d/"+f, "mine\n")
	}
	link("e", "/proc/self")
	// Folders that move while a path through them is walked.
	must(os.MkdirAll("p/a/b/c", 0o755), os.Mkdir("q", 0o755))
	write("p/a/b/c/f", "mine\n")
	whole := func(c byte) []byte { return bytes.Repeat([]byte{c}, 64<<10) }
	write("r", string(whole('a')))
	write("w", string(whole('a')))
	write("g", "")

	var stop atomic.Bool
	var n atomic.Int64
	var wg sync.WaitGroup
	churn := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				f(i)
				n.Add(1)
			}
		})
	}
	swap := func(a, b string) { _ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) }
	churn(func(i int) {
		if swap("s", turns[i%len(turns)]); i%17 == 0 {
			_ = os.Remove("fresh")
			_ = os.Symlink(magic["status"], "fresh")
		}
	})
	churn(func(int) { swap("d", "e") })
	churn(func(int) {
		_ = os.Rename("p/a", "q/a")
		_ = os.Rename("q/a", "p/a")
	})
	churn(func(i int) {
		_ = os.WriteFile("r.new", whole("ab"[i%2]), 0o644)
		_ = os.Rename("r.new", "r")
	})
	churn(func(i int) {
		if f, err := os.OpenFile("w", os.O_WRONLY, 0); err == nil {
			_, _ = f.Write(whole("ab"[i%2]))
			_ = f.Close()
		}
		_ = os.Truncate("g", int64(i%7)<<18)
	})
	// The file that the worker writes before it gives it its name.
	churn(func(i int) {
		list, _ := filepath.Glob(".caisson-*~")
		for _, name := range list {
			switch i % 4 {
			case 0:
				_ = os.Link(name, "caught")
			case 1:
				_ = os.Remove(name)
				_ = os.Symlink(magic["fd3"], name)
			case 2:
				swap(name, "pool/mem")
			}
			_ = os.Remove("caught")
		}
	})
	ask("hold")
	stop.Store(true)
	wg.Wait()
	done(fmt.Sprintf("change names and contents %d times", n.Load()))
}

// magic is where the kernel shows the worker itself to the worker.
var magic = map[string]string{
	"status": "/proc/self/status", "mem": "/proc/self/mem", "environ": "/proc/self/environ", "maps": "/proc/self/maps",
	"thread": "/proc/thread-self/status", "one": "/proc/1/status", "fd3": "/proc/self/fd/3", "devfd": "/dev/fd/3",
	"root": "/proc/self/root/proc/self/status", "cwd": "/proc/self/cwd/proc/self/status", "up": "../../../../../../proc/self/status",
	"sys": "/sys/kernel/uevent_seqnum", "tty": "/dev/ptmx",
}
