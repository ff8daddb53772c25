package rootfs

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// f is an entry: a file with text; a folder, where the name ends in a slash; a link,
// where to is set, or another name, where hard is.
type f struct {
	name, text, to, hard string
	mode                 int64
	kind                 byte
}

func tarOf(t testing.TB, fs ...f) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range fs {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.text)), Typeflag: tar.TypeReg, ModTime: time.Unix(1e9, 0), Uid: 12345}
		switch {
		case e.kind != 0:
			h.Typeflag = e.kind
		case e.to != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.to
		case e.hard != "":
			h.Typeflag, h.Linkname = tar.TypeLink, e.hard
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
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

func zip(t testing.TB, b []byte) []byte {
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

// tree is what lies below dir: text of a file, "->" of a link, "/" of a folder.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		switch {
		case e.IsDir():
			out[rel] = "/"
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			out[rel] = "->" + to
			return err
		default:
			b, err := os.ReadFile(p)
			out[rel] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func unpack(t testing.TB, path string) (string, *Unpacked, error) {
	t.Helper()
	a, err := Find(path)
	if err != nil {
		return "", nil, err
	}
	if a == nil {
		t.Fatal("it is taken for a folder as it is")
	}
	dir := filepath.Join(t.TempDir(), "root")
	u, err := a.Unpack(context.Background(), dir)
	return dir, u, err
}

func file(t testing.TB, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "archive.tar")
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s (%q) is too much", k, got[k])
		}
	}
}

// A layout is a map of its files.
type layout map[string][]byte

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

func (l layout) put(b []byte) map[string]any {
	l["blobs/sha256/"+strings.TrimPrefix(digest(b), "sha256:")] = b
	return map[string]any{"digest": digest(b), "size": len(b)}
}

func (l layout) json(t testing.TB, name string, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if name != "" {
		l[name] = b
	}
	return b
}

// ociOf is a layout with one image for this machine and one for another.
func ociOf(t testing.TB, layers ...[]byte) layout {
	t.Helper()
	l := layout{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	var ds []any
	for _, b := range layers {
		ds = append(ds, l.put(b))
	}
	m := l.put(l.json(t, "", map[string]any{"schemaVersion": 2, "layers": ds}))
	m["platform"] = map[string]string{"os": "linux", "architecture": runtime.GOARCH}
	other := map[string]any{"digest": digest([]byte("other")), "size": 5, "platform": map[string]string{"os": "linux", "architecture": "other"}}
	list := l.put(l.json(t, "", map[string]any{"manifests": []any{other, m}}))
	l.json(t, "index.json", map[string]any{"manifests": []any{list}})
	return l
}

func (l layout) folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range l {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, b, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (l layout) tar(t testing.TB) []byte {
	t.Helper()
	var fs []f
	for name, b := range l {
		fs = append(fs, f{name: name, text: string(b)})
	}
	return tarOf(t, fs...)
}

var lower = []f{{name: "bin/sh", text: "shell", mode: 0o4755}, {name: "etc/"}, {name: "etc/secret", text: "s", mode: 0o600}, {name: "old/a", text: "a"}, {name: "old/b", text: "b"}, {name: "lib", to: "/usr/lib"}, {name: "usr/lib/"}, {name: "gone", text: "g"}}
var upper = []f{{name: "old/.wh..wh..opq"}, {name: "old/c", text: "c"}, {name: ".wh.gone"}, {name: "lib/x.so", text: "lib"}, {name: "sh", hard: "bin/sh"}}
var both = map[string]string{"bin": "/", "bin/sh": "shell", "etc": "/", "etc/secret": "s", "old": "/", "old/c": "c", "lib": "->/usr/lib", "usr": "/", "usr/lib": "/", "usr/lib/x.so": "lib", "sh": "shell"}

func TestForms(t *testing.T) {
	saved := func(layers ...[]byte) []byte {
		l := layout{}
		var names []string
		for i, b := range layers {
			name := string(rune('a'+i)) + "/layer.tar"
			l[name] = b
			names = append(names, name)
		}
		l.json(t, "manifest.json", []any{map[string]any{"Layers": names}})
		return l.tar(t)
	}
	oci := ociOf(t, tarOf(t, lower...), zip(t, tarOf(t, upper...)))
	plain := map[string]string{"a": "/", "a/b": "text", "l": "->a"}
	flat := tarOf(t, f{name: "./"}, f{name: "./a/b", text: "text", mode: 0o755}, f{name: "./l", to: "a"})
	for _, c := range []struct {
		name, path string
		want       map[string]string
	}{
		{"tar", file(t, flat), plain},
		{"compressed tar", file(t, zip(t, flat)), plain},
		{"layout folder", oci.folder(t), both},
		{"layout file", file(t, oci.tar(t)), both},
		{"saved image", file(t, saved(tarOf(t, lower...), tarOf(t, upper...))), both},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, u, err := unpack(t, c.path)
			if err != nil {
				t.Fatal(err)
			}
			same(t, tree(t, dir), c.want)
			if !strings.HasPrefix(u.Digest, "sha256:") || len(u.Digest) != 71 {
				t.Errorf("digest %q", u.Digest)
			}
			for name, want := range map[string]fs.FileMode{"bin/sh": 0o755, "etc/secret": 0o644, "a/b": 0o755} {
				if _, ok := c.want[name]; !ok {
					continue
				}
				st, err := os.Lstat(filepath.Join(dir, name))
				if err != nil || st.Mode() != want || st.ModTime().Unix() != 1e9 {
					t.Errorf("%s: %v %v %v", name, st.Mode(), st.ModTime(), err)
				}
			}
		})
	}
	if a, err := Find(t.TempDir()); a != nil || err != nil {
		t.Errorf("a folder as it is: %v %v", a, err)
	}
}

