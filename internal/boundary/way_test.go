package boundary

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/task"
)

// TestRecordIsBounded: what programs inside ask for outside does not fill the disk
// that the record lies on; a crossing that is not on record does not happen.
func TestRecordIsBounded(t *testing.T) {
	id := task.NewID()
	log, err := evidence.Open(filepath.Join(t.TempDir(), "e"), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	host, err := egress.ParseHost("a.test")
	if err != nil {
		t.Fatal(err)
	}
	const most = 64 << 10
	c := &crossings{m: &Manager{}, l: &live{id: id, log: log}, most: most}
	let := func(n int, v task.Verdict) error {
		return c.Decided(egress.Decision{ID: uint64(n), Proto: egress.ProtoHTTP, Dest: egress.Dest{Host: host, Port: uint16(n%60000 + 1)}, Verdict: v, Path: "/" + strings.Repeat("x", 4000), Rule: fmt.Sprint(n)})
	}
	var ended error
	n := 0
	for ; n < 1000 && ended == nil; n++ {
		ended = let(n, task.VerdictAllow)
	}
	if n < 10 || task.CodeOf(ended) != task.CodeLimit {
		t.Errorf("after %d crossings: %v", n, ended)
	}
	full := log.Size()
	for i := range 200 { // each of another kind
		if err := let(n+i, task.VerdictDeny); err != nil {
			t.Fatal(err)
		}
	}
	if full < most || full > most+(8<<10) || log.Size() != full {
		t.Errorf("the record has %d bytes, and %d after refusals", full, log.Size())
	}
}
