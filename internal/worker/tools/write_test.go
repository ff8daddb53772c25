//go:build linux

package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

func TestWriteFile(t *testing.T) {
	yes, no := true, false
	const utf16 = "\xff\xfeo\x00l\x00d\x00\n\x00"
	for _, c := range []struct {
		name, before string // "-": none
		args         contract.WriteFileArgs
		after        string
		want         contract.WriteFileResult
	}{
		{"new", "-", contract.WriteFileArgs{Content: "a\nb\n"}, "a\nb\n", contract.WriteFileResult{Created: true, Mode: "0644", Encoding: "utf-8", Newline: "lf"}},
		{"replaced", "old\n", contract.WriteFileArgs{Content: "new"}, "new", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "none"}},
		{"emptied", "old\n", contract.WriteFileArgs{Content: ""}, "", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "none"}},
		{"crlf is kept", "old\r\nold\r\n", contract.WriteFileArgs{Content: "a\nb\n"}, "a\r\nb\r\n", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "crlf"}},
		{"crlf of its own", "old\r\n", contract.WriteFileArgs{Content: "a\r\nb\n"}, "a\r\nb\n", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "mixed"}},
		{"mixed is not kept", "old\r\nold\n", contract.WriteFileArgs{Content: "a\nb\n"}, "a\nb\n", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "lf"}},
		{"exact", "\xef\xbb\xbfold\r\n", contract.WriteFileArgs{Content: "a\n", Newline: "exact"}, "a\n", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "lf"}},
		{"mark is kept", "\xef\xbb\xbfold\n", contract.WriteFileArgs{Content: "é\n"}, "\xef\xbb\xbfé\n", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "lf"}},
		{"mark is not doubled", "\xef\xbb\xbfold\n", contract.WriteFileArgs{Content: "\ufeffé\n"}, "\xef\xbb\xbfé\n", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "lf"}},
		{"utf-16 is kept", utf16, contract.WriteFileArgs{Content: "é\n"}, "\xff\xfe\xe9\x00\n\x00", contract.WriteFileResult{Mode: "0644", Encoding: "utf-16le", Newline: "lf"}},
		{"latin-1 is kept", "caf\xe9", contract.WriteFileArgs{Content: "thé"}, "th\xe9", contract.WriteFileResult{Mode: "0644", Encoding: "latin-1", Newline: "none"}},
		{"latin-1 that cannot be", "caf\xe9", contract.WriteFileArgs{Content: "日"}, "日", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "none"}},
		{"bytes", "old\r\n", contract.WriteFileArgs{Content: "AAECCg==", Encoding: "base64"}, "\x00\x01\x02\n", contract.WriteFileResult{Mode: "0644"}},
		{"executable", "-", contract.WriteFileArgs{Content: "#!/bin/sh\n", Executable: &yes}, "#!/bin/sh\n", contract.WriteFileResult{Created: true, Mode: "0755", Encoding: "utf-8", Newline: "lf"}},
		{"folders/are/made", "-", contract.WriteFileArgs{Content: "x"}, "x", contract.WriteFileResult{Created: true, Mode: "0644", Encoding: "utf-8", Newline: "none"}},
		{"no longer executable", "x", contract.WriteFileArgs{Content: "x", Executable: &no}, "x", contract.WriteFileResult{Mode: "0644", Encoding: "utf-8", Newline: "none"}},
	} {
		p := at(t)
		if c.before != "-" {
			p.put(c.name, c.before)
			c.want.Before = digestOf([]byte(c.before))
		}
		c.args.Path, c.want.Path = c.name, p.path(c.name)
		c.want.Size, c.want.SHA256 = int64(len(c.after)), digestOf([]byte(c.after))
		var got contract.WriteFileResult
		if fail := p.call(contract.WriteFile, c.args, &got); fail != nil || got != c.want || p.get(c.name) != c.after {
			t.Errorf("%s: %v, %q\n%+v, want\n%+v", c.name, fail, p.get(c.name), got, c.want)
		}
		if st, err := os.Stat(p.path(c.name)); err != nil || modeString(uint32(st.Mode().Perm())) != c.want.Mode {
			t.Errorf("%s: %v %v", c.name, st.Mode(), err)
		}
		p.clean()
	}
}

