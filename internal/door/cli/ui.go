package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// progressDelay is how long something must take before a person is told.
const progressDelay = time.Second

// ui writes for a person: colours, progress and errors.
type ui struct {
	out, err       *os.File
	env            []string
	outTTY, errTTY bool
	colorOut       bool
	colorErr       bool
	utf8           bool
	quiet, verbose bool
	json           bool

	mu    sync.Mutex
	text  string      // guarded by mu: what is going on
	timer *time.Timer // guarded by mu: set while the line waits to be shown
	shown bool        // guarded by mu: a line is on the terminal
	off   bool        // guarded by mu: no more lines
	held  []string    // guarded by mu: asides that wait until lines are allowed
}

func newUI(cfg Config) *ui {
	u := &ui{out: cfg.Stdout, err: cfg.Stderr, env: cfg.Env}
	u.outTTY, u.errTTY = isTerminal(u.out), isTerminal(u.err)
	u.utf8 = utf8Locale(cfg.Env)
	u.setup(false, false, false, false)
	return u
}

func isTerminal(f *os.File) bool { return f != nil && term.IsTerminal(fdOf(f)) }

// setup applies the flags.
func (u *ui) setup(quiet, verbose, noColor, json bool) {
	plain, set := lookup(u.env, "NO_COLOR")
	dumb, _ := lookup(u.env, "TERM")
	color := !noColor && (!set || plain == "") && dumb != "dumb"
	u.colorOut, u.colorErr = color && u.outTTY && !json, color && u.errTTY
	u.quiet, u.verbose, u.json = quiet, verbose, json
}

// utf8Locale follows the order of setlocale: LC_ALL, LC_CTYPE, LANG.
func utf8Locale(env []string) bool {
	for _, n := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v, ok := lookup(env, n); ok && v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// The colours.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func paint(on bool, code, s string) string {
	if !on || s == "" || code == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (u *ui) paint(code, s string) string { return paint(u.colorOut, code, s) }

// mark is a tick or a cross that also works without colours and UTF-8.
func (u *ui) mark(ok bool) string {
	switch {
	case ok && u.utf8:
		return u.paint(green, "✓")
	case ok:
		return u.paint(green, "ok")
	case u.utf8:
		return u.paint(red, "✗")
	}
	return u.paint(red, "no")
}

// clean makes one line of text from s that cannot steer a terminal.
func clean(s string) string {
	safe := true
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] >= 0x7f {
			safe = false
			break
		}
	}
	if safe {
		return s
	}
	return sys.Escape(s, hidden)
}

// cleanText is clean for text of several lines.
func cleanText(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// cleanSource is cleanText for lines of source files: their tabs stay.
func cleanSource(s string) string {
	parts := strings.Split(s, "\t")
	for i := range parts {
		parts[i] = cleanText(parts[i])
	}
	return strings.Join(parts, "\t")
}

// hidden are the invisible characters that turn the direction of text or hide in
// it. Those that only choose a form of what stands before them may stay: names
// of files have them.
func hidden(r rune) bool {
	return (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069) || (r >= 0x200b && r <= 0x200f) ||
		r == 0x2028 || r == 0x2029 || r == 0x061c || r == 0xfeff || r == 0xad || (r >= 0xe0000 && r <= 0xe007f)
}

// progress shows text on the terminal once the work has taken a second.
func (u *ui) progress(text string) {
	if !u.errTTY || u.quiet {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.off {
		return
	}
	u.text = clean(text)
	switch {
	case u.shown || u.verbose:
		u.drawLocked()
	case u.timer == nil:
		u.timer = time.AfterFunc(progressDelay, func() {
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.timer != nil && !u.off {
				u.drawLocked()
			}
		})
	}
}

func (u *ui) drawLocked() {
	text := u.text
	if w, _, err := term.GetSize(fdOf(u.err)); err == nil && w > 12 && utf8.RuneCountInString(text) > w-12 {
		text = string([]rune(text)[:w-12])
	}
	fmt.Fprintf(u.err, "\r\x1b[K%s", paint(u.colorErr, dim, "caisson: "+text))
	u.shown = true
}

// clear erases the progress line; a later progress starts anew.
func (u *ui) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
	if u.shown {
		io.WriteString(u.err, "\r\x1b[K")
		u.shown = false
	}
}

// hold erases the progress line and forbids new ones: the streams are a command's now.
func (u *ui) hold(on bool) {
	u.clear()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.off = on
	if !on {
		for _, text := range u.held {
			u.asideLocked(text)
		}
		u.held = nil
	}
}

// maxHeld bounds the asides kept for later; a person reads no more.
const maxHeld = 64

// aside tells what no operation can return. While the streams are a command's
// it waits: a line of ours in the middle of the command's own output would be
// taken for part of it.
func (u *ui) aside(text string) {
	if u.quiet {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !u.off:
		u.asideLocked(text)
	case len(u.held) < maxHeld:
		u.held = append(u.held, text)
	}
}

func (u *ui) asideLocked(text string) {
	if u.shown {
		io.WriteString(u.err, "\r\x1b[K")
		u.shown = false
	}
	fmt.Fprintf(u.err, "caisson: %s %s\n", paint(u.colorErr, yellow, "note:"), clean(text))
}

// note tells a person something beside the result; programs do not get it.
func (u *ui) note(format string, args ...any) {
	if u.errTTY && !u.quiet && !u.json {
		u.clear()
		fmt.Fprintf(u.err, "%s%s\n", paint(u.colorErr, dim, "caisson: "), clean(fmt.Sprintf(format, args...)))
	}
}

// errorLines prints err as "caisson: error: …" and "caisson: hint: …".
func (u *ui) errorLines(err error) {
	code := ""
	if c := task.CodeOf(err); c != "" {
		code = " (" + string(c) + ")"
	}
	// Joined errors come as several lines.
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(u.err, "caisson: %s %s%s\n", paint(u.colorErr, red, "error:"), clean(line), code)
		code = ""
	}
	var e *task.Error
	if errors.As(err, &e) {
		if text := detailText(u, e.Detail); text != "" {
			fmt.Fprintln(u.err, strings.TrimRight(text, "\n"))
		}
		if u.verbose && e.Op != "" {
			fmt.Fprintf(u.err, "caisson: in %s\n", clean(e.Op))
		}
	}
	if h := task.HintOf(err); h != "" {
		for _, line := range strings.Split(h, "\n") {
			fmt.Fprintf(u.err, "caisson: %s %s\n", paint(u.colorErr, cyan, "hint:"), clean(line))
		}
	}
}
