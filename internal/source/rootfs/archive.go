package rootfs

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/task"
)

const op = "rootfs"

// Archive is what --rootfs may name beside a folder that holds a root as it is.
type Archive struct {
	// Path is absolute; it is a file, or a folder with an OCI layout.
	Path   string
	layout bool
}

// Unpacked says what became of one.
type Unpacked struct {
	// Digest names what was unpacked for good, sha256:HEX: of the file, or of the
	// manifest that a layout's blobs were held to.
	Digest string
	Files  int
	Bytes  int64
	// LeftOut counts devices, pipes and sockets, which a boundary has of its own.
	LeftOut int
}

// Find looks at what path is. nil without an error: a folder that holds a root as it
// is. What is neither is refused.
func Find(path string) (*Archive, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, task.Errorf(task.CodeUsage, op, "--rootfs %s: %w", path, err).WithHint("%s", takes)
	}
	if st.Mode().IsRegular() {
		return &Archive{Path: path}, nil
	}
	if !st.IsDir() {
		return nil, task.Errorf(task.CodeUsage, op, "--rootfs %s is neither a folder nor a file", path).WithHint("%s", takes)
	}
	for _, name := range []string{layoutName, indexName} {
		if st, err := os.Lstat(filepath.Join(path, name)); err != nil || !st.Mode().IsRegular() {
			return nil, nil
		}
	}
	return &Archive{Path: path, layout: true}, nil
}

const takes = "--rootfs takes a folder with an unpacked root, a tar file of one (docker export), a saved image (docker save), or an OCI layout"

// Unpack makes dir, which must not exist, and unpacks into it. With an error dir may
// be there in part; whoever called removes it.
func (a *Archive) Unpack(ctx context.Context, dir string) (*Unpacked, error) {
	u := &unpacking{ctx: ctx, most: most}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, task.Errorf(task.CodeStateStore, op, "%w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, op, "%w", err)
	}
	defer root.Close()
	u.root = root
	defer u.leave()
	if err := a.unpack(u); err != nil {
		var te *task.Error
		switch {
		case ctx.Err() != nil:
			return nil, task.Errorf(task.CodeCanceled, op, "%w", context.Cause(ctx))
		case errors.As(err, &te):
			return nil, err
		}
		return nil, task.Errorf(task.CodeUsage, op, "--rootfs %s cannot be unpacked: %v", a.Path, err).WithHint("%s; nothing was executed", takes)
	}
	return &u.done, nil
}

func (a *Archive) unpack(u *unpacking) error {
	if a.layout {
		in, err := os.OpenRoot(a.Path)
		if err != nil {
			return err
		}
		defer in.Close()
		return u.image(rooted{in})
	}
	f, err := os.Open(a.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, u.held(f)); err != nil {
		return err
	}
	if err := a.unpackFile(u, f); err != nil {
		return err
	}
	u.done.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return nil
}

func (a *Archive) unpackFile(u *unpacking, f *os.File) error {
	var head [4]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return errors.New("it is too short for an archive")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if packed(head[:]) != "" {
		if err := u.layer(f, false); err != nil {
			return err
		}
		for _, name := range []string{layoutName, dockerName} {
			if _, err := u.root.Lstat(name); err == nil {
				return errors.New("it is a saved image in a compressed file; uncompress the file (gunzip)")
			}
		}
		return nil
	}
	in, err := indexOf(u, f)
	if err != nil {
		return err
	}
	switch {
	case in.has(layoutName) && in.has(indexName):
		return u.image(in)
	case in.has(dockerName):
		return u.saved(in)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return u.layer(f, false)
}

// packed names the form in which data that begins with head is compressed; empty:
// not, as far as is known.
func packed(head []byte) string {
	switch {
	case len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b:
		return "gzip"
	case len(head) >= 4 && string(head[:4]) == "\x28\xb5\x2f\xfd":
		return "zstd"
	case len(head) >= 3 && string(head[:3]) == "BZh":
		return "bzip2"
	case len(head) >= 4 && string(head[:4]) == "\xfd7zX":
		return "xz"
	}
	return ""
}

// plain returns what r holds, uncompressed.
func plain(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch p := packed(head); p {
	case "":
		return b, nil
	case "gzip":
		return gzip.NewReader(b)
	default:
		return nil, task.Errorf(task.CodeUnsupported, op, "it is compressed with %s, which this program does not read", p).
			WithHint("uncompress it, or compress it with gzip (an image: skopeo copy --dest-compress-format gzip, or docker save)")
	}
}

// files are the files of a layout or of a saved image, by their names.
type files interface {
	// open returns a file and its length. The caller closes it.
	open(name string) (io.ReadCloser, int64, error)
}

type rooted struct{ root *os.Root }

func (r rooted) open(name string) (io.ReadCloser, int64, error) {
	st, err := r.root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !st.Mode().IsRegular() { // a pipe would never be opened
		return nil, 0, fmt.Errorf("%s is no file", name)
	}
	f, err := r.root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// indexed are the files of a tar file that is not compressed.
type indexed struct {
	f  io.ReaderAt
	at map[string]section
}

type section struct{ from, size int64 }

func (in *indexed) has(name string) bool { _, ok := in.at[name]; return ok }

func (in *indexed) open(name string) (io.ReadCloser, int64, error) {
	s, ok := in.at[path.Clean(name)]
	if !ok {
		return nil, 0, fmt.Errorf("%q is not in it", name)
	}
	return io.NopCloser(io.NewSectionReader(in.f, s.from, s.size)), s.size, nil
}

// indexOf notes where each file of an archive is. Of two of one name the last counts.
func indexOf(u *unpacking, f *os.File) (*indexed, error) {
	in := &indexed{f: f, at: map[string]section{}}
	links := map[string]string{}
	r := tar.NewReader(f)
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && n > u.most.entries {
			err = errEntries(u.most)
		}
		if err == nil {
			err = u.ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		from, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			in.at[name] = section{from, h.Size}
		case tar.TypeSymlink: // of one layer to another that is the same
			links[name] = path.Join(path.Dir(name), h.Linkname)
		}
	}
	for name, to := range links {
		if s, ok := in.at[to]; ok && !in.has(name) {
			in.at[name] = s
		}
	}
	return in, nil
}
