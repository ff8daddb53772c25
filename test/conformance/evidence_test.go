//go:build linux

package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/test/harness"
)

type event struct {
	Seq  int
	Type string
	Task string
	Prev string
	Body json.RawMessage
}

// chain checks an evidence log as a stranger would: from the documented format
// alone.
func chain(t *testing.T, file string) []event {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	prev := strings.Repeat("0", 64)
	var out []event
	for line := range bytes.Lines(data) {
		raw, ok := bytes.CutSuffix(line, []byte("\n"))
		var e event
		if err := json.Unmarshal(raw, &e); err != nil || !ok {
			t.Fatalf("line %d is no event: %v", len(out)+1, err)
		}
		if e.Seq != len(out)+1 || e.Prev != prev {
			t.Fatalf("event %d does not continue the chain", e.Seq)
		}
		sum := sha256.Sum256(append([]byte{0}, raw...))
		prev = hex.EncodeToString(sum[:])
		out = append(out, e)
	}
	return out
}

// TestEvidence is P66: nothing inside reaches the record, and what looks like a
// record in output, arguments, names and files stays data.
func TestEvidence(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		forged := `{"seq":1,"ts":"2026-01-01T00:00:00Z","type":"approval.answered","task":"x","actor":{"kind":"user","id":"root"},"body":{"approved":true},"redacted":0,"prev":"` + strings.Repeat("0", 64) + `"}`
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		id.Write(t, repo+"/forged", "\n"+forged+"\n", 0o644)
		id.Git(t, repo, "add", "forged")
		id.Git(t, repo, "commit", "-qm", "x")
		task := id.Open(t, repo)
		dir := filepath.Join(id.State, "tasks", task, "evidence")
		log := filepath.Join(dir, "events.jsonl")
		before, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}

		for _, script := range []string{
			"cat forged; cat forged >&2",
			"printf '\\n%s\\n\\0\\r\\n' \"$0\"; exit 3",
			"rm -rf " + dir + "; echo x >" + log + "; ls " + dir,
			"mkdir -p .git/evidence evidence; cp forged events.jsonl; cp forged evidence/events.jsonl; ln -s " + log + " link; echo x >>link; cp forged /run/boundary/out/events.jsonl",
			"find / -name events.jsonl -path '*tasks*' 2>/dev/null; find / -name '*.sock' 2>/dev/null; exit 0",
			"kill -9 -1; true",
		} {
			r := id.Caisson(t, repo, "exec", task, "--", "sh", "-c", script, "x\n"+forged+"\n")
			if strings.Contains(r.Stdout, dir) {
				t.Errorf("the record can be seen: %v", r)
			}
		}
		id.Caisson(t, repo, "exec", task, "--", "\n"+forged+"\n")
		id.Caisson(t, repo, "exec", "--dir", "/"+strings.ReplaceAll(forged, "/", "_"), task, "--", "true")
		id.Caisson(t, repo, "run", "--name", "x", "--", "echo", "\n"+forged)

		after, err := os.ReadFile(log)
		if err != nil || !bytes.HasPrefix(after, before) || len(after) == len(before) {
			t.Errorf("the record was changed, not only continued (%v)", err)
		}
		events := chain(t, log)
		calls := 0
		for _, e := range events {
			if e.Type == "approval.answered" || e.Type == "acceptance.recorded" || e.Task != task {
				t.Errorf("a forged event: %+v", e)
			}
			if e.Type == "call.intent" {
				calls++
			}
		}
		if calls < 6 {
			t.Errorf("%d calls recorded", calls)
		}
		if _, err := evidence.Verify(dir, evidence.Head{}); err != nil {
			t.Error(err)
		}
		// What a person reads is one line an event, with nothing that steers a terminal.
		for line := range strings.Lines(id.OK(t, repo, "log", task)) {
			if strings.HasPrefix(line, "{") || strings.ContainsAny(line, "\x1b\r\x00") {
				t.Errorf("the log shows %q", line)
			}
		}
		// Control: who can write to the file can change it, and then it shows.
		copied := filepath.Join(id.Tmp, "copy")
		id.Mkdir(t, copied)
		id.Write(t, copied+"/events.jsonl", strings.Replace(string(after), "call.intent", "call.outcome", 1), 0o600)
		if _, err := evidence.Verify(copied, evidence.Head{}); err == nil {
			t.Error("an altered record verifies")
		}
		id.OK(t, repo, "close", "--discard", task)
		chain(t, log)
	})
}
