// Package git is the one place that starts git on the host. Every call is
// neutral: nothing that a repository, a checkout or the environment says makes
// git run another program, open a connection, page, prompt or take an argument
// for an option.
//
// Its limit: it knows processes, environments and output formats. What a call
// means, and in which git directory it may run, is decided in package source.
//
// The settings below override a repository's own configuration. Three kinds of
// keys have free names and cannot be overridden: filter.<x>.*, diff.<x>.* with
// merge.<x>.*, and alias.<x>. They act only where git reads or writes a work
// tree, renders a diff or is given an unknown command word. Therefore no
// command that touches a work tree or renders a diff ever runs on a git
// directory that caisson did not make, and the command word is a constant.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// MinVersion is the oldest git that is driven: GIT_CONFIG_COUNT came with it.
var MinVersion = [3]int{2, 31, 0}

// DefaultMax bounds what one call may print when Cmd.Max is 0, in bytes.
const DefaultMax = 64 << 20

// DefaultTimeout bounds one call when Cmd.Timeout is 0.
const DefaultTimeout = 10 * time.Minute

// stderrMax bounds what is kept of a call's error output.
const stderrMax = 16 << 10

// Git is a git program that was found and is new enough.
type Git struct {
	path    string
	version [3]int
}

// Spawns counts the processes started so far, for tests of the spawn budget.
var Spawns atomic.Int64

var found struct {
	mu   sync.Mutex
	git  *Git
	file string // see RememberIn
}

// systemDirs are looked in first. They are writable by the administrator only,
// so a program called git in a checkout or a PATH entry cannot come before.
var systemDirs = []string{"/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin", "/opt/homebrew/bin"}

// Find returns the host's git. path is the value of PATH; only its absolute
// entries count, never the working directory. The answer is remembered.
func Find(ctx context.Context, path string) (*Git, error) {
	found.mu.Lock()
	defer found.mu.Unlock()
	if found.git != nil {
		return found.git, nil
	}
	dirs := append([]string(nil), systemDirs...)
	for _, d := range filepath.SplitList(path) {
		if filepath.IsAbs(d) {
			dirs = append(dirs, d)
		}
	}
	var tooOld string
	for _, d := range dirs {
		p := filepath.Join(d, programName)
		st, err := os.Stat(p)
		if err != nil || !st.Mode().IsRegular() || !executable(st.Mode()) || st.Mode()&0o002 != 0 {
			continue
		}
		g := &Git{path: p}
		v, known := recall(found.file, p)
		if !known {
			out, err := g.Run(ctx, Cmd{Args: []string{"version"}, Timeout: 20 * time.Second})
			if task.Shortage(err) != "" {
				return nil, err // it is there, and nothing can be started
			}
			if err != nil {
				continue
			}
			var ok bool
			if v, ok = ParseVersion(string(out)); !ok {
				continue
			}
			retain(found.file, p, v)
		}
		g.version = v
		if !g.AtLeast(MinVersion[0], MinVersion[1], MinVersion[2]) {
			tooOld = fmt.Sprintf("%s is version %d.%d.%d", p, v[0], v[1], v[2])
			continue
		}
		found.git = g
		return g, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, task.Errorf(task.CodeCanceled, "source.git", "looking for git was cancelled: %w", err)
	}
	if tooOld != "" {
		return nil, task.Errorf(task.CodeUnavailable, "source.git", "git is too old: %s", tooOld).
			WithHint("install git %d.%d or newer", MinVersion[0], MinVersion[1])
	}
	return nil, task.Errorf(task.CodeUnavailable, "source.git", "git was not found in the system folders or on PATH").
		WithHint("install git %d.%d or newer", MinVersion[0], MinVersion[1])
}

// Path returns the absolute path of the program.
func (g *Git) Path() string { return g.path }

// Version returns the version as "2.39.5".
func (g *Git) Version() string {
	return fmt.Sprintf("%d.%d.%d", g.version[0], g.version[1], g.version[2])
}

