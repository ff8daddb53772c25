//go:build linux

package tools

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01"

func TestReadFile(t *testing.T) {
	p := at(t)
	long := strings.Repeat("x", contract.MaxInline+10)
	for _, c := range []struct {
		name, content string
		args          contract.ReadFileArgs
		want          contract.ReadFileResult // Path, Size, Mode, SHA256 are filled in
	}{
		{"empty", "", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "none"}},
		{"one", "a", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "none", Lines: 1, FirstLine: 1, LastLine: 1, Content: "a"}},
		{"lf", "a\nb\n", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "lf", Lines: 2, FirstLine: 1, LastLine: 2, Content: "a\nb\n"}},
		{"crlf", "a\r\nb", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "crlf", Lines: 2, FirstLine: 1, LastLine: 2, Content: "a\r\nb"}},
		{"mixed", "a\r\nb\n", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "mixed", Lines: 2, FirstLine: 1, LastLine: 2, Content: "a\r\nb\n"}},
		{"cr", "a\rb\r", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "cr", Lines: 1, FirstLine: 1, LastLine: 1, Content: "a\rb\r"}},
		{"bom", "\xef\xbb\xbfä\n", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", BOM: true, Newline: "lf", Lines: 1, FirstLine: 1, LastLine: 1, Content: "ä\n"}},
		{"utf16", "\xff\xfea\x00\n\x00=\xd8\x00\xde", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-16le", BOM: true, Newline: "lf", Lines: 2, FirstLine: 1, LastLine: 2, Content: "a\n😀"}},
		{"utf16be", "\xfe\xff\x00a", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-16be", BOM: true, Newline: "none", Lines: 1, FirstLine: 1, LastLine: 1, Content: "a"}},
		{"latin", "caf\xe9\n", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "latin-1", Newline: "lf", Lines: 1, FirstLine: 1, LastLine: 1, Content: "café\n"}},
		{"part", "1\n2\n3\n4\n", contract.ReadFileArgs{Offset: 2, Limit: 2}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "lf", Lines: 4, FirstLine: 2, LastLine: 3, Content: "2\n3\n", Truncated: true, NextOffset: 4}},
		{"end", "1\n2\n3\n4", contract.ReadFileArgs{Offset: 3, Limit: 2}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "lf", Lines: 4, FirstLine: 3, LastLine: 4, Content: "3\n4"}},
		{"past", "1\n2\n", contract.ReadFileArgs{Offset: 9}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "lf", Lines: 2}},
		{"wide line", long + "\nb\n", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "lf", Lines: 2, FirstLine: 1, LastLine: 1, Content: long[:contract.MaxInline], Truncated: true, CutLine: true, NextOffset: 2}},
		{"after it", "b\n" + long, contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "lf", Lines: 2, FirstLine: 1, LastLine: 1, Content: "b\n", Truncated: true, NextOffset: 2}},
		{"full at a line's end", strings.Repeat("0123456789abcde\n", contract.MaxInline/16+2), contract.ReadFileArgs{Limit: 1 << 40}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "lf", Lines: contract.MaxInline/16 + 2, FirstLine: 1, LastLine: contract.MaxInline / 16, Content: strings.Repeat("0123456789abcde\n", contract.MaxInline/16), Truncated: true, NextOffset: contract.MaxInline/16 + 1}},
		{"png", png, contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "image", MIME: "image/png", Base64: base64.StdEncoding.EncodeToString([]byte(png))}},
		{"elf", "\x7fELF\x02\x01", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "binary", MIME: "application/x-elf", Truncated: true}},
		{"elf64", "\x7fELF\x02\x01", contract.ReadFileArgs{As: "base64"}, contract.ReadFileResult{Kind: "binary", MIME: "application/x-elf", Base64: "f0VMRgIB"}},
		{"bmp text", "BMW is a car\n", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "text/plain", Encoding: "utf-8", Newline: "lf", Lines: 1, FirstLine: 1, LastLine: 1, Content: "BMW is a car\n"}},
		{"svg", "<svg/>", contract.ReadFileArgs{}, contract.ReadFileResult{Kind: "text", MIME: "image/svg+xml", Encoding: "utf-8", Newline: "none", Lines: 1, FirstLine: 1, LastLine: 1, Content: "<svg/>"}},
	} {
		p.put(c.name, c.content)
		c.args.Path, c.want.Path, c.want.Size, c.want.Mode = c.name, p.path(c.name), int64(len(c.content)), "0644"
		c.want.SHA256 = fmt.Sprintf("%x", sha256.Sum256([]byte(c.content)))
		var got contract.ReadFileResult
		if fail := p.call(contract.ReadFile, c.args, &got); fail != nil || got != c.want {
			t.Errorf("%s: %v\n%.300s\nwant\n%.300s", c.name, fail, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", c.want))
		}
	}
}

