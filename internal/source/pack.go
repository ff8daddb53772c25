package source

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's own names of objects, not a security measure
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"
)

// packer writes objects into one pack of a shadow repository. A folder without
// git is recorded this way without starting git at all: the bytes are read once,
// copied, hashed and packed, and no file is made for each of them.
type packer struct {
	dir  string // objects/pack
	f    *os.File
	w    *bufio.Writer
	at   int64
	crc  uint32
	fast *zlib.Writer
	raw  *zlib.Writer // for what does not become smaller
	have map[[20]byte]bool
	objs []packed
	buf  []byte
}

type packed struct {
	oid [20]byte
	crc uint32
	at  int64
}

// The kinds of objects, as a pack numbers them.
const (
	packTree = 2
	packBlob = 3
)

// packWhole is the size up to which a file is packed from memory, in bytes.
const packWhole = 1 << 20

// errSize says that a file did not have the size it was said to have.
var errSize = errors.New("the size changed while it was read")

func newPacker(shadow string) (*packer, error) {
	p := &packer{dir: shadow + "/objects/pack", have: map[[20]byte]bool{}}
	f, err := os.CreateTemp(p.dir, "tmp_pack_")
	if err != nil {
		return nil, err
	}
	p.f, p.w = f, bufio.NewWriterSize(f, 256<<10)
	p.fast, _ = zlib.NewWriterLevel(nil, flate.BestSpeed)
	p.raw, _ = zlib.NewWriterLevel(nil, flate.NoCompression)
	_, err = p.w.WriteString("PACK\x00\x00\x00\x02\x00\x00\x00\x00") // the count comes last
	p.at = 12
	return p, err
}

// Write appends to the pack.
func (p *packer) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.at += int64(n)
	p.crc = crc32.Update(p.crc, crc32.IEEETable, b[:n])
	return n, err
}

// head writes what stands before an object's bytes.
func (p *packer) head(kind byte, size int64) error {
	p.crc = 0
	c := kind<<4 | byte(size&15)
	size >>= 4
	var b []byte
	for size != 0 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
		size >>= 7
	}
	_, err := p.Write(append(b, c))
	return err
}

// compressor chooses by the beginning of the bytes: what is compressed already
// only costs time.
func (p *packer) compressor(sample []byte) *zlib.Writer {
	if len(sample) < 16<<10 {
		return p.fast
	}
	sample = sample[:16<<10]
	var out bytes.Buffer
	p.fast.Reset(&out)
	_, _ = p.fast.Write(sample)
	_ = p.fast.Close()
	if out.Len() > len(sample)*15/16 {
		return p.raw
	}
	return p.fast
}

var packKinds = map[byte]string{packTree: "tree", packBlob: "blob"}

// put adds an object and returns its name.
func (p *packer) put(kind byte, b []byte) (string, error) {
	h := sha1.New() //nolint:gosec // see above
	fmt.Fprintf(h, "%s %d\x00", packKinds[kind], len(b))
	h.Write(b)
	oid := [20]byte(h.Sum(nil))
	name := hex.EncodeToString(oid[:])
	if p.have[oid] {
		return name, nil
	}
	at := p.at
	err := p.head(kind, int64(len(b)))
	if err == nil {
		z := p.compressor(b)
		z.Reset(p)
		_, err = z.Write(b)
		if cerr := z.Close(); err == nil {
			err = cerr
		}
	}
	p.have[oid] = true
	p.objs = append(p.objs, packed{oid, p.crc, at})
	return name, err
}

// blob adds a file of exactly size bytes; another number of bytes is errSize.
func (p *packer) blob(size int64, r io.Reader) (string, error) {
	if size <= packWhole {
		if cap(p.buf) < packWhole+1 {
			p.buf = make([]byte, packWhole+1)
		}
		n, err := io.ReadFull(r, p.buf[:size+1])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return "", err
		}
		if int64(n) != size {
			return "", errSize
		}
		return p.put(packBlob, p.buf[:n])
	}
	at := p.at
	h := sha1.New() //nolint:gosec // see above
	fmt.Fprintf(h, "blob %d\x00", size)
	br := bufio.NewReaderSize(r, 256<<10)
	sample, _ := br.Peek(16 << 10)
	z := p.compressor(sample)
	if err := p.head(packBlob, size); err != nil {
		return "", err
	}
	z.Reset(p)
	n, err := io.Copy(io.MultiWriter(h, z), io.LimitReader(br, size+1))
	if cerr := z.Close(); err == nil {
		err = cerr
	}
	if err == nil && n != size {
		err = errSize
	}
	oid := [20]byte(h.Sum(nil))
	if err != nil || p.have[oid] {
		return hex.EncodeToString(oid[:]), errors.Join(err, p.back(at))
	}
	p.have[oid] = true
	p.objs = append(p.objs, packed{oid, p.crc, at})
	return hex.EncodeToString(oid[:]), nil
}