// What an archive says of places outside is said of its own root.
func TestNothingOutside(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []f
		want map[string]string // nil: refused
	}{
		{"dots", []f{{name: "../../outside", text: "x"}}, map[string]string{"outside": "x"}},
		{"absolute", []f{{name: "/etc/x", text: "x"}}, map[string]string{"etc": "/", "etc/x": "x"}},
		{"below an absolute link", []f{{name: "l", to: "/tmp"}, {name: "l/x", text: "x"}}, map[string]string{"l": "->/tmp", "tmp": "/", "tmp/x": "x"}},
		{"below a link out", []f{{name: "d/l", to: "../../../.."}, {name: "d/l/x", text: "x"}}, map[string]string{"d": "/", "d/l": "->../../../..", "x": "x"}},
		{"below two links", []f{{name: "a", to: "b"}, {name: "b", to: "../c"}, {name: "a/x", text: "x"}}, map[string]string{"a": "->b", "b": "->../c", "c": "/", "c/x": "x"}},
		{"a file over a link", []f{{name: "l", to: "/outside"}, {name: "l", text: "x"}}, map[string]string{"l": "x"}},
		{"a folder over a link", []f{{name: "l", to: "/outside"}, {name: "l/"}, {name: "l/x", text: "x"}}, map[string]string{"l": "/", "l/x": "x"}},
		{"a link over a folder", []f{{name: "d/x", text: "x"}, {name: "d", to: "/e"}, {name: "d/y", text: "y"}}, map[string]string{"d": "->/e", "e": "/", "e/y": "y"}},
		{"a file twice, with two names", []f{{name: "a", text: "1"}, {name: "b", hard: "a"}, {name: "b", text: "2"}}, map[string]string{"a": "1", "b": "2"}},
		{"a name of what is outside", []f{{name: "b", hard: "../../etc/passwd"}}, nil},
		{"a name of a folder", []f{{name: "d/"}, {name: "b", hard: "d"}}, nil},
		{"a name through a link out", []f{{name: "l", to: "/etc"}, {name: "b", hard: "l/passwd"}}, nil},
		{"links in a circle", []f{{name: "a", to: "b"}, {name: "b", to: "a"}, {name: "a/x", text: "x"}}, nil},
		{"below a file", []f{{name: "a", text: "x"}, {name: "a/b", text: "x"}}, nil},
		{"devices and pipes", []f{{name: "n", kind: tar.TypeChar}, {name: "b", kind: tar.TypeBlock}, {name: "p", kind: tar.TypeFifo}, {name: "x", text: "x"}}, map[string]string{"x": "x"}},
		{"no whiteout in a plain root", []f{{name: "x", text: "x"}, {name: ".wh.x", text: ""}}, map[string]string{"x": "x", ".wh.x": ""}},
		{"a long name", []f{{name: strings.Repeat("d/", 4000) + "x", text: "x"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _, err := unpack(t, file(t, tarOf(t, c.in...)))
			if (err != nil) != (c.want == nil) {
				t.Fatalf("%v", err)
			}
			if names, _ := os.ReadDir(filepath.Dir(dir)); len(names) != 1 {
				t.Errorf("beside the root lies something: %v", names)
			}
			if err == nil {
				same(t, tree(t, dir), c.want)
			} else if task.HintOf(err) == "" {
				t.Errorf("%v has no next step", err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	good := tarOf(t, lower...)
	wrong := ociOf(t, good)
	for name, b := range wrong {
		if bytes.Equal(b, good) {
			wrong[name] = tarOf(t, append(append([]f(nil), lower[:7]...), f{name: "gone", text: "G"})...) // as long as the other
		}
	}
	two := ociOf(t, good)
	two.json(t, "index.json", map[string]any{"manifests": []any{two.put([]byte("{}")), two.put([]byte("{ }"))}})
	far := layout{"oci-layout": {}}
	far.json(t, "index.json", map[string]any{"manifests": []any{map[string]any{"digest": "sha256:../../../../etc/passwd", "size": 1}}})
	away := ociOf(t, good)
	for name := range away {
		if strings.HasPrefix(name, "blobs") && len(away[name]) == len(good) {
			delete(away, name)
		}
	}
	for _, c := range []struct{ name, path, want string }{
		{"no archive", file(t, []byte("hello hello hello")), "cannot be unpacked"},
		{"empty", file(t, nil), "too short"},
		{"zstd", file(t, []byte("\x28\xb5\x2f\xfdxxxx")), "zstd"},
		{"cut off", file(t, good[:len(good)/2]), "cannot be unpacked"},
		{"another layer than the digest says", wrong.folder(t), "not what its digest says"},
		{"a layer is missing", away.folder(t), "no such file"},
		{"two images", two.folder(t), "2 images"},
		{"a digest that is a path", far.folder(t), "no digest"},
		{"a compressed file of an image", file(t, zip(t, ociOf(t, good).tar(t))), "uncompress"},
		{"nothing", filepath.Join(t.TempDir(), "none"), "no such file"},
		{"a device", "/dev/null", "neither"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := unpack(t, c.path); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	was := most
	defer func() { most = was }()
	most = bounds{bytes: 100, entries: 5}
	for _, in := range [][]f{
		{{name: "a", text: strings.Repeat("x", 60)}, {name: "b", text: strings.Repeat("x", 60)}},
		{{name: "1/"}, {name: "2/"}, {name: "3/"}, {name: "4/"}, {name: "5/"}, {name: "6/"}},
		{{name: "1/2/3/4/5/6/7", text: "x"}},
	} {
		if _, _, err := unpack(t, file(t, tarOf(t, in...))); task.CodeOf(err) != task.CodeLimit {
			t.Errorf("%v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := &Archive{Path: file(t, tarOf(t, lower...))}
	if _, err := a.Unpack(ctx, filepath.Join(t.TempDir(), "root")); task.CodeOf(err) != task.CodeCanceled {
		t.Errorf("%v", err)
	}
}

// Whatever the bytes are, nothing is made beside the root and nothing in it that is
// not a file, a folder or a link.
func FuzzUnpack(fz *testing.F) {
	fz.Add(tarOf(fz, lower...))
	fz.Add(tarOf(fz, append(append([]f(nil), lower...), upper...)...))
	fz.Add(zip(fz, tarOf(fz, upper...)))
	fz.Add(ociOf(fz, tarOf(fz, lower...), tarOf(fz, upper...)).tar(fz))
	fz.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		a := &Archive{Path: file(t, b)}
		_, _ = a.Unpack(context.Background(), filepath.Join(dir, "root"))
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("beside the root: %v", names)
		}
		_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && e.Type()&^fs.ModeSymlink != 0 {
				t.Errorf("%s is %v", p, e.Type())
			}
			return nil
		})
	})
}
