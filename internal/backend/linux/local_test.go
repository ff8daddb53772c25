//go:build linux

package linux

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
)

// TestLocal: Unix sockets of the host's stand inside under their names, are
// answered outside, and cannot be put in another's place.
func TestLocal(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 to speak to a Unix socket inside")
	}
	s := newSpec(t)
	s.Local, s.KnownHosts = []string{"ssh", "git"}, "git.test ssh-ed25519 AAAA\n"
	b := open(t, s)
	ls, err := b.in.LocalSockets()
	if err != nil || len(ls) != 2 {
		t.Fatal(ls, err)
	}
	for name, l := range ls {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				line, _ := bufio.NewReader(c).ReadString('\n')
				fmt.Fprintf(c, "%s heard %s", name, line)
				c.Close()
			}
		}()
		t.Cleanup(func() { l.Close() })
	}
	const ask = `import socket,sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b"hello\n"); print(s.recv(100).decode(), end="")`
	for name := range ls {
		if got, code := b.run("python3", "-c", ask, backend.LocalDir+"/"+name); code != 0 || got != name+" heard hello\n" {
			t.Errorf("%s: %d %q", name, code, got)
		}
	}
	if got := b.sh("cat /etc/ssh/ssh_known_hosts"); got+"\n" != s.KnownHosts {
		t.Errorf("known hosts: %q", got)
	}
	for _, try := range []string{"rm ssh", "mv ssh x", "touch x", "ln -s /tmp x", "mount -o remount,rw .", "umount .", "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"other\")'"} {
		if out, code := b.run("/bin/sh", "-c", "cd "+backend.LocalDir+" && "+try); code == 0 {
			t.Errorf("%s: %s", try, out)
		}
	}
	// W kept no end: nobody answers when the host does not.
	if got := b.sh("ls -l /proc/1/fd 2>&1 || true"); strings.Contains(got, "socket:") {
		t.Errorf("open in pid 1: %s", got)
	}
	var again map[string]net.Listener
	if again, err = b.in.LocalSockets(); err != nil || len(again) != 2 {
		t.Errorf("a second time: %v %v", again, err)
	}
	for _, l := range again {
		l.Close()
	}
	for name := range ls {
		if got, _ := b.run("python3", "-c", ask, backend.LocalDir+"/"+name); got != name+" heard hello\n" {
			t.Errorf("after a close of the second: %q", got)
		}
	}
}
