package egress

import (
	"bufio"
	"errors"
	"io"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the head of one request.
const (
	maxHead   = 64 << 10
	maxFields = 200
)

type field struct{ name, value string }

// head is the head of one HTTP/1 request. It is read by this program and not by
// the standard library because a proxy must refuse what a server may repair: two
// lengths, two hosts, folded lines, a length beside chunks. Whatever is sent on
// is written anew from this value.
type head struct {
	method, target string
	minor          int // of HTTP/1; 2 for HTTP/2
	fields         []field
	host           string
	length         int64 // of the body
	chunked        bool
	last           bool // the client wants nothing more after it
	upgrade        bool // to a WebSocket
	trailers       bool // the client, of HTTP/2, wants trailers
}

// readHead reads a head. io.EOF says that the client ended before it; another
// error that is no refusal is the connection's.
func readHead(r *bufio.Reader) (*head, error) {
	left := maxHead
	line, err := readLine(r, &left)
	if err != nil {
		return nil, err
	}
	h := &head{}
	if err := h.requestLine(line); err != nil {
		return nil, err
	}
	for {
		line, err := readLine(r, &left)
		if err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		if len(h.fields) == maxFields {
			return nil, badDest("more than %d header fields", maxFields)
		}
		f, err := readField(line)
		if err != nil {
			return nil, err
		}
		h.fields = append(h.fields, f)
	}
	return h, h.check()
}

// readLine reads up to CR LF, and none of the two alone.
func readLine(r *bufio.Reader, left *int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if *left -= len(part); *left < 0 {
			return "", badDest("a head of more than %d bytes", maxHead)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			if err == io.EOF && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		break
	}
	s, ok := strings.CutSuffix(string(line), "\r\n")
	if !ok || strings.ContainsAny(s, "\r\n\x00") {
		return "", badDest("a line that does not end with CR LF")
	}
	return s, nil
}

func (h *head) requestLine(line string) error {
	method, rest, ok1 := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	switch {
	case !ok1 || !ok2 || !isMethod(method):
		return badDest("%s is no request line", quoted(line))
	case version == "HTTP/1.1":
		h.minor = 1
	case version != "HTTP/1.0":
		return badDest("%s is no version of HTTP that is offered", quoted(version))
	}
	h.method, h.target = method, target
	return nil
}

func isMethod(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// tokenMarks are what a field's name consists of beside letters and digits.
const tokenMarks = "!#$%&'*+-.^_`|~"

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte(tokenMarks, c) >= 0) {
			return false
		}
	}
	return s != ""
}

func readField(line string) (field, error) {
	// Of what is none only the beginning is said: the rest may be a secret.
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) { // a folded line begins with a space
		return field{}, badDest("%s begins no header field", quoted(name[:min(len(name), 32)]))
	}
	f := field{name, strings.Trim(value, " \t")}
	return f, f.check()
}

func (f field) check() error {
	for i := range len(f.value) {
		if c := f.value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return badDest("the header field %s has the character %q", f.name, c)
		}
	}
	return nil
}

// hop are the fields that end here.
var hop = []string{
	"connection", "proxy-connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-authentication-info",
	"te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
}

// framing are the fields that say where a request goes and ends.
var framing = []string{"host", "content-length", "transfer-encoding"}

// check takes the fields that this program itself goes by.
func (h *head) check() error {
	seen := map[string]bool{}
	var named []string // by Connection
	upgrade := ""
	for _, f := range h.fields {
		name := strings.ToLower(f.name)
		// Servers that hand fields on as variables take _ and - for the same.
		if plain := strings.ReplaceAll(name, "_", "-"); slices.Contains(framing, plain) {
			if plain != name || seen[name] {
				return badDest("the header field %s is there twice, or in a form of its own", f.name)
			}
			seen[name] = true
		}
		switch name {
		case "host":
			h.host = f.value
		case "content-length":
			n, err := strconv.ParseUint(f.value, 10, 63)
			if err != nil || strings.Trim(f.value, "0123456789") != "" {
				return badDest("%s is no length", quoted(f.value))
			}
			h.length = int64(n)
		case "transfer-encoding":
			if !strings.EqualFold(f.value, "chunked") || h.minor == 0 {
				return badDest("the transfer encoding %s is not offered", quoted(f.value))
			}
			h.chunked = true
		case "connection", "proxy-connection":
			for w := range strings.SplitSeq(f.value, ",") {
				named = append(named, strings.ToLower(strings.Trim(w, " \t")))
			}
		case "upgrade":
			upgrade = strings.ToLower(f.value)
		}
	}
	switch {
	case seen["content-length"] && h.chunked:
		return badDest("a length beside chunks")
	case h.minor == 1 && !seen["host"]:
		return badDest("no Host field")
	case slices.ContainsFunc(named, func(s string) bool { return slices.Contains(framing[:2], s) }):
		return badDest("the Connection field names a field that is needed")
	}
	h.last = h.minor == 0 && !slices.Contains(named, "keep-alive") || slices.Contains(named, "close")
	h.upgrade = h.minor == 1 && h.method == "GET" && upgrade == "websocket" && slices.Contains(named, "upgrade") && h.length == 0 && !h.chunked
	h.fields = slices.DeleteFunc(h.fields, func(f field) bool {
		name := strings.ToLower(f.name)
		return name == "host" || slices.Contains(hop, name) || slices.Contains(named, name)
	})
	return nil
}

// bodyOf is what follows the head: without its framing, and io.ErrUnexpectedEOF
// where it breaks off.
func (h *head) bodyOf(r *bufio.Reader) io.Reader {
	if h.chunked {
		return &chunks{Reader: httputil.NewChunkedReader(r), r: r}
	}
	return &whole{r, h.length}
}

// chunks are a body whose trailer is read and dropped.
type chunks struct {
	io.Reader
	r    *bufio.Reader
	over bool
}

func (c *chunks) Read(b []byte) (int, error) {
	if c.over {
		return 0, io.EOF
	}
	n, err := c.Reader.Read(b)
	if err == io.EOF {
		if err := skipTrailer(c.r); err == io.EOF {
			return n, io.ErrUnexpectedEOF
		} else if err != nil {
			return n, err
		}
		c.over = true
	}
	return n, err
}

// whole is a body of a known length.
type whole struct {
	r    io.Reader
	left int64
}

func (w *whole) Read(b []byte) (int, error) {
	if w.left <= 0 {
		return 0, io.EOF
	}
	n, err := w.r.Read(b[:min(int64(len(b)), w.left)])
	if w.left -= int64(n); err == io.EOF && w.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// body says whether there is one.
func (h *head) body() bool { return h.chunked || h.length > 0 }

// skipTrailer reads what follows the last chunk and drops it.
func skipTrailer(r *bufio.Reader) error {
	left := maxHead
	for {
		line, err := readLine(r, &left)
		if err != nil || line == "" {
			return err
		}
		if _, err := readField(line); err != nil {
			return err
		}
	}
}
