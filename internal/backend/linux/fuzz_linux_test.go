package linux

import (
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/sys"
)

// FuzzMountinfo reads a table in which a task chose names of mount points.
func FuzzMountinfo(f *testing.F) {
	f.Add("36 35 98:0 /a\\040b /mnt\\134x rw,noatime master:1 - ext3 /dev/root rw\n")
	f.Add("36 35 98:0 / /x\\04 rw - tmpfs none rw")
	f.Add("36 35 98:0 / / - - - rw - x y z\n\n - \n")
	f.Add("1 2 3 4 5 6 - \\777\\ 8 9")
	f.Fuzz(func(t *testing.T, data string) {
		for _, m := range parseMountinfo(data) {
			if m.dev == "" || m.fstype == "" || m.super == "" {
				t.Errorf("half an entry of %q: %+v", data, m)
			}
		}
		if s := unescapeMount(data); len(s) > len(data) || !strings.Contains(data, `\`) && s != data {
			t.Errorf("%q becomes %q", data, s)
		}
	})
}

// FuzzExternal reads what the inventory holds of things outside: only what we
// wrote names a process, a scope or an inode.
func FuzzExternal(f *testing.F) {
	f.Add(formatIdent(sys.Ident{BootID: "b-1", PID: 7, Start: 9, PIDNS: 1}))
	f.Add("dir=/sys/fs/cgroup/x inode=12")
	f.Add("dir=relative inode=1")
	f.Add("boot= pid=-1 start=0 pidns=0")
	f.Add("boot=x pid=1 start=99999999999999999999 pidns=1")
	f.Add(inode(5))
	f.Fuzz(func(t *testing.T, s string) {
		if id, ok := parseIdent(s); ok {
			if again, ok := parseIdent(formatIdent(id)); !ok || again != id {
				t.Errorf("%q is read as %+v, and that as %+v", s, id, again)
			}
		}
		if dir, _, ok := parseScope(s); ok && !strings.HasPrefix(dir, "/") {
			t.Errorf("%q names the folder %q", s, dir)
		}
		if n := parseInode(s); n != 0 && parseInode(inode(n)) != n {
			t.Errorf("%q is inode %d", s, n)
		}
	})
}
