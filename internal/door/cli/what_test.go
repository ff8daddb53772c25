package cli

import (
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestWhatIsOneLine: git's advice below its error is for show, not for a table.
func TestWhatIsOneLine(t *testing.T) {
	for problem, want := range map[string]string{
		"git update-ref: File exists.\n\nAnother git process seems to be running": "git update-ref: File exists. …",
		"the disk\x1b[31m is full": `the disk\x1b[31m is full`,
	} {
		if got := what(&task.View{Problem: problem}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