// What the file had besides its content stays; links stay links.
func TestWriteKeeps(t *testing.T) {
	p := at(t)
	p.put("mode", "x")
	if err := os.Chmod(p.path("mode"), 0o750); err != nil {
		t.Fatal(err)
	}
	attr := unix.Setxattr(p.path("mode"), "user.caisson", []byte("kept"), 0)
	var r contract.WriteFileResult
	p.must(contract.WriteFile, contract.WriteFileArgs{Path: "mode", Content: "y"}, &r)
	if r.Mode != "0750" {
		t.Errorf("mode %s", r.Mode)
	}
	var buf [16]byte
	if n, err := unix.Getxattr(p.path("mode"), "user.caisson", buf[:]); attr == nil && (err != nil || string(buf[:n]) != "kept") {
		t.Errorf("attribute %q %v", buf[:n], err)
	}

	p.put("sub/target", "x")
	for _, l := range [][2]string{{"link", "sub/target"}, {"chain", "link"}, {"absolute", p.path("sub/target")}, {"new", "sub/made"}, {"up", "sub/../sub/target"}} {
		name, to := l[0], l[1]
		if err := os.Symlink(to, p.path(name)); err != nil {
			t.Fatal(err)
		}
		p.must(contract.WriteFile, contract.WriteFileArgs{Path: name, Content: "by " + name}, &r)
		if to2, err := os.Readlink(p.path(name)); err != nil || to2 != to {
			t.Errorf("%s: the link became %q %v", name, to2, err)
		}
		if got := p.get(name); got != "by "+name || r.Created != (name == "new") {
			t.Errorf("%s: %q %+v", name, got, r)
		}
	}
	if p.get("sub/made") != "by new" {
		t.Error("the file that a dangling link names was not made")
	}

	p.put("a", "x")
	if err := os.Link(p.path("a"), p.path("b")); err != nil {
		t.Fatal(err)
	}
	p.must(contract.WriteFile, contract.WriteFileArgs{Path: "a", Content: "y"}, &r)
	if p.get("a") != "y" || p.get("b") != "x" || r.OtherNames != 1 {
		t.Errorf("a hard link: %q %q %+v", p.get("a"), p.get("b"), r)
	}
	p.clean()
}

