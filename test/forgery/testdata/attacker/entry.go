//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hostileRoot lies in a root folder of which every program is this one; it says
// where each is to leave its mark.
const hostileRoot = "/hostile-root"

// entry is this program under the name of one of a system's own: init, a shell,
// the loader, what images begin with. It leaves a mark before it does anything,
// so that one which was started by nobody's command is seen.
func entry() bool {
	name := filepath.Base(os.Args[0])
	if name == "attacker" || name == "exe" || name == "caisson-worker" && len(os.Args) > 1 && probes[os.Args[1]] != nil {
		return false
	}
	dir, err := os.ReadFile(hostileRoot)
	if err != nil {
		return false
	}
	if f, err := os.OpenFile(strings.TrimSpace(string(dir))+"/ran", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
		_, _ = fmt.Fprintf(f, "%q as %d\n", os.Args, os.Getpid())
		_ = f.Close()
	}
	// A worker would greet, or answer.
	for _, fd := range own() {
		if isSocket(fd) {
			_, _ = unix.SendmsgN(fd, exitEvent(1, 1, strings.Repeat("0", 64)), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			_, _ = unix.SendmsgN(fd, exitRecord(), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			say(line{What: fmt.Sprintf("%s was given a socket as %d", name, fd), Did: "possible"})
		}
	}
	switch {
	case name == "sh" && len(os.Args) == 3:
		if m := regexp.MustCompile(`^echo (.+); exit (\d+)$`).FindStringSubmatch(os.Args[2]); m != nil {
			fmt.Println(m[1])
			code, _ := strconv.Atoi(m[2])
			os.Exit(code)
		}
	case name == "sleep":
		time.Sleep(time.Hour)
	}
	done(fmt.Sprintf("run as %s, process %d", os.Args[0], os.Getpid()))
	for _, p := range []string{"F19", "F2", "F3", "F6", "F21"} {
		probes[p](nil)
	}
	say(line{Ask: "end"})
	return true
}
