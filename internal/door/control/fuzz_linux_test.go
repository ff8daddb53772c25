package control

import (
	"encoding/binary"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzMessages reads what somebody sends to a task's socket: it ends with an
// error, hands out no descriptor that was not sent, and believes no length.
func FuzzMessages(f *testing.F) {
	framed := func(bodies ...string) (b []byte) {
		for _, s := range bodies {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
		}
		return b
	}
	f.Add(framed(`{"op":"ping"}`, `{"op":"exec","command":{"argv":["c2g="]}}`))
	f.Add(framed(`{"op":"apply","in":{"x":[[[[]]]]}}`))
	f.Add(framed(`{"close":{"keep":"\u0000"},"signal":-1}`))
	f.Add(framed(``, `null`, `[]`))
	f.Add([]byte("\xff\xff\xff\xff{}"))
	f.Add([]byte("\x00\x00\x00\x09{\"op\""))
	f.Fuzz(func(t *testing.T, b []byte) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		w, r := os.NewFile(uintptr(pair[0]), "peer"), os.NewFile(uintptr(pair[1]), "door")
		fc, err := net.FileConn(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer fc.Close()
		if len(b) > 64<<10 {
			b = b[:64<<10] // what the socket takes without a reader
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		w.Close()
		c := &conn{c: fc.(*net.UnixConn)}
		for range len(b) + 1 { // each message is at least its length
			m, files, err := recv[request](c)
			if len(files) > 0 {
				t.Fatalf("descriptors that nobody sent: %v", files)
			}
			if err != nil {
				return
			}
			if m.Command != nil {
				_ = m.Command.command()
			}
		}
		t.Error("messages without end")
	})
}
