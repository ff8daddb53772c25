package verify

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/task"
)

// TestWrite writes a report, reads it as evidence, and changes it.
func TestWrite(t *testing.T) {
	all := &task.VerifyAll{Reports: []task.VerifyReport{
		{Schema: Schema, Target: task.VerifyTarget{Kind: "backend", Name: "linux"}, Verdict: task.VerifyBroken,
			Probes: []task.VerifyProbe{{ID: "P01", Result: task.VerifyHeld}, {ID: "P41", Result: task.VerifyBroken, Broken: []string{"connect"}}}},
		{Schema: Schema, Verdict: task.VerifyNotTried, Why: "there is none"},
	}}
	dir := t.TempDir()
	path := filepath.Join(dir, evidence.FileName)
	head, err := Write(path, all)
	if err != nil {
		t.Fatal(err)
	}
	read := func() (types []evidence.Type, last string, err error) {
		for e, err := range evidence.Read(dir, 1) {
			if err != nil {
				return types, last, err
			}
			types = append(types, e.Type)
		}
		whole, err := evidence.Verify(dir, evidence.Head{})
		return types, whole.Hash, err
	}
	types, last, err := read()
	if err != nil || last != head || len(types) != 6 || types[0] != evidence.VerifyBegan || types[2] != evidence.VerifyProbe || types[3] != evidence.VerifyEnded {
		t.Errorf("%v, head %s and %s, %v", types, head, last, err)
	}
	if left, _ := filepath.Glob(dir + "/.caisson-report-*"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if _, err := Write(path, all); task.CodeOf(err) != task.CodeConflict {
		t.Errorf("over a file that is there: %v", err)
	}
	if _, err := Write(filepath.Join(dir, "none", "x"), all); task.CodeOf(err) != task.CodeEvidence {
		t.Errorf("into no folder: %v", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		if data[i] == '4' && data[i-1] == 'P' { // P41 becomes P01
			data[i] = '0'
			break
		}
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(); !errors.Is(err, evidence.ErrAltered) {
		t.Error("a changed report verifies")
	}
}
