//go:build linux

package exhausted

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// server is a file system in user space of one empty folder. It notes what is
// asked for and answers everything but a look at that folder with one error.
type server struct {
	f     *os.File
	errno syscall.Errno
	uid   int

	mu    sync.Mutex
	asked []uint32 // opcodes
}

// Opcodes of the FUSE protocol.
const (
	opForget  = 2
	opGetattr = 3
	opStatfs  = 17
	opInit    = 26
)

// changes are the opcodes that make something: symlink, mknod, mkdir, link, create.
var changes = []uint32{6, 8, 9, 13, 35}

// serve mounts a server at dir as a file system of this type.
func serve(t *testing.T, w *world, dir, typ string, errno syscall.Errno) *server {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE on this machine: %v", err)
	}
	w.Mkdir(t, dir)
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", f.Fd(), w.UID, w.UID)
	if err := syscall.Mount("test", dir, typ, syscall.MS_NOSUID|syscall.MS_NODEV, opts); err != nil {
		f.Close()
		t.Skipf("FUSE cannot be mounted here: %v", err)
	}
	s := &server{f: f, errno: errno, uid: w.UID}
	done := make(chan struct{})
	go func() { defer close(done); s.run() }()
	t.Cleanup(func() {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH) // ends the read
		<-done
		f.Close()
	})
	return s
}

func (s *server) run() {
	buf := make([]byte, 256<<10)
	for {
		n, err := syscall.Read(int(s.f.Fd()), buf)
		if err == syscall.EINTR || err == syscall.ENOENT {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		op := binary.LittleEndian.Uint32(buf[4:])
		s.mu.Lock()
		s.asked = append(s.asked, op)
		s.mu.Unlock()
		if op == opForget {
			continue
		}
		body, errno := s.answer(op)
		out := make([]byte, 16, 16+len(body))
		binary.LittleEndian.PutUint32(out[0:], uint32(16+len(body)))
		binary.LittleEndian.PutUint32(out[4:], uint32(-int32(errno)))
		copy(out[8:16], buf[8:16])
		_, _ = syscall.Write(int(s.f.Fd()), append(out, body...))
	}
}

func (s *server) answer(op uint32) ([]byte, syscall.Errno) {
	le := binary.LittleEndian
	switch op {
	case opInit:
		b := make([]byte, 64)
		le.PutUint32(b[0:], 7)
		le.PutUint32(b[4:], 31)
		le.PutUint32(b[20:], 4096) // the most that is written at once
		return b, 0
	case opGetattr:
		b := make([]byte, 104)
		a := b[16:]
		le.PutUint64(a[0:], 1)
		le.PutUint32(a[60:], syscall.S_IFDIR|0o700)
		le.PutUint32(a[64:], 2)
		le.PutUint32(a[68:], uint32(s.uid))
		le.PutUint32(a[72:], uint32(s.uid))
		return b, 0
	case opStatfs:
		b := make([]byte, 80)
		for i := range 5 {
			le.PutUint64(b[8*i:], 1<<20)
		}
		le.PutUint32(b[40:], 4096)
		le.PutUint32(b[44:], 255)
		le.PutUint32(b[48:], 4096)
		return b, 0
	}
	return nil, s.errno
}

// made returns the requests that would have made something.
func (s *server) made() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.asked), func(op uint32) bool { return !slices.Contains(changes, op) })
}

// TestStateElsewhere puts the state folder on a network file system, where it is
// refused before anything is made, and on one that fails.
func TestStateElsewhere(t *testing.T) {
	t.Parallel()
	mounts(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		for _, c := range []struct {
			typ   string
			errno syscall.Errno
			hint  string
		}{
			{"fuse.sshfs", syscall.ENOENT, "CAISSON_STATE_DIR"},
			{"fuse.glusterfs", syscall.EIO, "CAISSON_STATE_DIR"},
			{"fuse.disk", syscall.EIO, "dmesg"},
			{"fuse.disk", syscall.ESTALE, "mount it again"},
			{"fuse.disk", syscall.EDQUOT, "quota"},
		} {
			w := newWorld(t, id)
			dir := fmt.Sprintf("%s/net-%s-%d", w.Dir, c.typ, c.errno)
			s := serve(t, w, dir, c.typ, c.errno)
			for _, state := range []string{dir, dir + "/new/caisson"} {
				if state != dir && c.errno != syscall.ENOENT {
					continue // it cannot say that there is no such folder
				}
				r := w.shell(`export CAISSON_STATE_DIR=` + state + `; exec "$CAISSON" run -- true`)
				w.refused(r, 125, c.hint, "state_store")
				if strings.Contains(c.hint, "STATE_DIR") && !strings.Contains(r.Stderr, "network file system") {
					t.Error(r)
				}
			}
			if ops := s.made(); strings.Contains(c.hint, "STATE_DIR") && len(ops) != 0 {
				t.Errorf("on a network file system it asked for %v", ops)
			}
		}
	})
}
