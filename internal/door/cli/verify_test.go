package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestRenderVerify: every result has its word, what does not hold says why, and
// nothing that came out of a boundary steers the terminal.
func TestRenderVerify(t *testing.T) {
	evil := "a\x1b[2Jb\u202ec\n"
	r := &task.VerifyReport{
		Version: evil, Platform: evil, User: "root", Target: task.VerifyTarget{Kind: "command", Name: evil}, Verdict: task.VerifyBroken,
		Levels: []task.Level{{Axis: task.FS, Promised: 2, Proved: 2}},
		Probes: []task.VerifyProbe{
			{ID: "P01", Axis: task.FS, Text: "read", Result: task.VerifyHeld, Attempts: 9, Refused: 9, Shown: 7},
			{ID: "P16", Axis: task.FS, Text: "connect", Result: task.VerifyBroken, Attempts: 7, Broken: []string{evil, "2", "3", "4", "5", "6", "7"}, Seen: []string{evil}},
			{ID: "P14", Axis: task.PRC, Text: "write", Result: task.VerifyOpen, Attempts: 2, Open: []string{"x"}, Why: "PRC 3 would rule them out" + evil},
			{ID: "P23", Axis: task.KRN, Text: "use", Result: task.VerifyNotShown, Attempts: 1, Refused: 1, Why: "this kernel has none"},
			{ID: "P54", Axis: task.RES, Text: "take", Result: task.VerifyNotTried, Why: "no limits"},
		},
		Questions: []task.VerifyQuestion{{Question: "who owns the policy", Answer: []string{evil}}}, NotTried: []string{evil},
	}
	for _, verbose := range []bool{false, true} {
		var b bytes.Buffer
		a := &app{ui: &ui{verbose: verbose, utf8: true}}
		if err := a.renderVerify(&b, r); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		for _, want := range []string{"FS  promised 2, proved 2", "held       P01", "9 attempts refused, 7 of them work outside", "BROKEN     P16", "7 of 7 attempts", "the host saw reached:", "open       P14", "PRC 3 would", "not shown  P23", "not tried  P54",
			"1 held, 1 broken, 1 open, 1 not shown, 1 not tried", " 1. who owns the policy"} {
			if !strings.Contains(text, want) {
				t.Errorf("verbose %v: no %q in:\n%s", verbose, want, text)
			}
		}
		if strings.ContainsAny(text, "\x1b\u202e\r\x00") {
			t.Errorf("verbose %v: %q", verbose, text)
		}
		if strings.Contains(text, "and 2 more") == verbose {
			t.Errorf("verbose %v: what worked:\n%s", verbose, text)
		}
	}
	var b bytes.Buffer
	if err := (&app{ui: &ui{}}).renderVerify(&b, &task.VerifyReport{Target: task.VerifyTarget{Kind: "backend", Name: "vm"}, Why: "there is none" + evil}); err != nil || !strings.Contains(b.String(), "no boundary was had, so nothing was attacked: there is none") {
		t.Errorf("%v: %q", err, b.String())
	}
}