// AtLeast reports whether the version is at least major.minor.patch.
func (g *Git) AtLeast(major, minor, patch int) bool {
	want := [3]int{major, minor, patch}
	for i := range want {
		if g.version[i] != want[i] {
			return g.version[i] > want[i]
		}
	}
	return true
}

// ParseVersion reads the answer of `git version`.
func ParseVersion(s string) (v [3]int, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimSpace(s), "git version ")
	if !ok {
		return v, false
	}
	s, _, _ = strings.Cut(s, " ")
	for i, part := range strings.SplitN(s, ".", 4) {
		if i == 3 {
			break
		}
		digits := part
		for j, c := range part {
			if c < '0' || c > '9' {
				digits = part[:j]
				break
			}
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return v, i >= 2
		}
		v[i] = n
	}
	return v, true
}

// Cmd is one call. The zero value of every field is the strict choice.
type Cmd struct {
	// GitDir is the absolute path of the git directory. Empty only for calls
	// that need none (`version`, `config -f`).
	GitDir string
	// WorkTree is the absolute path of the work tree, where one is needed.
	WorkTree string
	// Dir is the working directory; empty is WorkTree, else GitDir, else "/".
	Dir string
	// Args is the command word and its arguments. Whatever a person or a
	// boundary chose comes after --end-of-options or --, or over stdin.
	Args []string
	// Config adds key=value pairs after the neutral ones.
	Config []string
	// Env adds variables: object directories, index file, identity.
	Env []string
	// UserConfig, when not nil, is the part of the user's environment under
	// which git reads the system and user configuration. It is meant for
	// `git config` alone, which starts no program.
	UserConfig []string
	Stdin      io.Reader
	// Stdout receives the output, bounded by Max when that is set; nil
	// collects it, at most Max bytes.
	Stdout io.Writer
	Max    int64
	// Progress receives the lines of the error output as they come.
	Progress func(string)
	Timeout  time.Duration
	// MemoryMax bounds the address space of git, in bytes, where it reads what
	// a boundary made: an object may claim any size. 0 sets no bound.
	MemoryMax uint64
}

// ExitError is a git that ended with a status other than 0.
type ExitError struct {
	Word   string // the command word
	Status int    // -1: ended by a signal
	Stderr string // bounded, control characters replaced
	errno  syscall.Errno
}

// Unwrap returns why the file system that git wrote to takes nothing, where
// that is so: git itself says it in words only.
func (e *ExitError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// refused returns that reason. It is asked of the file system; git's words only
// tell a call that failed to write from one that failed otherwise.
func refused(dir, words string) syscall.Errno {
	for _, w := range []string{"write", "writing", "creat", "space", "Read-only"} {
		if strings.Contains(words, w) {
			return sys.Refuses(dir)
		}
	}
	return 0
}

// Error renders word, status and the last line git printed.
func (e *ExitError) Error() string {
	msg := strings.TrimSpace(e.Stderr)
	if msg == "" {
		return fmt.Sprintf("git %s ended with status %d", e.Word, e.Status)
	}
	return fmt.Sprintf("git %s: %s", e.Word, msg)
}

// Status returns the exit status that err carries, or -1.
func Status(err error) int {
	var e *ExitError
	if errors.As(err, &e) {
		return e.Status
	}
	return -1
}

// errTooMuch ends a call that prints more than it may.
var errTooMuch = errors.New("output is larger than its limit")

// Run starts git, waits for it and returns what it printed, unless Stdout was
// given. On cancellation the whole process group is told to end.
func (g *Git) Run(ctx context.Context, c Cmd) ([]byte, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := g.command(ctx, c)
	var buf bytes.Buffer
	limit := c.Max
	switch {
	case limit == 0 && c.Stdout == nil:
		limit = DefaultMax
	case limit == 0:
		limit = 1 << 62 // the receiver bounds it
	}
	out := &limited{w: &buf, left: limit, stop: cancel}
	if c.Stdout != nil {
		out.w = c.Stdout
	}
	p.Stdout = out
	errs := &lastLines{progress: c.Progress}
	p.Stderr = errs
	Spawns.Add(1)
	// git gets its death signal when the thread that started it ends, not the
	// process: no goroutine that takes its thread with it may run on this one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bound := c.MemoryMax > 0 && limitItself(p, c.MemoryMax)
	err := p.Start()
	if err == nil {
		if c.MemoryMax > 0 && !bound {
			// git has not read its input yet, or hardly.
			if lerr := limitMemory(p.Process.Pid, c.MemoryMax); lerr != nil {
				cancel()
				_ = p.Wait()
				return nil, task.Errorf(task.CodeUnavailable, "source.git", "the memory of git cannot be bounded: %v", lerr)
			}
		}
		err = p.Wait()
	}
	switch {
	case out.over:
		return nil, task.Errorf(task.CodeLimit, "source.git", "git %s printed more than %d bytes", c.word(), limit)
	case out.err != nil:
		return nil, out.err
	case err == nil:
		return buf.Bytes(), nil
	}
	if cause := context.Cause(ctx); cause != nil {
		code := task.CodeCanceled
		if errors.Is(cause, context.DeadlineExceeded) {
			code = task.CodeLimit
		}
		return nil, task.Errorf(code, "source.git", "git %s was stopped: %w", c.word(), cause)
	}
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		words := errs.String()
		return buf.Bytes(), &ExitError{Word: c.word(), Status: ee.ExitCode(), Stderr: words, errno: refused(p.Dir, words)}
	}
	return nil, task.Errorf(task.CodeUnavailable, "source.git", "git %s could not be run: %w", c.word(), err)
}

