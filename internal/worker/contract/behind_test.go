package contract

import (
	"strings"
	"testing"
)

// TestStaysBehind: what cannot work in a boundary is refused by name, and no
// tool of the contract is taken for it.
func TestStaysBehind(t *testing.T) {
	for name, feature := range map[string]string{
		"checkpoint": "checkpoints", "Rewind": "checkpoints", "mcp__ide__getDiagnostics": "editor's state", "openDiff": "diffs", "open_diff": "diffs", "restore-checkpoint": "checkpoints",
	} {
		_, _, err := Decode(name, nil)
		f, ok := err.(*Failure)
		if !ok || f.Code != NotFound || !strings.Contains(f.Msg, "not carried into a task") || !strings.Contains(f.Msg, feature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, tool := range Tools {
		if why := StaysBehind(tool.Name); why != "" {
			t.Errorf("%s: %s", tool.Name, why)
		}
	}
	if why := StaysBehind("read_files"); why != "" {
		t.Error(why)
	}
}
