package source

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

// What git may be asked to compare. A task chooses sizes and numbers, and a file
// of zeros costs it nothing.
const (
	// maxPatchBlob is the largest file that a patch carries, in bytes: git holds
	// both sides and what it makes of them in memory at once.
	maxPatchBlob = 256 << 20
	// maxRenameWork bounds the search for renames with changes, in bytes that
	// are compared: each deleted file is compared with each added one. It is
	// about ten seconds.
	maxRenameWork = 10 << 30
	// diffBigFile is git's limit for comparing lines, not bytes.
	diffBigFile = "core.bigFileThreshold=16m"
)

// weight is what rendering a result would cost.
type weight struct {
	largest int64  // bytes of the largest changed file, on either side
	path    string // where it is
	renames bool   // the search for renames with changes is bearable
}

func (r *Result) weigh(ctx context.Context) (weight, error) {
	w := weight{renames: true}
	var wants []blobWant
	for i := range r.raw {
		c := &r.raw[i]
		if c.OldMode != 0 && c.OldMode != gitlink {
			wants = append(wants, blobWant{oid: c.oldOID, c: c, old: true})
		}
		if c.NewMode != 0 && c.NewMode != gitlink {
			wants = append(wants, blobWant{oid: c.newOID, c: c})
		}
	}
	if len(wants) == 0 {
		return w, nil
	}
	sizes, err := r.blobSizes(ctx, wants)
	if err != nil {
		return w, err
	}
	var gone, came struct{ n, bytes float64 }
	for i, want := range wants {
		size := max(sizes[i], 0)
		if size > w.largest {
			w.largest, w.path = size, string(want.c.Path)
		}
		switch want.c.Status {
		case 'D':
			gone.n++
			gone.bytes += float64(size)
		case 'A':
			came.n++
			came.bytes += float64(size)
		}
	}
	w.renames = gone.n*came.bytes+came.n*gone.bytes <= maxRenameWork
	return w, nil
}

// fitsPatch refuses a patch that git could not make in bounded memory.
func (r *Result) fitsPatch(ctx context.Context) error {
	w, err := r.weigh(ctx)
	if err != nil || w.largest <= maxPatchBlob {
		return err
	}
	return task.Errorf(task.CodeLimit, "source.export", "%s has %d MiB, and a patch holds files of up to %d", quote(w.path), w.largest>>20, maxPatchBlob>>20).
		WithHint("use `caisson export %s --bundle`, or --dir DIR", r.Task)
}