// back takes everything after at out again.
func (p *packer) back(at int64) error {
	if err := p.w.Flush(); err != nil {
		return err
	}
	if err := p.f.Truncate(at); err != nil {
		return err
	}
	_, err := p.f.Seek(at, io.SeekStart)
	p.at = at
	return err
}

// tree adds the trees of entries, which are sorted by path, and returns the
// name of the top-most.
func (p *packer) tree(entries []indexEntry) (string, error) {
	name, _, err := p.treeAt(entries, 0)
	return name, err
}

// treeAt makes the tree of the folder whose path is the first n bytes of the
// first entry, and returns how many entries are in it.
func (p *packer) treeAt(entries []indexEntry, n int) (string, int, error) {
	var b bytes.Buffer
	i := 0
	var prefix string
	if len(entries) > 0 {
		prefix = entries[0].path[:n]
	}
	for i < len(entries) && strings.HasPrefix(entries[i].path, prefix) {
		e := entries[i]
		rest := e.path[n:]
		slash := strings.IndexByte(rest, '/')
		oid, mode, took := e.oid, e.mode, 1
		if slash >= 0 {
			var err error
			if oid, took, err = p.treeAt(entries[i:], n+slash+1); err != nil {
				return "", 0, err
			}
			rest, mode = rest[:slash], 0o40000
		}
		raw, err := hex.DecodeString(oid)
		if err != nil {
			return "", 0, err
		}
		fmt.Fprintf(&b, "%o %s\x00%s", mode, rest, raw)
		i += took
	}
	oid, err := p.put(packTree, b.Bytes())
	return oid, i, err
}

// close writes what is still missing and puts pack and index into place.
func (p *packer) close() (err error) {
	defer func() {
		if cerr := p.f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = os.Remove(p.f.Name())
		}
	}()
	if err := p.w.Flush(); err != nil {
		return err
	}
	var count [4]byte
	binary.BigEndian.PutUint32(count[:], uint32(len(p.objs))) //nolint:gosec // far below
	if _, err := p.f.WriteAt(count[:], 8); err != nil {
		return err
	}
	h := sha1.New() //nolint:gosec // see above
	if _, err := io.Copy(h, io.NewSectionReader(p.f, 0, p.at)); err != nil {
		return err
	}
	sum := h.Sum(nil)
	if _, err := p.f.WriteAt(sum, p.at); err != nil {
		return err
	}
	base := p.dir + "/pack-" + hex.EncodeToString(sum)
	if err := os.WriteFile(base+".idx", p.index(sum), 0o444); err != nil { //nolint:gosec // private folder
		return err
	}
	return os.Rename(p.f.Name(), base+".pack")
}

// drop gives up what was written.
func (p *packer) drop() {
	p.f.Close()
	_ = os.Remove(p.f.Name())
}

// index renders the index of the pack, in git's version 2.
func (p *packer) index(sum []byte) []byte {
	slices.SortFunc(p.objs, func(a, b packed) int { return bytes.Compare(a.oid[:], b.oid[:]) })
	out := []byte("\xfftOc\x00\x00\x00\x02")
	u32 := func(n uint32) { out = binary.BigEndian.AppendUint32(out, n) }
	n := 0
	for first := range 256 {
		for n < len(p.objs) && int(p.objs[n].oid[0]) <= first {
			n++
		}
		u32(uint32(n)) //nolint:gosec // far below
	}
	for _, o := range p.objs {
		out = append(out, o.oid[:]...)
	}
	for _, o := range p.objs {
		u32(o.crc)
	}
	var far []int64
	for _, o := range p.objs {
		if o.at < 1<<31 {
			u32(uint32(o.at)) //nolint:gosec // below 2^31
			continue
		}
		u32(1<<31 | uint32(len(far))) //nolint:gosec // far below
		far = append(far, o.at)
	}
	for _, at := range far {
		out = binary.BigEndian.AppendUint64(out, uint64(at)) //nolint:gosec // not negative
	}
	out = append(out, sum...)
	h := sha1.Sum(out) //nolint:gosec // see above
	return append(out, h[:]...)
}
