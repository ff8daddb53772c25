package frame

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzOOB: whatever comes beside the bytes, nothing is believed without the
// sender's name, and no more descriptors are taken than a frame may have room
// for.
func FuzzOOB(f *testing.F) {
	const peer = 4711
	cred := unix.UnixCredentials(&unix.Ucred{Pid: peer})
	f.Add(1, cred, 0)
	f.Add(0, []byte(nil), 0)
	f.Add(1, append(unix.UnixRights(5, 6), cred...), 0)
	f.Add(1, append(append([]byte(nil), cred...), unix.UnixCredentials(&unix.Ucred{Pid: 1})...), 0)
	f.Add(64, unix.UnixRights(7), unix.MSG_CTRUNC)
	f.Add(1, cred[:len(cred)-9], 0)
	f.Fuzz(func(t *testing.T, n int, oob []byte, flags int) {
		if n < 0 || len(oob) > OOBSize {
			return // no kernel says so
		}
		fds, err := ParseOOB(n, oob, flags, peer)
		if 4*len(fds) > len(oob) {
			t.Fatalf("%d descriptors from %d bytes", len(fds), len(oob))
		}
		if err == io.EOF && (n != 0 || len(fds) != 0) {
			t.Fatal("the end, with something in it")
		}
		if err != nil {
			return
		}
		// Believed: then the kernel named the peer, and nobody but it.
		msgs, perr := unix.ParseSocketControlMessage(oob)
		named := 0
		for i := range msgs {
			if u, uerr := unix.ParseUnixCredentials(&msgs[i]); uerr == nil && u.Pid == peer {
				named++
			} else if uerr == nil {
				t.Fatalf("process %d is named too", u.Pid)
			}
		}
		if perr != nil || named != 1 || flags&unix.MSG_CTRUNC != 0 || n == 0 {
			t.Fatalf("believed: %d bytes, flags %#x, %d names, %v", n, flags, named, perr)
		}
	})
}
