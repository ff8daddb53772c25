package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

var host = Actor{Kind: "caisson", ID: "test"}

func newLog(t *testing.T) (*Log, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "evidence")
	return reopen(t, dir), dir
}

const testTask task.ID = "tabcdefghij"

func reopen(t *testing.T, dir string) *Log {
	t.Helper()
	l, err := Open(dir, testTask, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func add(t *testing.T, l *Log, n int) {
	t.Helper()
	for i := range n {
		if _, err := l.Append(t.Context(), CallIntent, host, map[string]any{"n": i, "argv": []string{"make", "-j2"}}); err != nil {
			t.Fatal(err)
		}
	}
}

func readAll(t *testing.T, dir string) []Event {
	t.Helper()
	var out []Event
	for e, err := range Read(dir, 0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func TestAppendResumeVerify(t *testing.T) {
	l, dir := newLog(t)
	add(t, l, 3)
	if _, err := Open(dir, testTask, nil); task.CodeOf(err) != task.CodeConflict {
		t.Fatalf("a second writer: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), CallIntent, host, nil); task.CodeOf(err) != task.CodeEvidence {
		t.Fatalf("append after close: %v", err)
	}
	l = reopen(t, dir)
	clock := time.Date(1999, 1, 1, 0, 0, 0, 5, time.FixedZone("x", 3600))
	l.now = func() time.Time { clock = clock.Add(-time.Hour); return clock } // backwards
	add(t, l, 2)
	if seq, err := l.AppendBulk(t.Context(), CallOutcome, host, nil); err != nil || seq != 6 || l.Head().Seq != 5 {
		t.Fatalf("bulk: %d %v, head %v", seq, err, l.Head())
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	head, err := Verify(dir, l.Head())
	if err != nil || head != l.Head() || head.Seq != 6 {
		t.Fatalf("verify: %v %v", head, err)
	}
	es := readAll(t, dir)
	for i, e := range es {
		if e.Seq != uint64(i+1) || e.Time.Location() != time.UTC || e.Task != testTask {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	if fi, _ := os.Stat(filepath.Join(dir, FileName)); fi.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v", fi.Mode())
	}
}

func TestTornTail(t *testing.T) {
	for _, tail := range []string{`{"seq":4,"ts"`, "\x00\x00\x00", strings.Repeat("x", MaxLine-1)} {
		l, dir := newLog(t)
		add(t, l, 3)
		_ = l.Close()
		path := filepath.Join(dir, FileName)
		b, _ := os.ReadFile(path)
		if err := os.WriteFile(path, append(b, tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(dir, Head{}); !errors.Is(err, ErrTorn) {
			t.Fatalf("verify of a torn log: %v", err)
		}
		if got := readAll(t, dir); len(got) != 3 {
			t.Fatalf("read %d events of a torn log", len(got))
		}
		l = reopen(t, dir)
		es := readAll(t, dir)
		if len(es) != 4 || es[3].Type != LogRepaired || es[3].Fields()["cut_bytes"] != float64(len(tail)) {
			t.Fatalf("after the repair: %s", es[len(es)-1].Line)
		}
		if _, err := Verify(dir, l.Head()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTamper(t *testing.T) {
	l, dir := newLog(t)
	add(t, l, 6)
	head := l.Head()
	_ = l.Close()
	path := filepath.Join(dir, FileName)
	good, _ := os.ReadFile(path)
	lines := bytes.SplitAfter(bytes.TrimSuffix(good, []byte("\n")), []byte("\n"))
	lines[5] = append(bytes.Clone(lines[5]), '\n')
	join := func(idx ...int) []byte {
		var b []byte
		for _, i := range idx {
			b = append(b, lines[i]...)
		}
		return b
	}
	flip := func(line int) []byte {
		b := bytes.Clone(good)
		at := bytes.Index(b, []byte(`"seq":`+string(rune('1'+line))))
		at += bytes.Index(b[at:], []byte("-j2"))
		b[at+2] = '3'
		return b
	}
	// A forger that recomputes the chain is shown by the recorded head alone.
	forged := func() []byte {
		var out []byte
		prev := Genesis
		for i, line := range lines {
			var e Event
			if err := decodeLine(bytes.TrimSpace(line), &e); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				e.Body = json.RawMessage(`{"forged":true}`)
			}
			e.Prev = prev
			b, _ := marshal(e)
			prev = hexLeaf(b)
			out = append(append(out, b...), '\n')
		}
		return out
	}()
	all := []error{ErrAltered, ErrDropped, ErrReordered, ErrTruncated, ErrTorn}
	for _, c := range []struct {
		name string
		data []byte
		want error
		head Head
	}{
		{"control", good, nil, head},
		{"grew after the head was recorded", good, nil, Head{4, func() string { return hexLeaf(bytes.TrimSpace(lines[3])) }()}},
		{"byte in the middle", flip(2), ErrAltered, Head{}},
		{"byte in the last line", flip(5), ErrAltered, head},
		{"byte in the last line, no head: not shown", flip(5), nil, Head{}},
		{"not JSON", append(join(0, 1), "junk\n"...), ErrAltered, Head{}},
		{"line dropped", join(0, 1, 3, 4, 5), ErrDropped, head},
		{"first dropped", join(1, 2, 3, 4, 5), ErrDropped, head},
		{"swapped", join(0, 2, 1, 3, 4, 5), ErrReordered, head},
		{"twice", join(0, 1, 1, 2, 3, 4, 5), ErrReordered, head},
		{"tail cut", join(0, 1, 2, 3), ErrTruncated, head},
		{"tail cut, no head: not shown", join(0, 1, 2, 3), nil, Head{}},
		{"emptied", nil, ErrTruncated, head},
		{"cut within a line", good[:len(good)-5], ErrTorn, head},
		{"forged with a new chain", forged, ErrAltered, head},
	} {
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Verify(dir, c.head)
		for _, e := range all {
			if errors.Is(err, e) != (e == c.want) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			}
		}
		if (err == nil) != (c.want == nil) || err != nil && task.CodeOf(err) != task.CodeEvidence {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

func TestFailedSyncLatches(t *testing.T) {
	l, dir := newLog(t)
	add(t, l, 1)
	head := l.Head()
	good := l.sync
	l.sync = func(*os.File) error { return errors.New("input/output error") }
	if _, err := l.Append(t.Context(), CallIntent, host, nil); !errors.Is(err, ErrFailed) {
		t.Fatalf("append: %v", err)
	}
	l.sync = good // a second fsync would report success for data that is lost
	if _, err := l.Append(t.Context(), CallIntent, host, nil); !errors.Is(err, ErrFailed) {
		t.Fatalf("append after a failed fsync: %v", err)
	}
	if l.Head() != head || l.Err() == nil || l.Flush() == nil || l.Close() == nil {
		t.Fatalf("the failure was forgotten: %v", l.Head())
	}
	_ = dir
}

func TestConcurrentAppend(t *testing.T) {
	l, dir := newLog(t)
	syncs := 0
	good := l.sync
	l.sync = func(f *os.File) error { syncs++; return good(f) }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				seq, err := l.Append(t.Context(), CallIntent, host, nil)
				if err != nil || l.Head().Seq < seq {
					t.Errorf("seq %d head %v: %v", seq, l.Head(), err)
				}
			}
		})
	}
	wg.Wait()
	if h, err := Verify(dir, l.Head()); err != nil || h.Seq != 200 {
		t.Fatalf("%v %v", h, err)
	}
	t.Logf("%d fsyncs for 200 events", syncs)
}

func TestRefusals(t *testing.T) {
	l, dir := newLog(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("ctrl-c")
	cancel(cause)
	if _, err := l.Append(ctx, CallIntent, host, nil); !errors.Is(err, cause) || task.CodeOf(err) != task.CodeCanceled {
		t.Fatalf("ended context: %v", err)
	}
	if _, err := l.Append(t.Context(), "made.up", host, nil); task.CodeOf(err) != task.CodeInternal {
		t.Fatalf("unknown type: %v", err)
	}
	if _, err := l.Append(t.Context(), CallIntent, host, map[string]any{"x": strings.Repeat("y", MaxLine)}); task.CodeOf(err) != task.CodeInternal {
		t.Fatalf("too long: %v", err)
	}
	if _, err := l.Append(t.Context(), CallIntent, host, func() {}); task.CodeOf(err) != task.CodeInternal {
		t.Fatalf("function: %v", err)
	}
	type cycle struct{ Next *cycle }
	c := &cycle{}
	c.Next = c
	if _, err := l.Append(t.Context(), CallIntent, host, c); task.CodeOf(err) != task.CodeInternal {
		t.Fatalf("cycle: %v", err)
	}
	add(t, l, 1)
	if h, err := Verify(dir, l.Head()); err != nil || h.Seq != 1 {
		t.Fatalf("%v %v", h, err)
	}
	other, err := Open(filepath.Join(dir, "..", "evidence"), task.NewID(), nil)
	if err == nil {
		_ = other.Close()
		t.Fatal("the log of another task was opened")
	}
}

func TestFollow(t *testing.T) {
	l, dir := newLog(t)
	add(t, l, 2)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan uint64)
	done := make(chan error, 1)
	go func() {
		for e, err := range Follow(ctx, dir, 2) {
			if err != nil {
				done <- err
				return
			}
			got <- e.Seq
		}
		done <- nil
	}()
	if s := <-got; s != 2 {
		t.Fatalf("first event %d", s)
	}
	for want := uint64(3); want < 20; want++ {
		add(t, l, 1)
		if s := <-got; s != want {
			t.Fatalf("event %d, want %d", s, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// Removal ends it too.
	go func() {
		for _, err := range Follow(t.Context(), dir, 100) {
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// A follower that saw an incomplete line reads on in order when the next
// writer cut it off.
func TestFollowAcrossRepair(t *testing.T) {
	l, dir := newLog(t)
	add(t, l, 2)
	_ = l.Close()
	path := filepath.Join(dir, FileName)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":3,"ts":"torn`); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	want := uint64(1)
	for e, err := range Follow(ctx, dir, 0) {
		if err != nil || e.Seq != want {
			t.Fatalf("event %d, want %d: %v", e.Seq, want, err)
		}
		switch want++; want {
		case 3: // everything but the torn line was read
			add(t, reopen(t, dir), 1)
		case 5:
			cancel()
		}
	}
	if want != 5 {
		t.Fatalf("ended before event %d", want)
	}
}

// TestTypesAreAll: a type that is not in the list cannot be written.
func TestTypesAreAll(t *testing.T) {
	text, err := os.ReadFile("evidence.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`Type = "([a-z.]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(all) < 50 {
		t.Fatalf("%d types found", len(all))
	}
	for _, m := range all {
		if !Type(m[1]).Known() {
			t.Errorf("%s is not in Types", m[1])
		}
	}
}
