package source

import (
	"bytes"
	"os"
	"path/filepath"
)

// recodes reports whether an attribute file names an encoding for files of the
// checkout that index describes. What cannot be read counts as one that does.
func (p *preparation) recodes(index string) bool {
	encoding := []byte("working-tree-encoding")
	if bytes.Contains(p.r.attrs, encoding) {
		return true
	}
	raw, err := os.ReadFile(index)
	if err != nil || !bytes.Contains(raw, []byte(".gitattributes\x00")) {
		return err != nil
	}
	entries, err := parseIndex(raw, p.r.format)
	for i := range entries {
		e := &entries[i]
		if filepath.Base(e.path) != ".gitattributes" || e.mode&0o170000 != 0o100000 {
			continue
		}
		b, err := readWithin(p.ws.source(), e.path, 100<<20) // git reads no larger one
		if err != nil || bytes.Contains(b, encoding) {
			return true
		}
	}
	return err != nil
}
