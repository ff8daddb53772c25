package boundary

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// TestBeats has a call that takes long tell so often enough for every client.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begun := time.Now()
		k := &toolCall{tool: "shell", o: door.ToolOptions{Progress: func(string) { at = append(at, time.Since(begun)) }}}
		stop := k.beats("has been running")
		time.Sleep(65 * time.Second)
		stop()
		time.Sleep(time.Minute)
		last := time.Duration(0)
		for _, d := range append(at, 65*time.Second) {
			if d-last > 20*time.Second {
				t.Errorf("silence from %s to %s", last, d)
			}
			last = d
		}
		if len(at) > 7 {
			t.Errorf("told %d times, after its end too", len(at))
		}
	})
}

// TestApplied is held against what an edit says it is.
func TestApplied(t *testing.T) {
	for _, c := range []struct {
		text string
		e    contract.Edit
		want string
		ok   bool
	}{
		{"a b a", contract.Edit{Old: "b", New: "c"}, "a c a", true},
		{"a b a", contract.Edit{Old: "a", New: "c"}, "a b a", false},
		{"a b a", contract.Edit{Old: "a", New: "c", All: true}, "c b c", true},
		{"a b a", contract.Edit{Old: "a", New: "c", Occurrence: 2}, "a b c", true},
		{"a b a", contract.Edit{Old: "a", New: "c", Occurrence: 1}, "c b a", true},
		{"a b a", contract.Edit{Old: "a", New: "c", Occurrence: 3}, "a b a", false},
		{"a b a", contract.Edit{Old: "x", New: "c"}, "a b a", false},
		{"aaa", contract.Edit{Old: "aa", New: "b"}, "ba", true},
	} {
		if got, ok := applied(c.text, c.e); got != c.want || ok != c.ok {
			t.Errorf("%q, %+v: %q %v", c.text, c.e, got, ok)
		}
	}
}

func TestArtifactName(t *testing.T) {
	for path, want := range map[string]string{"a.txt": "1-a.txt", "x/-rf": "1-rf", "x/.hidden": "1-hidden", "a b;\n$(c)": "1-a_b____c_", "..": "1-", "ä": "1-_"} {
		if got := artifactName(1, path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
