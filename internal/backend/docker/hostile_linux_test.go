package docker

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// What is at an engine's socket may be no engine: it gets no memory by talking on.
func TestAttachedToWhatIsNoEngine(t *testing.T) {
	dir, err := os.MkdirTemp("", "engine-") // short: it is a socket's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill := strings.Repeat("x", maxHead)
	for _, c := range []struct {
		name, head string
		rest       string
		again      int
		ok         bool
	}{
		{"an engine", "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n", "\x01\x00\x00\x00\x00\x00\x00\x05hello" + "\x01\x00\x00\x00\x00\x03\x00\x00" + strings.Repeat("y", 3<<16), 1, true},
		{"a head without end", "HTTP/1.1 101 UPGRADED\r\n", "A: " + fill + "\r\n", 1 << 20, false},
		{"a line without end", "HTTP/1.1 101 ", fill, 1 << 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrote := make(chan int, 1)
			go func() {
				n := 0
				conn, err := l.Accept()
				if err == nil {
					defer conn.Close()
					if _, err = conn.Read(make([]byte, 4096)); err == nil { // what is asked
						_, err = conn.Write([]byte(c.head))
					}
				}
				for i := 0; i < c.again && err == nil; i++ {
					var m int
					m, err = conn.Write([]byte(c.rest))
					n += m
				}
				wrote <- n
			}()
			e := &engine{at: endpoint("unix://" + filepath.Join(dir, "sock"))}
			a, err := e.attach(context.Background(), strings.Repeat("0", 64))
			if (err == nil) != c.ok {
				t.Errorf("attached: %v", err)
			}
			if err != nil {
				if n := <-wrote; n > 16<<20 {
					t.Errorf("%d bytes of a head were taken", n)
				}
				return
			}
			defer a.Close()
			_ = a.SetDeadline(time.Now().Add(30 * time.Second))
			got := make([]byte, 5+3<<16)
			if _, err := io.ReadFull(a, got); err != nil || !strings.HasPrefix(string(got), "helloyyy") {
				t.Errorf("its streams: %q, %v", got[:10], err)
			}
		})
	}
}

func TestNamesOfContainers(t *testing.T) {
	for s, want := range map[string]bool{strings.Repeat("0a", 32): true, "": false, "../images": false, strings.Repeat("g", 64): false, strings.Repeat("a", 40) + " at=unix:///run/other.sock": false} {
		if isID(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}

// A volume of an image comes nowhere near what the task writes, however it is spelled.
func TestVolumesOfImages(t *testing.T) {
	in := &instance{spec: backend.Spec{Source: backend.Mount{Target: "/srv/repo"}, Out: backend.Mount{Target: "/run/boundary/out"}}}
	for v, refused := range map[string]bool{
		"/data": false, "/srv": false, "/srv/repo": false, "/srv/repo/": false, "/srv/repository": false,
		"/srv/repo/.git": true, "//srv/./repo/x/": true, "srv/repo/x": true, "/a/../srv/repo/x": true, "/run/boundary/bin": true, "/run/boundary/door/": true,
	} {
		i := imageWith(v)
		if err := in.covered(i); (task.CodeOf(err) == task.CodeUnsupported) != refused {
			t.Errorf("%q: %v", v, err)
		}
		if got := i.volumes(); len(got) != 1 || got[0] != filepath.Clean("/"+v) {
			t.Errorf("%q is %q", v, got)
		}
	}
}

func imageWith(volume string) *imageInfo {
	i := &imageInfo{}
	i.Config = &struct{ Volumes map[string]struct{} }{map[string]struct{}{volume: {}}}
	return i
}