// word returns the command word, for messages.
func (c *Cmd) word() string {
	if len(c.Args) == 0 {
		return ""
	}
	return c.Args[0]
}

// command builds the process without starting it.
func (g *Git) command(ctx context.Context, c Cmd) *exec.Cmd {
	var argv []string
	if c.GitDir != "" {
		argv = append(argv, "--git-dir="+c.GitDir)
	}
	if c.WorkTree != "" {
		argv = append(argv, "--work-tree="+c.WorkTree)
	}
	argv = append(argv, "--no-pager")
	argv = append(argv, c.Args...)
	p := exec.CommandContext(ctx, g.path, argv...)
	p.Env = environment(c)
	p.Stdin = c.Stdin // nil is the null device
	switch {
	case c.Dir != "":
		p.Dir = c.Dir
	case c.WorkTree != "":
		p.Dir = c.WorkTree
	case c.GitDir != "":
		p.Dir = c.GitDir
	default:
		p.Dir = string(filepath.Separator)
	}
	ownGroup(p)
	p.WaitDelay = 5 * time.Second
	return p
}

// limited passes at most left bytes on and then stops the call.
type limited struct {
	w    io.Writer
	left int64
	over bool
	err  error
	stop func()
}

func (l *limited) Write(b []byte) (int, error) {
	if int64(len(b)) > l.left {
		l.over = true
		l.stop()
		return 0, errTooMuch
	}
	l.left -= int64(len(b))
	n, err := l.w.Write(b)
	if err != nil {
		l.err = err
		l.stop()
	}
	return n, err
}

// lastLines keeps the end of the error output and hands lines to progress.
type lastLines struct {
	progress func(string)
	line     []byte
	kept     []byte
}

func (l *lastLines) Write(b []byte) (int, error) {
	l.kept = append(l.kept, b...)
	if over := len(l.kept) - stderrMax; over > 0 {
		l.kept = append(l.kept[:0], l.kept[over:]...)
	}
	if l.progress == nil {
		return len(b), nil
	}
	for _, c := range b {
		if c != '\n' && c != '\r' {
			if len(l.line) < 400 {
				l.line = append(l.line, c)
			}
			continue
		}
		if s := strings.TrimSpace(clean(string(l.line))); s != "" {
			l.progress(s)
		}
		l.line = l.line[:0]
	}
	return len(b), nil
}

func (l *lastLines) String() string { return clean(string(l.kept)) }

// clean replaces what could act on a terminal: file names in git's messages
// are chosen by whoever made them.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0xfffd {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
