//go:build linux

package tools

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Encodings, as results name them. Latin-1 is what bytes are taken for that are
// no UTF-8: each byte is a character then, so that what is not touched stays as
// it was. UTF-16 counts only with its mark.
const (
	encUTF8    = "utf-8"
	encUTF16LE = "utf-16le"
	encUTF16BE = "utf-16be"
	encLatin1  = "latin-1"
)

// Newline styles, as results name them.
const (
	nlNone  = "none"
	nlLF    = "lf"
	nlCRLF  = "crlf"
	nlCR    = "cr"
	nlMixed = "mixed"
)

var (
	bomUTF8    = []byte("\xef\xbb\xbf")
	bomUTF16LE = []byte("\xff\xfe")
	bomUTF16BE = []byte("\xfe\xff")
)

// sniffLen is how much of a file's beginning decides whether it is a text.
const sniffLen = 8000

// encodingOf looks at a beginning. mark is the length of a byte order mark.
// Without one it says UTF-8 of anything that may be a text and "" of what is
// none; whether it is UTF-8 only the whole can tell.
func encodingOf(head []byte) (enc string, mark int) {
	switch {
	case bytes.HasPrefix(head, bomUTF8):
		return encUTF8, 3
	case bytes.HasPrefix(head, bomUTF16LE) && !bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")): // not UTF-32
		return encUTF16LE, 2
	case bytes.HasPrefix(head, bomUTF16BE):
		return encUTF16BE, 2
	case bytes.IndexByte(head[:min(len(head), sniffLen)], 0) >= 0:
		return "", 0
	}
	return encUTF8, 0
}

// newlines counts line ends of a text that comes in pieces.
type newlines struct {
	lf, cr, crlf int64 // of lf and cr each also those in crlf
	last         byte
}

func (n *newlines) add(p []byte) {
	if len(p) == 0 {
		return
	}
	n.lf += int64(bytes.Count(p, []byte{'\n'}))
	if crs := bytes.Count(p, []byte{'\r'}); crs > 0 {
		n.cr += int64(crs)
		n.crlf += int64(bytes.Count(p, []byte("\r\n")))
	}
	if n.last == '\r' && p[0] == '\n' {
		n.crlf++
	}
	n.last = p[len(p)-1]
}

func (n *newlines) style() string {
	switch lf, cr := n.lf-n.crlf, n.cr-n.crlf; {
	case n.lf+n.cr == 0:
		return nlNone
	case n.cr == 0:
		return nlLF
	case lf+cr == 0:
		return nlCRLF
	case n.lf == 0:
		return nlCR
	}
	return nlMixed
}

// text is a whole text as UTF-8, with what is needed to write it back.
type text struct {
	body    []byte // without the mark
	enc     string
	bom     bool
	newline string
}

// decodeText reads a whole file's bytes. body may share raw.
func decodeText(raw []byte, shown string) (*text, *contract.Failure) {
	enc, mark := encodingOf(raw)
	t := &text{enc: enc, bom: mark > 0, body: raw[mark:]}
	switch enc {
	case "":
		return nil, contract.Fail(contract.Binary, "%s holds NUL bytes and is no text", shown)
	case encUTF16LE, encUTF16BE:
		body, ok := fromUTF16(t.body, enc == encUTF16BE)
		if !ok {
			return nil, contract.Fail(contract.Encoding, "%s has the mark of UTF-16 and is none", shown)
		}
		t.body = body
	default:
		if !utf8.Valid(t.body) {
			// The mark was no mark, then: it stays part of the text.
			t.enc, t.bom, t.body = encLatin1, false, fromLatin1(raw)
		}
	}
	var n newlines
	n.add(t.body)
	t.newline = n.style()
	return t, nil
}

// encode renders body as the file has it.
func (t *text) encode(shown string) ([]byte, *contract.Failure) {
	switch t.enc {
	case encUTF16LE, encUTF16BE:
		return toUTF16(t.body, t.enc == encUTF16BE), nil
	case encLatin1:
		out, bad := toLatin1(t.body)
		if bad != 0 {
			return nil, contract.Fail(contract.Encoding, "%s is not UTF-8 and is kept as Latin-1, which has no %q; nothing was written", shown, bad)
		}
		return out, nil
	}
	if t.bom {
		return append(bytes.Clone(bomUTF8), t.body...), nil
	}
	return t.body, nil
}

