//go:build linux

// Command attacker is hostile task content: it tries what a boundary must
// refuse and prints, one JSON object a line, what the kernel said. The same
// program runs outside as the control that shows that its attempts work.
//
// Its limit: it judges nothing and shares no code with the product. Outside it
// leaves out what would harm the machine and says so.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// config is what the test planted on the host. It comes as the first argument.
type config struct {
	Inside    bool
	Secret    string   // content of every file of Files
	Files     []string // outside only
	Forbidden []string // nothing inside may open these, whatever they hold
	Work      string   // a folder that may be written
	Unix      []string // prefixes; listeners at .stream, .dgram, .seq
	Known     [][2]string
	Abstract  []string
	Net       []string // host:port with a TCP listener
	Env       []string // names of the caller's variables
	Pid       int      // a sleeper of the same user
	Group     int      // a process group of the host
	Key       string   // description of a key in the host's session keyring
	Handle    []byte   // a file handle of the first of Files
	HandleOn  int
	Folder    string // shared read-only folder with set-id copies of this program
}

var c config

// result is one line of output.
type result struct {
	Prop, Name string
	Errno      string `json:",omitempty"` // as the kernel said, "" for success
	Detail     string `json:",omitempty"`
	Left       string `json:",omitempty"` // not tried, and why
	Root       bool   `json:",omitempty"` // outside, only root can do it
	Reached    bool   `json:",omitempty"` // success: the kernel looked at the arguments
	Kernel     bool   `json:",omitempty"` // a kernel may lack it
}

type try struct {
	result
	harm string // not done outside, because
	do   func() error
}

var tries []*try

func add(prop, name string, do func() error) *try {
	t := &try{result: result{Prop: prop, Name: name}, do: do}
	tries = append(tries, t)
	return t
}

func (t *try) root() *try          { t.Root = true; return t }
func (t *try) kernel() *try        { t.Kernel = true; return t }
func (t *try) harms(w string) *try { t.harm = w; return t }

// reached makes every answer a success that shows that the kernel itself
// looked at the call, for example because an argument is bad.
func (t *try) reached() *try {
	do := t.do
	t.Reached = true
	t.do = func() error {
		err := do()
		var e syscall.Errno
		if errors.As(err, &e) && !slices.Contains([]syscall.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.ENXIO}, e) {
			return nil
		}
		return err
	}
	return t
}

// errConfined says that something was read, and that it is not the host's.
var errConfined = errors.New("confined view")

func main() {
	if len(os.Args) > 2 && os.Args[1] == "sub" {
		os.Exit(sub(os.Args[2:]))
	}
	if len(os.Args) > 1 && modes[os.Args[1]] != nil {
		modes[os.Args[1]](os.Args[2:])
		return
	}
	fds := inherited()
	if err := json.Unmarshal([]byte(os.Args[1]), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Setenv(configEnv, os.Args[1])
	descriptors(fds)
	register()
	for _, t := range tries {
		if len(os.Args) > 2 && !slices.Contains(os.Args[2:], t.Prop) {
			continue
		}
		run(t)
	}
}

// configEnv hands the config to the processes that in starts.
const configEnv = "ATTACKER_CONFIG"

func register() {
	paths()
	sockets()
	families()
	kernel()
	namespaces()
	processes()
	writes()
	devices()
	keys()
}

func run(t *try) {
	if t.harm != "" && !c.Inside {
		t.Left = t.harm
	} else if err := t.do(); err != nil {
		t.Errno, t.Detail = name(err), err.Error()
	}
	line, _ := json.Marshal(t.result)
	fmt.Println(string(line))
}

func name(err error) string {
	var e syscall.Errno
	switch {
	case errors.Is(err, errConfined):
		return "CONFINED"
	case errors.As(err, &e):
		return unix.ErrnoName(e)
	}
	return "?"
}

// in runs f in a process of its own: what it does to itself ends with it.
func in(args ...string) error {
	cmd := exec.Command("/proc/self/exe", append([]string{"sub"}, args...)...)
	return child(cmd)
}

func child(cmd *exec.Cmd) error {
	out, err := cmd.Output()
	var ee *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &ee):
		return err
	case ee.ExitCode() > 0:
		return fmt.Errorf("%s: %w", strings.TrimSpace(string(out)), syscall.Errno(ee.ExitCode()))
	}
	return fmt.Errorf("%s: %w", ee, syscall.EFAULT)
}

// sub is the other half of in: it ends with the number of the error.
func sub(args []string) int {
	runtime.LockOSThread()
	_ = json.Unmarshal([]byte(os.Getenv(configEnv)), &c)
	register()
	f := subs[args[0]]
	if f == nil {
		return 255
	}
	err := f(args[1:])
	if err == nil {
		return 0
	}
	fmt.Println(err)
	var e syscall.Errno
	if errors.As(err, &e) {
		return int(e)
	}
	return 254
}

var subs = map[string]func([]string) error{
	"steal": func(a []string) error { return call(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, uintptr(a[0][0]-'0')) },
}

// call makes a system call.
func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := syscall.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if e == 0 {
		return nil
	}
	return e
}

// minus is -1 as an argument.
const minus = ^uintptr(0)