// A text that comes in many pieces is what it is in one, wherever the pieces
// are cut.
func TestPiecesAreOneText(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "é", "😀", "\r\n", "\n", "\r", "\xff", "日"}
	for range 3000 {
		var whole []byte
		n := 1 + rnd.IntN(len(alphabet))
		for range rnd.IntN(30) {
			whole = append(whole, alphabet[rnd.IntN(n)]...)
		}
		a := &contract.ReadFileArgs{Offset: int64(rnd.IntN(6)), Limit: int64(rnd.IntN(6))}
		one, many := newWindow(a), newWindow(a)
		v, w := validator{ok: true}, validator{ok: true}
		one.add(whole)
		v.add(whole)
		for rest := whole; len(rest) > 0; {
			k := 1 + rnd.IntN(min(4, len(rest)))
			many.add(rest[:k])
			w.add(rest[:k])
			rest = rest[k:]
		}
		var r1, r2 contract.ReadFileResult
		one.into(&r1, true)
		many.into(&r2, true)
		if r1 != r2 {
			t.Fatalf("%q: %+v in one, %+v in pieces", whole, r1, r2)
		}
		if valid := utf8.Valid(whole); v.end(true) != valid || w.end(true) != valid {
			t.Fatalf("%q: valid %v, in one %v, in pieces %v", whole, valid, v.end(true), w.end(true))
		}
	}
}

// Reading on from next_offset gives the whole file.
func TestReadingOn(t *testing.T) {
	p := at(t)
	var want bytes.Buffer
	for i := range 30000 {
		fmt.Fprintf(&want, "line %d %s\n", i, strings.Repeat("é", i%40))
	}
	p.put("f", want.String())
	var got strings.Builder
	for next, n := int64(1), 0; next > 0; n++ {
		var r contract.ReadFileResult
		p.must(contract.ReadFile, contract.ReadFileArgs{Path: "f", Offset: next, Limit: 1 << 40}, &r)
		if r.FirstLine != next || n > 100 {
			t.Fatalf("asked for line %d, got %d", next, r.FirstLine)
		}
		got.WriteString(r.Content)
		next = r.NextOffset
	}
	if got.String() != want.String() {
		t.Errorf("%d bytes came back of %d", got.Len(), want.Len())
	}
}

