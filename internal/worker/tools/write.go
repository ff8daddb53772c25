//go:build linux

package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// writeFile does write_file.
func writeFile(ctx context.Context, c *Call, args any) (any, *contract.Failure) {
	a := args.(*contract.WriteFileArgs)
	content := []byte(a.Content)
	if a.Encoding == "base64" {
		b, err := base64.StdEncoding.Strict().DecodeString(a.Content)
		if err != nil {
			return nil, contract.Fail(contract.BadArgs, "content is no base64")
		}
		content = b
	}
	if c.In >= 0 && len(content) > 0 {
		return nil, contract.Fail(contract.BadArgs, "content is given twice")
	}
	s, fail := c.Root.spot(a.Path, a.ExpectSHA256 == "")
	if fail != nil {
		return nil, fail
	}
	defer s.close()
	if a.CreateOnly && s.old != nil {
		return nil, contract.Fail(contract.Exists, "%s exists", s.shown)
	}
	free := budget.take(ctx, 3*int64(len(content)))
	defer free()
	before, was, fail := s.before(ctx, a.ExpectSHA256 != "")
	if fail != nil {
		return nil, fail
	}
	if fail := s.expect(a.ExpectSHA256, before); fail != nil {
		return nil, fail
	}
	res := &contract.WriteFileResult{Path: s.shown, Created: s.old == nil, Before: before, OtherNames: s.otherNames()}
	mode := s.mode(a.Executable)
	if c.In >= 0 {
		h := sha256.New()
		fail = s.replace(mode, func(fd int) *contract.Failure {
			return copyIn(ctx, fd, c.In, s.shown, func(p []byte) { h.Write(p); res.Size += int64(len(p)) })
		})
		res.SHA256 = sum(h)
	} else {
		if a.Encoding != "base64" && a.Newline != "exact" && was != nil {
			content = keepStyle(content, was)
		}
		if t, fail := decodeText(content, s.shown); fail == nil {
			res.Encoding, res.Newline = t.enc, t.newline
		}
		res.Size, res.SHA256 = int64(len(content)), digestOf(content)
		fail = s.replace(mode, bytesSource(ctx, content, s.shown))
	}
	if fail != nil {
		return nil, fail
	}
	res.Mode = modeString(mode)
	return res, nil
}

// before reads what is there: its digest where it is not large or must be
// known, and the text, if it is one.
func (s *spot) before(ctx context.Context, must bool) (digest string, was *text, fail *contract.Failure) {
	switch {
	case s.old == nil:
		return "", nil, nil
	case s.old.Size() <= contract.MaxContent:
		raw, fail := s.old.whole(ctx, nil, contract.MaxContent)
		if fail != nil {
			return "", nil, fail
		}
		if len(raw) > 0 {
			was, _ = decodeText(raw, s.shown)
		}
		return digestOf(raw), was, nil
	case must:
		h := sha256.New()
		fail := s.old.rest(ctx, nil, func(p []byte) bool { h.Write(p); return true })
		return sum(h), nil, fail
	}
	return "", nil, nil
}

// keepStyle writes a new text as the one before was: its line ends where all of
// them were CRLF and the new text has none of its own, its encoding where that
// has every character, its mark.
func keepStyle(content []byte, was *text) []byte {
	t := *was
	t.body = content
	if bytes.HasPrefix(content, bomUTF8) && was.bom {
		t.body = content[len(bomUTF8):]
	}
	if was.newline == nlCRLF && bytes.IndexByte(t.body, '\r') < 0 {
		t.body = bytes.ReplaceAll(t.body, []byte("\n"), []byte("\r\n"))
	}
	if out, fail := t.encode(""); fail == nil {
		return out
	}
	return t.body
}

// copyIn writes a descriptor's content from its beginning.
func copyIn(ctx context.Context, to, from int, shown string, see func([]byte)) *contract.Failure {
	buf := make([]byte, 4*chunk)
	for off := int64(0); ; {
		n, err := unix.Pread(from, buf, off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return contract.Fail(contract.BadArgs, "the content that came with the call cannot be read: %v", err)
		case n == 0:
			return nil
		}
		see(buf[:n])
		if fail := writeAll(ctx, to, buf[:n], shown); fail != nil {
			return fail
		}
		off += int64(n)
	}
}
