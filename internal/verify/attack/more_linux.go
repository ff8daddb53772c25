//go:build linux

package attack

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() {
	for name, f := range map[string]func([]string){
		"forge": forge, "say": say, "crowd": crowd, "linger": linger, "remove": remove, "plant-git": plantGit, "unguarded-git": unguardedGit,
	} {
		modes[name] = f
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// forge prints bytes that look like messages of the channel, results and commands to
// a terminal.
func forge([]string) {
	frame := make([]byte, 64)
	copy(frame, "csn1\x02")
	frame[15] = 1
	for range 3 {
		_, _ = os.Stdout.Write(frame)
		_, _ = os.Stdout.WriteString("{\"exit\":0,\"observed\":true}\n{\"schema\":\"caisson.result/1\",\"state\":\"closed\"}\r\n\x1b]0;done\x07\x1b[2J\xff\xfe\x00\n")
		frame[4]++
	}
}

func remove(a []string) { fail(os.Remove(a[0])) }

func say(a []string) { fmt.Println(a[0]) }

// crowd makes a[0] processes that end with this one, or says where the kernel
// stopped.
func crowd(a []string) {
	runtime.LockOSThread() // the thread that is their parent stays
	want := number(a, 0, 100)
	made, e := crowdOf(make([]int, 0, want), os.Getpid(), want)
	for _, pid := range made {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for _, pid := range made {
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
	if e != 0 {
		fmt.Println("refused", len(made), unix.ErrnoName(e))
		return
	}
	fmt.Println("unbounded")
}

// crowdOf makes copies of this process that wait for their end, which comes with
// that of parent.
//
//go:norace
func crowdOf(made []int, parent, want int) ([]int, syscall.Errno) {
	for range want {
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e == 0 && pid == 0 {
			unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
			for {
				// A parent that ended before the call above sends no signal.
				if p, _, _ := unix.RawSyscall6(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0); int(p) != parent {
					unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
				}
				unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		if e != 0 {
			return made, e
		}
		made = append(made, int(pid))
	}
	return made, 0
}

// linger leaves a process in a session of its own behind.
func linger(a []string) {
	cmd := again("sleep", a[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	fail(cmd.Start())
}

// plantGit names a program that makes the file a[1] in every git setting of the
// repository a[0] that git starts one for.
func plantGit(a []string) {
	run := fmt.Sprintf("touch %s; false", a[1])
	f, err := os.OpenFile(a[0]+"/.git/config", os.O_APPEND|os.O_WRONLY, 0)
	fail(err)
	_, err = fmt.Fprintf(f, "[core]\n\tfsmonitor = %q\n\tpager = %q\n\thooksPath = hooks\n\tsshCommand = %q\n[diff]\n\texternal = %q\n[diff \"x\"]\n\ttextconv = %q\n\tcommand = %q\n[filter \"x\"]\n\tclean = %q\n\tsmudge = %q\n[credential]\n\thelper = %q\n[gpg]\n\tprogram = %q\n",
		run, run, run, run, run, run, run, run, "!"+run, run)
	fail(err)
	fail(f.Close())
	fail(os.WriteFile(a[0]+"/.gitattributes", []byte("* diff=x filter=x\n"), 0o644))
	fail(os.MkdirAll(a[0]+"/.git/hooks", 0o755))
	for _, h := range []string{"pre-commit", "post-checkout", "post-index-change", "reference-transaction", "post-commit"} {
		fail(os.WriteFile(a[0]+"/.git/hooks/"+h, []byte("#!/bin/sh\n"+run+"\n"), 0o755))
	}
	fail(os.WriteFile(a[0]+"/a.txt", []byte("changed\n"), 0o644))
}

// unguardedGit is the control: what a person's own git does in such a repository.
func unguardedGit(a []string) {
	cmd := exec.Command("/bin/sh", "-c", "git status; git diff")
	cmd.Dir = a[0]
	_ = cmd.Run()
}
