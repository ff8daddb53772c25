//go:build linux

package source

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// entry is one member of an archive under test.
type entry struct {
	name, text, link string
	kind             byte
	mode             int64
}

func tarOf(t testing.TB, es ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range es {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		size := int64(len(e.text))
		if err := w.WriteHeader(&tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Size: size, Mode: e.mode}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t testing.TB, es ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range es {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		mode := os.FileMode(0o644)
		if e.kind == tar.TypeSymlink {
			mode, e.text = os.ModeSymlink|0o777, e.link
		}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = f.Write([]byte(e.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unpacked(t *testing.T, b []byte, disk int64) (*Prepared, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	p, _, err := copied(t, file, disk)
	return p, err
}

func TestUnpack(t *testing.T) {
	good := []entry{
		{name: "./"}, {name: "proj/", kind: tar.TypeDir, mode: 0o755}, {name: "proj/a.txt", text: "a\n"}, {name: "proj/run", text: "#!/bin/sh\n", mode: 0o4755},
		{name: "proj/l", kind: tar.TypeSymlink, link: "sub/../a.txt"}, {name: "implicit/x/y", text: "y"}, {name: "proj/.git/config", text: "[core]"},
		{name: "proj/hard", kind: tar.TypeLink, link: "proj/a.txt"}, {name: "proj/null", kind: tar.TypeChar}, {name: "big", text: strings.Repeat("0123456789", 300_000)},
	}
	good[0].kind = tar.TypeDir
	for form, b := range map[string][]byte{"tar": tarOf(t, good...), "tar.gz": zipped(t, tarOf(t, good...)), "zip": zipOf(t, good[2], good[4], good[5], good[6], good[9])} {
		p, err := unpacked(t, b, 0)
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		for name, want := range map[string]string{"proj/a.txt": "a\n", "implicit/x/y": "y", "big": good[9].text} {
			if got, err := os.ReadFile(p.Source + "/" + name); err != nil || string(got) != want {
				t.Errorf("%s: %s: %v", form, name, err)
			}
		}
		if got, err := os.Readlink(p.Source + "/proj/l"); err != nil || got != "sub/../a.txt" {
			t.Errorf("%s: link %q %v", form, got, err)
		}
		if _, err := os.Lstat(p.Source + "/proj/.git"); err == nil {
			t.Errorf("%s: .git was unpacked", form)
		}
		notes := strings.Join(p.Ref.Notes, "\n")
		if !strings.Contains(notes, "proj/.git/config") {
			t.Errorf("%s: notes %q", form, notes)
		}
		if form == "zip" {
			continue
		}
		if st, err := os.Stat(p.Source + "/proj/run"); err != nil || st.Mode() != 0o755 || !strings.Contains(notes, "setuid") {
			t.Errorf("%s: setuid: %v %v %s", form, st.Mode(), err, notes)
		}
		if _, err := os.Lstat(p.Source + "/proj/null"); err == nil || !strings.Contains(notes, "proj/null") {
			t.Errorf("%s: a device: %v", form, err)
		}
		a, _ := os.Stat(p.Source + "/proj/a.txt")
		h, err := os.Stat(p.Source + "/proj/hard")
		if err != nil || os.SameFile(a, h) {
			t.Errorf("%s: hard link: %v", form, err)
		}
	}
}

// naive unpacks as a program without care does: the control of the attacks.
func naive(t *testing.T, b []byte, to string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if err != nil {
			return
		}
		p := filepath.Join(to, h.Name)
		switch h.Typeflag {
		case tar.TypeSymlink:
			_ = os.Symlink(h.Linkname, p)
		case tar.TypeLink:
			_ = os.Link(filepath.Join(to, h.Linkname), p)
		case tar.TypeReg:
			if f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644); err == nil {
				_, _ = f.ReadFrom(r)
				f.Close()
			}
		}
	}
}

// Nothing that an archive says makes a file outside the folder, or one inside
// that another name was meant for.
func TestUnpackAttacks(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside+"/victim", []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 40)
	long := strings.Repeat("n", 256)
	for _, c := range []struct {
		name, want string
		es         []entry
		writes     bool // the naive program writes outside
	}{
		{"dots", "leads out", []entry{{name: up + outside + "/dropped", text: "x"}}, true},
		{"dots inside", "leads out", []entry{{name: "a/../../x", text: "x"}}, false},
		{"absolute", "absolute path", []entry{{name: outside + "/dropped", text: "x"}}, false},
		{"link and file through it", "leads out", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/dropped", text: "x"}}, true},
		{"relative link out", "leads out", []entry{{name: "d/l", kind: tar.TypeSymlink, link: "../../x"}}, false},
		{"file through a link inside", "twice", []entry{{name: "d/x", text: "1"}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l/x", text: "2"}}, false},
		{"links out by two steps", "leads out", []entry{{name: "d/l", kind: tar.TypeSymlink, link: ".."}, {name: "m", kind: tar.TypeSymlink, link: "d/l/.."}}, false},
		{"folder over a link", "through it", []entry{{name: "d/x", text: "1"}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l", kind: tar.TypeDir}}, false},
		{"hard link out", "leads out", []entry{{name: "h", kind: tar.TypeLink, link: up + outside + "/victim"}, {name: "h", text: "overwritten"}}, true},
		{"hard link to nothing", "no file before it", []entry{{name: "h", kind: tar.TypeLink, link: "later"}, {name: "later", text: "x"}}, false},
		{"hard link to a link", "no file before it", []entry{{name: "l", kind: tar.TypeSymlink, link: "x"}, {name: "h", kind: tar.TypeLink, link: "l"}}, false},
		{"twice", "twice", []entry{{name: "x", text: "1"}, {name: "./x", text: "2"}}, false},
		{"case twins", "case of letters", []entry{{name: "Makefile", text: "1"}, {name: "makefile", text: "2"}}, false},
		{"case twins of folders", "case of letters", []entry{{name: "Src/a", text: "1"}, {name: "src/b", text: "2"}}, false},
		{"long name", "longer than a file's name", []entry{{name: long, text: "1"}}, false},
		{"deep", "folders deep", []entry{{name: strings.Repeat("d/", 500) + "x", text: "1"}}, false},
		{"unknown kind", "unknown kind", []entry{{name: "x", kind: 'Z'}}, false},
	} {
		b := tarOf(t, c.es...)
		if c.writes {
			to := t.TempDir()
			before := picture(t, outside, nil)
			naive(t, b, to)
			if picture(t, outside, nil) == before {
				t.Errorf("control: %s: a careless program does nothing outside either", c.name)
			}
			os.Remove(outside + "/dropped")
			if err := os.WriteFile(outside+"/victim", []byte("mine"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		before := picture(t, outside, nil)
		_, err := unpacked(t, b, 0)
		if c.name == "file through a link inside" && err != nil && strings.Contains(err.Error(), "link and then a folder") {
			err = nil
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || task.HintOf(err) == "" {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if picture(t, outside, nil) != before {
			t.Errorf("%s: something was written outside", c.name)
		}
	}
	for _, c := range []struct {
		name, want string
		b          []byte
	}{
		{"zip dots", "leads out", zipOf(t, entry{name: "../x", text: "x"})},
		{"zip absolute", "absolute", zipOf(t, entry{name: "/x", text: "x"})},
		{"zip link out", "leads out", zipOf(t, entry{name: "l", kind: tar.TypeSymlink, link: "/etc"})},
		{"zip backslash", "backslash", zipOf(t, entry{name: `..\x`, text: "x"})},
		{"cut", "cannot be unpacked", tarOf(t, entry{name: "x", text: strings.Repeat("x", 5000)})[:2000]},
		{"cut gzip", "cannot be unpacked", zipped(t, tarOf(t, entry{name: "x", text: strings.Repeat("x", 5000)}))[:60]},
		{"huge header", "cannot be unpacked", hugeHeader(t)},
		{"zstd", "zstd", []byte("\x28\xb5\x2f\xfdxxxx")},
		{"xz", "xz", []byte("\xfd7zXZ\x00xxxx")},
		{"text", "neither a folder nor an archive", []byte("hello\n")},
		{"empty", "neither a folder nor an archive", nil},
	} {
		if _, err := unpacked(t, c.b, 0); err == nil || !strings.Contains(err.Error(), c.want) || task.HintOf(err) == "" {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// hugeHeader is a pax header of more than a mebibyte.
func hugeHeader(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h := &tar.Header{Name: "x", Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatPAX, PAXRecords: map[string]string{"CAISSON.x": strings.Repeat("y", 3<<20)}}
	if err := w.WriteHeader(h); err != nil {
		// The writer refuses it as well: say it by hand.
		b.Reset()
		w = tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 3 << 20}); err != nil {
			t.Fatal(err)
		}
		out := b.Bytes()
		out[156] = 'x'
		sum := 0
		copy(out[148:156], "        ")
		for _, c := range out[:512] {
			sum += int(c)
		}
		copy(out[148:156], []byte(octal(sum)))
		return append(out, make([]byte, 3<<20)...)
	}
	return b.Bytes()
}

func octal(n int) string {
	s := ""
	for range 6 {
		s = string(rune('0'+n%8)) + s
		n /= 8
	}
	return s + "\x00 "
}

// A bomb ends at the limit on disk, not on the disk.
func TestUnpackBomb(t *testing.T) {
	zeros := strings.Repeat("\x00", 12<<20)
	bombs := map[string][]byte{
		"one file":         zipped(t, tarOf(t, entry{name: "x", text: zeros})),
		"zip":              zipOf(t, entry{name: "x", text: zeros}),
		"left out":         zipped(t, tarOf(t, entry{name: ".git/x", text: zeros})),
		"by hard links":    tarOf(t, append([]entry{{name: "x", text: zeros[:2<<20]}}, links(8)...)...),
		"many empty files": tarOf(t, empties(4000)...),
	}
	for name, b := range bombs {
		p, err := unpacked(t, b, 8<<20)
		if task.CodeOf(err) != task.CodeLimit {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := unpacked(t, b, 64<<20); err != nil {
			t.Errorf("control: %s: %v", name, err)
		}
		_ = p
	}
}

func links(n int) (es []entry) {
	for i := range n {
		es = append(es, entry{name: "l" + itoa(i), kind: tar.TypeLink, link: "x"})
	}
	return es
}

func empties(n int) (es []entry) {
	for i := range n {
		es = append(es, entry{name: "f" + itoa(i)})
	}
	return es
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\x00", 18)))
	f.Add([]byte("BZh91AY&SY"))
	for _, b := range hostileArchives(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		file := dir + "/archive"
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Inspect(context.Background(), Options{Dir: file, Strategy: task.StrategyCopy})
		if err != nil {
			return
		}
		ws := Workspace{Task: task.NewID(), Dir: dir + "/task"}
		if err := os.Mkdir(ws.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err = Prepare(context.Background(), r, ws, Inside{ObjectsDir: "/run/objects", UID: 1000, GID: 1000, Disk: 1 << 20})
		left, rerr := os.ReadDir(dir)
		if rerr != nil || len(left) != 2 {
			t.Fatalf("something was made outside: %v %v (%v)", left, rerr, err)
		}
		if err != nil && task.HintOf(err) == "" {
			t.Errorf("an error without a next step: %v", err)
		}
	})
}
