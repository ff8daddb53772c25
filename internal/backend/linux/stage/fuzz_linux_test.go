package stage

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzReceive is the host's reading of what a worker says before its channel is
// framed: it ends, and what it does not use it closes.
func FuzzReceive(f *testing.F) {
	framed := func(body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	f.Add(framed(`{}`))
	f.Add(framed(`{"error":{"step":"x"}}`))
	f.Add(framed(`[[[[[[`))
	f.Add(framed(``))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x05ab"))
	f.Add([]byte("\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pair[0])
		w := os.NewFile(uintptr(pair[1]), "worker")
		if len(b) > 64<<10 {
			b = b[:64<<10] // what the socket takes without a reader
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		w.Close()
		_, fds, _, err := ReceiveReport(pair[0])
		if len(fds) > 0 {
			t.Errorf("descriptors that nobody sent: %v", fds)
		}
		if err == nil && (len(b) < 4 || int(binary.BigEndian.Uint32(b)) > len(b)-4) {
			t.Errorf("%q is a whole message", b)
		}
	})
}

// FuzzControl reads control data: any bytes are descriptors, credentials or an
// error.
func FuzzControl(f *testing.F) {
	f.Add(unix.UnixCredentials(&unix.Ucred{Pid: 1, Uid: 2, Gid: 3}))
	f.Add(unix.UnixRights(3, 4))
	f.Add([]byte("\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fds, _, _ := parseControl(b) // never closed here: they are numbers, not ours
		if 4*len(fds) > len(b) {
			t.Errorf("%d descriptors in %d bytes", len(fds), len(b))
		}
	})
}
