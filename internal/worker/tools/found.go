//go:build linux

package tools

import (
	"encoding/json"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// FoundMost bounds one piece of what was found, in bytes.
const FoundMost = 8 << 10

// foundRoom is what of a piece its files may take, beside the path.
const foundRoom = FoundMost - 256

// found tells of a part of a result, in pieces.
func (c *Call) found(dir string, part any) {
	switch r := part.(type) {
	case *contract.GrepResult:
		searched := r.Searched
		c.pieces(dir, len(r.Files), func(i int, short bool) any {
			f := r.Files[i]
			if short {
				f.Lines = nil // they are in the result
			}
			return f
		}, func(from, to int, short bool) any {
			p := contract.GrepResult{Path: dir, Files: append([]contract.GrepFile(nil), r.Files[from:to]...), Searched: searched}
			searched = 0
			for i := range p.Files {
				p.Matches += p.Files[i].Count
				if short {
					p.Files[i].Lines = nil
				}
			}
			return p
		})
	case *contract.GlobResult:
		c.pieces(dir, len(r.Files), func(i int, _ bool) any { return r.Files[i] }, func(from, to int, _ bool) any {
			return contract.GlobResult{Path: dir, Files: r.Files[from:to]}
		})
	}
}

// pieces cuts n files into pieces that fit. one is a file as it is written, whole
// a piece of some. A file that does not fit alone is told of without its lines.
func (c *Call) pieces(dir string, n int, one func(i int, short bool) any, whole func(from, to int, short bool) any) {
	room := foundRoom - 6*len(dir) // JSON may write a byte as six
	tell := func(from, to int, short bool) {
		if from == to || c.Found == nil {
			return
		}
		b, err := json.Marshal(whole(from, to, short))
		if err == nil && len(b) <= FoundMost && !c.Found(b) {
			c.Found = nil // enough
		}
	}
	from, size := 0, 0
	for i := 0; i < n && c.Found != nil; i++ {
		b, err := json.Marshal(one(i, false))
		if err != nil {
			return
		}
		if size+len(b)+1 > room {
			tell(from, i, false)
			from, size = i, 0
		}
		if len(b)+1 > room {
			tell(i, i+1, true)
			from = i + 1
			continue
		}
		size += len(b) + 1
	}
	tell(from, n, false)
}