// A file that is too large to be read to its end still gives its lines.
func TestReadLargeFile(t *testing.T) {
	p := at(t)
	f, err := os.Create(p.path("large"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	line := bytes.Repeat([]byte("abcdefghijklmno\n"), 1<<16)
	for range 1 + contract.MaxWhole/len(line) {
		if _, err := f.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	var r contract.ReadFileResult
	p.must(contract.ReadFile, contract.ReadFileArgs{Path: "large", Offset: 1000, Limit: 3}, &r)
	if r.Content != strings.Repeat("abcdefghijklmno\n", 3) || r.Lines != -1 || r.SHA256 != "" || !r.Truncated || r.NextOffset != 1003 {
		t.Errorf("%+v", r)
	}
	lines := r.Size / 16
	r = contract.ReadFileResult{}
	p.must(contract.ReadFile, contract.ReadFileArgs{Path: "large", Offset: lines + 5}, &r)
	if r.Content != "" || r.Lines != lines || r.SHA256 == "" {
		t.Errorf("past the end: %+v, %d lines", r, lines)
	}
	if got := code(p.call(contract.EditFile, contract.EditFileArgs{Path: "large", Edits: []contract.Edit{{Old: "a", New: "b"}}}, nil)); got != contract.TooBig {
		t.Errorf("an edit: %q", got)
	}
}

// What is no regular file, or lies where no tool goes, is refused without a
// wait and without an effect.
func TestReadRefuses(t *testing.T) {
	p := at(t)
	p.put("dir/file", "x")
	p.put("secret", "x")
	for name, to := range map[string]string{
		"loop": "loop", "dangling": "nowhere", "proc": "/proc/self/mem", "environ": "/proc/self/environ", "fd": "/proc/self/fd/0", "tty": "/dev/tty",
		"null": "/dev/null", "kernel": "/sys/kernel/uevent_seqnum", "procdir": "/proc",
	} {
		if err := os.Symlink(to, p.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(p.path("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sock)
	t.Chdir(p.dir) // a socket's path is short
	if err := unix.Bind(sock, &unix.SockaddrUnix{Name: "sock"}); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	for _, c := range []struct {
		path string
		want []contract.Code
	}{
		{"none", []contract.Code{contract.NotFound}},
		{"dangling", []contract.Code{contract.NotFound}},
		{"dir/file/x", []contract.Code{contract.NotDir}},
		{"dir", []contract.Code{contract.IsDir}},
		{"secret/", []contract.Code{contract.NotDir}},
		{"loop", []contract.Code{contract.NotRegular}},
		{"fifo", []contract.Code{contract.NotRegular}},
		{"sock", []contract.Code{contract.NotRegular}},
		{"null", []contract.Code{contract.NotRegular}},
		{"tty", []contract.Code{contract.NotRegular}},
		{"proc", []contract.Code{contract.Outside}},
		{"environ", []contract.Code{contract.Outside}},
		{"fd", []contract.Code{contract.NotRegular}}, // a magic link
		{"kernel", []contract.Code{contract.Outside, contract.NotFound}},
		{"procdir/version", []contract.Code{contract.Outside}},
		{"/proc/self/mem", []contract.Code{contract.Outside}},
		{"/dev/null", []contract.Code{contract.Outside}},
		{"/sys/kernel/uevent_seqnum", []contract.Code{contract.Outside}},
		{p.dir + "/../../../../../../../../proc/version", []contract.Code{contract.Outside}},
		{strings.Repeat("x", 300), []contract.Code{contract.BadArgs}},
	} {
		for tool, args := range map[string]any{
			contract.ReadFile: contract.ReadFileArgs{Path: c.path}, contract.WriteFile: contract.WriteFileArgs{Path: c.path, Content: "y"},
			contract.EditFile: contract.EditFileArgs{Path: c.path, Edits: []contract.Edit{{Old: "x", New: "y"}}},
		} {
			if tool == contract.WriteFile && (c.path == "none" || c.path == "dangling") {
				continue // these it makes
			}
			got := code(p.call(tool, args, nil))
			ok := tool != contract.ReadFile && (got == contract.Permission || got == contract.Outside || c.path == "secret/" && got == contract.IsDir)
			for _, w := range c.want {
				ok = ok || got == w
			}
			if !ok {
				t.Errorf("%s %.80s: %q, want %q", tool, c.path, got, c.want)
			}
		}
	}
	if p.get("secret") != "x" || p.get("dir/file") != "x" {
		t.Error("something was written")
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	p.clean()
}
