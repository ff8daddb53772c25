//go:build linux

package linux

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/callfilter"
)

// roles are what the test binary does when it is started again by a test.
var roles = map[string]func() int{"syscalls": roleSyscalls, "hold": roleHold, "probe": roleProbe, "churn": roleChurn}

func roleDriver() *Driver {
	return New(Config{Worker: func() (string, error) { return os.Getenv(workerEnv), nil }}).(*Driver)
}

// roleProbe prints what Probe says here.
func roleProbe() int {
	if os.Getenv("CAISSON_TEST_FILTER") != "" {
		loadFilter(callfilter.Tool(false, false))
	}
	c, err := roleDriver().Probe(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return print(c)
}

// roleChurn makes boundaries while a file of /etc is replaced over and over, as
// package managers do. The /etc is the test's own.
func roleChurn() int {
	text, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var took atomic.Int64 // the last boundary
	took.Store(int64(100 * time.Millisecond))
	go func() {
		for {
			if os.WriteFile("/etc/ld.so.cache~", text, 0o644) == nil {
				_ = os.Rename("/etc/ld.so.cache~", "/etc/ld.so.cache")
			}
			time.Sleep(time.Duration(6 * took.Load())) // else no boundary would ever have the time
		}
	}()
	for range 60 {
		began := time.Now()
		if c, err := roleDriver().Probe(context.Background()); err != nil || !c.Usable {
			fmt.Fprintln(os.Stderr, err, c.Why)
			return 1
		}
		took.Store(int64(time.Since(began)))
	}
	return 0
}

// roleHold makes the boundary of the spec on stdin, prints its resources and
// stays until it is killed.
func roleHold() int {
	var s backend.Spec
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return 2
	}
	i, err := roleDriver().Create(context.Background(), s)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	print(i.Resources())
	time.Sleep(time.Hour)
	return 0
}

func print(v any) int {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		return 1
	}
	return 0
}

func loadFilter(prog []byte) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	insns := make([]unix.SockFilter, len(prog)/8)
	for i := range insns {
		insns[i] = *(*unix.SockFilter)(unsafe.Pointer(&prog[i*8]))
	}
	fprog := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		panic(errno)
	}
}

// call is one system call of the filter test.
type call struct {
	Name string
	NR   int
	Args [6]uintptr
}

// roleSyscalls makes the calls given on stdin, with or without a filter, and
// prints the errno of each.
func roleSyscalls() int {
	var in struct {
		Filter []byte
		Calls  []call
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return 2
	}
	runtime.LockOSThread()
	if len(in.Filter) > 0 {
		loadFilter(in.Filter)
	}
	out := map[string]int{}
	for _, c := range in.Calls {
		r, _, errno := unix.RawSyscall6(uintptr(c.NR), c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
		if (c.NR == unix.SYS_CLONE || c.NR == unix.SYS_CLONE3) && errno == 0 {
			if r == 0 { // the child that should not exist
				unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
			_, _ = unix.Wait4(int(r), nil, 0, nil)
		}
		if (c.NR == unix.SYS_SOCKET) && errno == 0 {
			unix.Close(int(r))
		}
		out[c.Name] = int(errno)
	}
	return print(out)
}
