package source

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/tree"
)

// The forms of archives that can be unpacked.
const (
	formTar   = "tar"
	formGzip  = "tar.gz"
	formBzip2 = "tar.bz2"
	formZip   = "zip"
)

// Limits on what an archive may make of itself. Its bytes are nobody's word.
const (
	maxUnpacked  = 64 << 30  // bytes, where the task has no limit on disk
	maxMembers   = 1_000_000 // entries
	maxDirectory = 256 << 20 // bytes of a zip file's list of contents
	maxTarget    = 4096      // bytes of a symbolic link
	maxTrailing  = 16 << 20  // bytes after the end of a tar archive: padding
)

// archiveForm tells the form by the first bytes; the name says nothing.
func archiveForm(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", broken("make it readable", "%s cannot be read: %v", quote(file), err)
	}
	defer f.Close()
	var b [512]byte
	n, err := io.ReadFull(f, b[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", broken("check the file", "%s cannot be read: %v", quote(file), err)
	}
	starts := func(s string) bool { return strings.HasPrefix(string(b[:n]), s) }
	other := func(form, how string) (string, error) {
		return "", unsupported(how+", or unpack it yourself and name the folder with --repo", "%s is %s, which this version does not unpack", quote(file), form)
	}
	switch {
	case starts("\x1f\x8b"):
		return formGzip, nil
	case starts("BZh"):
		return formBzip2, nil
	case starts("PK\x03\x04"), starts("PK\x05\x06"):
		return formZip, nil
	case starts("\x28\xb5\x2f\xfd"):
		return other("compressed with zstd", "run `zstd -d` on it")
	case starts("\xfd7zXZ\x00"):
		return other("compressed with xz", "run `xz -d` on it")
	case starts("7z\xbc\xaf\x27\x1c"):
		return other("a 7z archive", "make a zip of it")
	}
	if n == len(b) {
		if _, err := tar.NewReader(bytes.NewReader(b[:])).Next(); err == nil || string(b[257:262]) == "ustar" || errors.Is(err, io.ErrUnexpectedEOF) {
			return formTar, nil
		}
	}
	return "", unsupported("name a folder, or a tar, tar.gz, tar.bz2 or zip archive", "%s is neither a folder nor an archive that is known", quote(file))
}

// withoutExtension is where an archive's files stand inside by default.
func withoutExtension(file string) string {
	for _, ext := range []string{".tar.gz", ".tar.bz2", ".tgz", ".tbz2", ".tbz", ".tar", ".zip"} {
		if s, ok := strings.CutSuffix(file, ext); ok && !strings.HasSuffix(s, "/") {
			return s
		}
	}
	return file
}

// cancelable ends reading when the context does.
type cancelable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

func (u *unpacking) tar(ctx context.Context, f *os.File, form string) error {
	var r io.Reader = cancelable{ctx, f}
	switch form {
	case formGzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return err
		}
		r = z
	case formBzip2:
		r = bzip2.NewReader(r)
	}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		m := member{name: h.Name, size: h.Size, mode: uint32(h.Mode), target: h.Linkname} //nolint:gosec // only its low bits count
		m.like.MtimeS, m.like.MtimeN = h.ModTime.Unix(), uint32(h.ModTime.Nanosecond())   //nolint:gosec // below 1e9
		switch h.Typeflag {
		case tar.TypeReg, '\x00', tar.TypeGNUSparse, tar.TypeCont: //nolint:staticcheck // as old archives have it
			m.kind = tree.File
		case tar.TypeDir:
			m.kind = tree.Dir
		case tar.TypeSymlink:
			m.kind = tree.Link
		case tar.TypeLink:
			m.kind, m.hard = tree.File, true
		case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
			m.kind = tree.Special
		case tar.TypeXGlobalHeader:
			continue // comments, as `git archive` writes them
		default:
			return u.refuse(h.Name, "is of the unknown kind %q", h.Typeflag)
		}
		if err := u.member(m, t); err != nil {
			return err
		}
	}
	// To the end, so that the checksum of the whole is looked at.
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxTrailing+1))
	if err == nil && n > maxTrailing {
		return u.refuse("its end", "is followed by more than padding")
	}
	return err
}

// listReader is a file whose first reads are bounded: a zip file's list of contents
// becomes many objects in memory.
type listReader struct {
	f    *os.File
	left int64
}

func (b *listReader) ReadAt(p []byte, at int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errors.New("its list of contents is too long")
	}
	return b.f.ReadAt(p, at)
}

func (u *unpacking) zip(ctx context.Context, f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	b := &listReader{f, maxDirectory}
	z, err := zip.NewReader(b, st.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // each name is judged below
		return err
	}
	b.left = maxUsage
	for _, zf := range z.File {
		if err := u.zipMember(ctx, zf); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacking) zipMember(ctx context.Context, zf *zip.File) error {
	if zf.Flags&1 != 0 {
		return u.refuse(zf.Name, "is encrypted")
	}
	if strings.Contains(zf.Name, `\`) {
		return u.refuse(zf.Name, "has a backslash in its name, which some programs take for a slash")
	}
	if zf.UncompressedSize64 > maxUnpacked {
		return u.full(zf.Name)
	}
	mode := zf.Mode()
	m := member{name: zf.Name, size: int64(zf.UncompressedSize64), mode: uint32(mode.Perm())} //nolint:gosec // bounded above
	m.like.MtimeS, m.like.MtimeN = zf.Modified.Unix(), uint32(zf.Modified.Nanosecond())       //nolint:gosec // below 1e9
	if mode&(os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != 0 {
		m.mode |= 0o4000 // only to be told
	}
	switch {
	case mode.IsDir():
		m.kind, m.size = tree.Dir, 0
	case mode.IsRegular():
		m.kind = tree.File
		if m.mode == 0 && zf.CreatorVersion>>8 != 3 {
			m.mode = 0o644 // made where there are no modes
		}
	case mode&os.ModeSymlink != 0:
		m.kind = tree.Link
	}
	r, err := zf.Open()
	if err != nil {
		return u.refuse(zf.Name, "cannot be unpacked: %v", err)
	}
	defer r.Close()
	in := cancelable{ctx, r}
	if m.kind == tree.Link {
		b, err := io.ReadAll(io.LimitReader(in, maxTarget+1))
		if err != nil {
			return err
		}
		m.target, m.size = string(b), 0
	}
	if err := u.member(m, in); err != nil {
		return err
	}
	if m.kind == tree.File && !u.skipped {
		// The checksum is looked at where the content ends.
		if n, err := io.Copy(io.Discard, io.LimitReader(in, 1)); err != nil || n > 0 {
			return u.refuse(zf.Name, "does not have the content that it is said to have")
		}
	}
	return nil
}
