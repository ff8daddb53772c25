package verify

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Write writes reports to a new file in the format of the evidence: a line for the
// beginning of each, one for each property, one for its end, each naming the hash of
// the one before. It returns the hash of the last line.
func Write(path string, all *task.VerifyAll) (head string, err error) {
	const op = "verify.report"
	dir, err := os.MkdirTemp(filepath.Dir(path), ".caisson-report-")
	if err != nil {
		return "", task.Errorf(task.CodeEvidence, op, "no report can be written beside %s: %w", path, err)
	}
	defer os.RemoveAll(dir)
	l, err := evidence.Open(dir, task.NewID(), nil)
	if err != nil {
		return "", err
	}
	ctx, by := context.Background(), evidence.Actor{Kind: "caisson", ID: "verify"}
	add := func(t evidence.Type, body any) {
		if err == nil {
			_, err = l.AppendBulk(ctx, t, by, body)
		}
	}
	for _, r := range all.Reports {
		begin := r
		begin.Probes, begin.Questions = []task.VerifyProbe{}, []task.VerifyQuestion{}
		add(evidence.VerifyBegan, begin)
		for _, p := range r.Probes {
			add(evidence.VerifyProbe, p)
		}
		add(evidence.VerifyEnded, map[string]any{"verdict": r.Verdict, "ended": r.Ended, "questions": r.Questions})
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return "", err
	}
	file := filepath.Join(dir, evidence.FileName)
	whole, err := evidence.Verify(dir, evidence.Head{})
	if err != nil {
		return "", err
	}
	if err = os.Chmod(file, 0o644); err == nil {
		err = os.Link(file, path) // never over something that is there
	}
	if errors.Is(err, fs.ErrExist) {
		return "", task.Errorf(task.CodeConflict, op, "%s is there already", path).WithHint("name a file that is not there yet")
	}
	if err == nil {
		err = sys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return "", task.Errorf(task.CodeEvidence, op, "the report could not be written to %s: %w", path, err)
	}
	return whole.Hash, nil
}
