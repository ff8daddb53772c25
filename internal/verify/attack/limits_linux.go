//go:build linux

package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func number(a []string, i, def int) int {
	if len(a) > i {
		if n, err := strconv.Atoi(a[i]); err == nil {
			return n
		}
	}
	return def
}

// forks makes processes that stay until the kernel refuses, at most a[0].
func forks(a []string) {
	n := 0
	for n < number(a, 0, 5000) {
		cmd := again("sleep")
		if err := cmd.Start(); err != nil {
			fmt.Println("refused", n, name(err))
			return
		}
		n++
	}
	fmt.Println("unbounded", n)
}

// memory maps and touches a[0] mebibytes.
func memory(a []string) {
	for i := range number(a, 0, 64<<10) / 64 {
		b, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			fmt.Println("refused", i*64, name(err))
			return
		}
		for j := 0; j < len(b); j += 4096 {
			b[j] = 1
		}
	}
	fmt.Println("unbounded")
}

// files makes up to a[1] empty files in folder a[0].
func files(a []string) {
	for i := range number(a, 1, 10_000_000) {
		if i%1000 == 0 {
			if err := os.MkdirAll(filepath.Join(a[0], fmt.Sprint(i/1000)), 0o755); err != nil {
				fmt.Println("refused", i, name(err))
				return
			}
		}
		fd, err := unix.Open(filepath.Join(a[0], fmt.Sprint(i/1000), fmt.Sprint(i)), unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			fmt.Println("refused", i, name(err))
			return
		}
		unix.Close(fd)
	}
	fmt.Println("unbounded")
}

// fill writes up to a[1] mebibytes into file a[0].
func fill(a []string) {
	f, err := os.Create(a[0])
	if err != nil {
		fmt.Println("refused 0", name(err))
		return
	}
	buf := make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(i*7 + 1)
	}
	for i := range number(a, 1, 100<<10) {
		if _, err := f.Write(buf); err != nil {
			fmt.Println("refused", i, name(err))
			return
		}
	}
	fmt.Println("unbounded")
}

// fds opens descriptors until the kernel refuses.
func fds([]string) {
	for i := range 10_000_000 {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			fmt.Println("refused", i, name(err))
			return
		}
	}
	fmt.Println("unbounded")
}

// spin uses a[0] processors for ever.
func spin(a []string) {
	for range number(a, 0, 4) {
		go func() {
			//lint:ignore SA5002 to spin is what it is for
			for {
			}
		}()
	}
	fmt.Println("ready")
	select {}
}

// orphans leaves a[0] processes without a parent, ended, for pid 1 to reap.
func orphans(a []string) {
	if len(a) > 1 { // the middle one: its child outlives it
		for range number(a, 1, 1) {
			pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
			if e == 0 && pid == 0 {
				for {
					unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
				}
			}
		}
		return // its ended children have no parent now
	}
	total := number(a, 0, 10_000)
	for done := 0; done < total; done += 50 {
		for try := 0; ; try++ {
			err := again("orphans", "0", "50").Run()
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EAGAIN) || try > 500 {
				fmt.Println("failed", done, err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	fmt.Println("made", total)
	for range 500 {
		if n := zombies(); n == 0 {
			fmt.Println("reaped")
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("left", zombies())
}

func zombies() (n int) {
	for _, p := range pids() {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p)); err == nil {
			for i := range b {
				if b[i] == ')' && i+2 < len(b) && b[i+2] == 'Z' {
					n++
				}
			}
		}
	}
	return n
}