// fromUTF16 decodes what follows the mark; false where it is no UTF-16.
func fromUTF16(b []byte, big bool) ([]byte, bool) {
	if len(b)%2 != 0 {
		return nil, false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if big {
		order = binary.BigEndian
	}
	out := make([]byte, 0, len(b)/2+len(b)/8)
	for i := 0; i < len(b); i += 2 {
		r := rune(order.Uint16(b[i:]))
		if utf16.IsSurrogate(r) {
			if i+4 > len(b) {
				return nil, false
			}
			if r = utf16.DecodeRune(r, rune(order.Uint16(b[i+2:]))); r == utf8.RuneError {
				return nil, false
			}
			i += 2
		}
		out = utf8.AppendRune(out, r)
	}
	return out, true
}

// toUTF16 encodes with the mark.
func toUTF16(b []byte, big bool) []byte {
	out := make([]byte, 0, 2*len(b)+2)
	put := func(u uint16) {
		if big {
			out = append(out, byte(u>>8), byte(u))
		} else {
			out = append(out, byte(u), byte(u>>8))
		}
	}
	put(0xfeff)
	for _, r := range string(b) {
		if r1, r2 := utf16.EncodeRune(r); r1 != utf8.RuneError {
			put(uint16(r1))
			put(uint16(r2))
		} else {
			put(uint16(r))
		}
	}
	return out
}

func fromLatin1(b []byte) []byte {
	out := make([]byte, 0, len(b)+len(b)/8)
	for _, c := range b {
		out = utf8.AppendRune(out, rune(c))
	}
	return out
}

// toLatin1 returns the first character that Latin-1 does not have, if any.
func toLatin1(b []byte) (out []byte, bad rune) {
	out = make([]byte, 0, len(b))
	for _, r := range string(b) {
		if r > 0xff {
			return nil, r
		}
		out = append(out, byte(r))
	}
	return out, 0
}

// kinds are files known by their beginning.
var kinds = []struct {
	magic, mime string
	image       bool
}{
	{"\x89PNG\r\n\x1a\n", "image/png", true},
	{"\xff\xd8\xff", "image/jpeg", true},
	{"GIF87a", "image/gif", true},
	{"GIF89a", "image/gif", true},
	{"BM", "image/bmp", true}, // and NUL bytes, as no text has
	{"II*\x00", "image/tiff", true},
	{"MM\x00*", "image/tiff", true},
	{"\x00\x00\x01\x00", "image/x-icon", true},
	{"%PDF-", "application/pdf", false},
	{"PK\x03\x04", "application/zip", false},
	{"\x1f\x8b", "application/gzip", false},
	{"\x28\xb5\x2f\xfd", "application/zstd", false},
	{"\xfd7zXZ\x00", "application/x-xz", false},
	{"BZh", "application/x-bzip2", false},
	{"\x7fELF", "application/x-elf", false},
	{"SQLite format 3\x00", "application/vnd.sqlite3", false},
	{"\x00asm", "application/wasm", false},
}

// mimeOf says what a file is by its beginning: text is false for what must not
// be shown as one.
func mimeOf(head []byte) (mime string, image, text bool) {
	enc, _ := encodingOf(head)
	if len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP" {
		return "image/webp", true, false
	}
	if len(head) >= 12 && string(head[4:8]) == "ftyp" && (string(head[8:12]) == "avif" || string(head[8:12]) == "heic") {
		return "image/" + string(head[8:12]), true, false
	}
	for _, k := range kinds {
		if bytes.HasPrefix(head, []byte(k.magic)) && (len(k.magic) > 2 && k.magic != "BZh" || enc == "" || k.magic == "\x1f\x8b") {
			return k.mime, k.image, false
		}
	}
	if enc == "" {
		return "application/octet-stream", false, false
	}
	if t := bytes.TrimLeft(head[:min(len(head), 512)], "\xef\xbb\xbf \t\r\n"); bytes.HasPrefix(t, []byte("<svg")) {
		return "image/svg+xml", false, true
	}
	return "text/plain", false, true
}
