package boundary

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestRefusalsAreToldApart: what differs in its method or its path is another
// refusal, and no more kinds are put down one by one than the most.
func TestRefusalsAreToldApart(t *testing.T) {
	id := task.NewID()
	host, err := egress.ParseHost("a.test")
	if err != nil {
		t.Fatal(err)
	}
	c := &crossings{m: &Manager{}, l: &live{id: id}, minute: time.Now()}
	put := 0
	refused := func(method, path string) int {
		due := c.fold(egress.Decision{Proto: egress.ProtoHTTPS, Dest: egress.Dest{Host: host, Port: 443}, Verdict: task.VerdictDeny, Reason: egress.ReasonRule, Method: method, Path: path}, map[string]any{"method": method, "path": path})
		put += len(due)
		return len(due)
	}
	for _, x := range []struct {
		method, path string
		want         int
	}{{"POST", "/v1/x", 1}, {"POST", "/v1/x", 0}, {"DELETE", "/v1/x", 1}, {"POST", "/v1/y", 1}, {"DELETE", "/v1/x", 0}, {"POST", "/v1/x", 0}} {
		if n := refused(x.method, x.path); n != x.want {
			t.Errorf("%s %s: %d put down, not %d", x.method, x.path, n, x.want)
		}
	}
	for i := range 2 * maxTold {
		refused("GET", fmt.Sprint("/", i))
	}
	if put != maxTold+1 || len(c.folded) != maxTold+1 {
		t.Errorf("%d put down, %d remembered", put, len(c.folded))
	}
	counts := map[string]int{}
	for _, b := range c.sweep(time.Now()) {
		counts[fmt.Sprint(b["method"], b["path"])] = b["again"].(int)
	}
	if counts["POST/v1/x"] != 2 || counts["DELETE/v1/x"] != 1 || counts["POST/v1/y"] != 0 {
		t.Error(counts)
	}
}