func TestWriteRefuses(t *testing.T) {
	p := at(t)
	p.put("f", "x")
	p.put("readonly", "x")
	if err := os.Chmod(p.path("readonly"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(p.path("dir/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	other := digestOf([]byte("other"))
	before := descriptors(t)
	for _, c := range []struct {
		args contract.WriteFileArgs
		want contract.Code
	}{
		{contract.WriteFileArgs{Path: "f", CreateOnly: true}, contract.Exists},
		{contract.WriteFileArgs{Path: "f", ExpectSHA256: other}, contract.Changed},
		{contract.WriteFileArgs{Path: "gone", ExpectSHA256: other}, contract.Changed},
		{contract.WriteFileArgs{Path: "gone/f", ExpectSHA256: other}, contract.NotFound},
		{contract.WriteFileArgs{Path: "f", Content: "*", Encoding: "base64"}, contract.BadArgs},
		{contract.WriteFileArgs{Path: "dir"}, contract.IsDir},
		{contract.WriteFileArgs{Path: "dir/.."}, contract.IsDir},
		{contract.WriteFileArgs{Path: "."}, contract.IsDir},
		{contract.WriteFileArgs{Path: "new/"}, contract.IsDir},
		{contract.WriteFileArgs{Path: "f/g"}, contract.NotDir},
		{contract.WriteFileArgs{Path: "f/g/h"}, contract.NotDir},
		{contract.WriteFileArgs{Path: "readonly"}, contract.Permission},
	} {
		if c.want == contract.Permission && os.Geteuid() == 0 {
			continue // root may write everything here; in a boundary nobody is root
		}
		if got := code(p.call(contract.WriteFile, c.args, nil)); got != c.want {
			t.Errorf("%+v: %q, want %q", c.args, got, c.want)
		}
	}
	if p.get("f") != "x" {
		t.Error("a refused call changed the file")
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	p.clean()
}

// A canceled call changes nothing.
func TestWriteCanceled(t *testing.T) {
	p := at(t)
	p.put("f", "x")
	ctx, stop := context.WithCancel(context.Background())
	s, fail := p.root.spot("f", false)
	if fail != nil {
		t.Fatal(fail)
	}
	defer s.close()
	fail = s.replace(0o644, func(fd int) *contract.Failure {
		if f := writeAll(ctx, fd, []byte("half"), "f"); f != nil {
			return f
		}
		stop()
		return writeAll(ctx, fd, []byte("other half"), "f")
	})
	if code(fail) != contract.Canceled || p.get("f") != "x" {
		t.Errorf("%v %q", fail, p.get("f"))
	}
	p.clean()
}

// What somebody else wrote between the look and the rename is not lost.
func TestWriteSeesAnother(t *testing.T) {
	for name, meanwhile := range map[string]func(p *place) error{
		"written in place": func(p *place) error { return os.WriteFile(p.path("f"), []byte("theirs"), 0o644) },
		"replaced": func(p *place) error {
			return errors.Join(os.WriteFile(p.path("g"), []byte("theirs"), 0o644), os.Rename(p.path("g"), p.path("f")))
		},
		"removed":       func(p *place) error { return os.Remove(p.path("f")) },
		"made a folder": func(p *place) error { return errors.Join(os.Remove(p.path("f")), os.Mkdir(p.path("f"), 0o755)) },
		"made a link": func(p *place) error {
			return errors.Join(os.Remove(p.path("f")), os.WriteFile(p.path("g"), []byte("theirs"), 0o644), os.Symlink("g", p.path("f")))
		},
	} {
		p := at(t)
		p.put("f", "mine")
		s, fail := p.root.spot("f", false)
		if fail != nil {
			t.Fatal(fail)
		}
		fail = s.replace(0o644, func(fd int) *contract.Failure {
			if err := meanwhile(p); err != nil {
				t.Error(err)
			}
			return writeAll(context.Background(), fd, []byte("new"), "f")
		})
		s.close()
		if code(fail) != contract.Changed {
			t.Errorf("%s: %v", name, fail)
		}
		if b, err := os.ReadFile(p.path("f")); err == nil && string(b) != "theirs" {
			t.Errorf("%s: %q", name, b)
		}
		p.clean()
	}
	p := at(t)
	s, fail := p.root.spot("new", false)
	if fail != nil {
		t.Fatal(fail)
	}
	defer s.close()
	fail = s.replace(0o644, func(fd int) *contract.Failure { p.put("new", "theirs"); return nil })
	if code(fail) != contract.Changed || p.get("new") != "theirs" {
		t.Errorf("made meanwhile: %v %q", fail, p.get("new"))
	}
	p.clean()
}

// Many at once: whoever reads sees one of the contents, whole; every writer
// with a precondition learns whether it was the one.
func TestWriteAtOnce(t *testing.T) {
	p := at(t)
	p.put("counter", "0")
	size := 200 << 10
	p.put("whole", strings.Repeat("a", size))
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			for n := 0; n < 8; {
				var r contract.ReadFileResult
				p.must(contract.ReadFile, contract.ReadFileArgs{Path: "counter"}, &r)
				var v int
				_, _ = fmt.Sscan(r.Content, &v)
				switch fail := p.call(contract.WriteFile, contract.WriteFileArgs{Path: "counter", Content: fmt.Sprint(v + 1), ExpectSHA256: r.SHA256}, new(contract.WriteFileResult)); code(fail) {
				case "":
					n++
					mu.Lock()
					won++
					mu.Unlock()
				case contract.Changed, contract.NotFound:
				default:
					t.Error(fail)
					return
				}
			}
		})
		wg.Go(func() {
			for range 4 {
				fail := p.call(contract.WriteFile, contract.WriteFileArgs{Path: "whole", Content: strings.Repeat(string(rune('a'+i)), size)}, new(contract.WriteFileResult))
				if fail != nil && fail.Code != contract.Changed {
					t.Error(fail)
				}
				var r contract.ReadFileResult
				p.must(contract.ReadFile, contract.ReadFileArgs{Path: "whole"}, &r)
				if len(r.Content) != size || strings.Trim(r.Content, r.Content[:1]) != "" {
					t.Errorf("a mixture of %d bytes was read", len(r.Content))
				}
			}
		})
	}
	wg.Wait()
	if got := p.get("counter"); got != fmt.Sprint(won) || won != 8*8 {
		t.Errorf("%d writes were said to be done, the counter is %s", won, got)
	}
	p.clean()
}

// A name that is a link at one moment and a file at the next is told as what it
// is: somebody else at work, and no fault of ours.
func TestWriteLinkAndFile(t *testing.T) {
	p := at(t)
	p.put("target", "x")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Remove(p.path("other"))
			if i%2 == 0 {
				_ = os.Symlink("target", p.path("other"))
			} else {
				_ = os.WriteFile(p.path("other"), []byte("x"), 0o644)
			}
			_ = os.Rename(p.path("other"), p.path("name"))
		}
	}()
	for range 6_000 {
		if fail := p.call(contract.WriteFile, contract.WriteFileArgs{Path: "name", Content: "x"}, &contract.WriteFileResult{}); fail != nil && code(fail) == contract.Internal {
			t.Errorf("%v", fail)
			break
		}
	}
	close(stop)
	<-done
}
