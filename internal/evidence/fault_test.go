//go:build faults

package evidence

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/sys"
)

// Death and failure at every named step of an append: go test -tags faults.
func TestFaultPoints(t *testing.T) {
	if dir := os.Getenv("EVIDENCE_TEST_DIR"); dir != "" {
		l := reopen(t, dir)
		_, err := l.Append(t.Context(), CallIntent, host, nil)
		if !errors.Is(err, sys.ErrFault) && !errors.Is(err, ErrFailed) {
			t.Fatalf("the injected failure was lost: %v", err)
		}
		return
	}
	n := 0
	for _, p := range sys.FaultPoints() {
		if !strings.HasPrefix(p, "evidence.") {
			continue
		}
		n++
		for _, action := range []string{"kill", "error"} {
			l, dir := newLog(t)
			add(t, l, 2)
			head := l.Head()
			_ = l.Close()
			cmd := exec.Command(os.Args[0], "-test.run=^TestFaultPoints$")
			cmd.Env = append(os.Environ(), "EVIDENCE_TEST_DIR="+dir, "CAISSON_FAULT="+p+":"+action)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (action == "error") {
				t.Fatalf("%s %s: %v\n%s", p, action, err, out)
			}
			if h, err := Verify(dir, head); err != nil || h.Seq > 3 {
				t.Fatalf("%s %s: %v %v", p, action, h, err)
			}
			l = reopen(t, dir)
			add(t, l, 1)
			if _, err := Verify(filepath.Clean(dir), l.Head()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n < 3 {
		t.Fatalf("only %d fault points", n)
	}
}
