//go:build linux

package attack

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

var c Config

type try struct {
	Outcome
	harm   string       // not done outside, because
	mark   string       // not done where nothing may be left, because
	ours   bool         // it is about what only a boundary of caisson's has
	softly func() error // instead, where nothing may be left
	do     func() error
}

var tries []*try

func add(prop, name string, do func() error) *try {
	t := &try{Outcome: Outcome{Prop: prop, Name: name}, do: do}
	tries = append(tries, t)
	return t
}

func (t *try) root() *try          { t.Root = true; return t }
func (t *try) kernel() *try        { t.Kernel = true; return t }
func (t *try) harms(w string) *try { t.harm = w; return t }
func (t *try) marks(w string) *try { t.mark = w; return t }
func (t *try) level(l int) *try    { t.Level = l; return t }
func (t *try) own() *try           { t.ours = true; return t }

// or makes the attempt another one where nothing may be left behind.
func (t *try) or(do func() error) *try { t.softly = do; return t }

// careful says that nothing may be changed where this runs.
func careful() bool { return c.Foreign || c.Gentle && !c.Inside }

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

// self are the arguments that lead this program here.
var self []string

// Main plays the hostile part that args ask for: the JSON of a Config and, when
// not all, the properties to try; or the name of a mode and its arguments. How the
// program comes here is in lead, for those that it starts itself. It returns the
// exit status.
func Main(lead, args []string) int {
	self = lead
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "nothing to do")
		return 2
	}
	if len(args) > 1 && args[0] == "sub" {
		return sub(args[1:])
	}
	if modes[args[0]] != nil {
		modes[args[0]](args[1:])
		return 0
	}
	fds := inherited()
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if c.Work == "" {
		defer workplace()()
		args[0] = jsonOf(c)
	}
	os.Setenv(configEnv, args[0])
	descriptors(fds)
	register()
	for _, t := range tries {
		if len(args) > 1 && !slices.Contains(args[1:], t.Prop) {
			continue
		}
		run(t)
	}
	return 0
}

// workplace makes a folder to work in where none is known, and returns what removes
// it.
func workplace() func() {
	for _, d := range []string{"/tmp", "/var/tmp", "/dev/shm", "."} {
		if dir, err := os.MkdirTemp(d, "caisson-verify-"); err == nil {
			c.Work = dir
			return func() { _ = os.RemoveAll(dir) }
		}
	}
	c.Work = "/nonexistent"
	return func() {}
}

func jsonOf(v any) string {
	b, _ := json.Marshal(v) // plain values
	return string(b)
}

// again prepares to start this program once more.
func again(args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", slices.Concat(self, args)...)
}

// configEnv hands the config to the processes that in starts.
const configEnv = "ATTACKER_CONFIG"

func register() {
	paths()
	sockets()
	ways()
	families()
	kernel()
	namespaces()
	processes()
	writes()
	devices()
	keys()
	privileges()
	record()
	far()
}

func run(t *try) {
	switch {
	case t.harm != "" && (!c.Inside || c.Foreign):
		t.Left = t.harm
	case t.ours && c.Foreign:
		t.Left = "it is about caisson's own worker, which is not there"
	case t.mark != "" && careful() && t.softly == nil:
		t.Left = t.mark
	default:
		do := t.do
		if t.softly != nil && careful() {
			do = t.softly
		}
		if err := do(); err != nil {
			t.Errno, t.Detail = name(err), err.Error()
		}
	}
	line, _ := json.Marshal(t.Outcome)
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
	if late, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && late.Timeout() {
		return "ETIMEDOUT"
	}
	return "?"
}

// in runs f in a process of its own: what it does to itself ends with it.
func in(args ...string) error {
	return child(again(append([]string{"sub"}, args...)...))
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
