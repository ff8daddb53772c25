package capture

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestStream holds what is kept of a stream against all of it, for lengths
// around every bound and pieces of every size.
func TestStream(t *testing.T) {
	t.Parallel()
	whole := []byte(strings.Repeat("äbc€🙂\n", 40_000))
	for _, size := range []int{0, 1, 100, half - 1, half, half + 1, 2*half - 1, 2 * half, 2*half + 1, 3 * half, 4*half + 3, 10 * half} {
		for _, piece := range []int{1, 7, 4096, half, 3 * half} {
			if piece == 1 && size > half {
				continue
			}
			file := filepath.Join(t.TempDir(), "spill")
			s := &Stream{MaxSpill: 1 << 30, File: "F", Spill: func() (*os.File, error) { return os.Create(file) }}
			text := bytes.Clone(whole[:size])
			for i := len(text) - 1; !utf8.Valid(text); i-- {
				text[i] = 'z'
			}
			for i := 0; i < len(text); i += piece {
				if n, err := s.Write(text[i:min(len(text), i+piece)]); err != nil || n != min(piece, len(text)-i) {
					t.Fatal(n, err)
				}
			}
			r := s.Result()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if r.Bytes != int64(size) || !utf8.ValidString(r.Text) || r.Err != nil || !bytes.HasSuffix(text, r.Tail) || len(r.Tail) < min(size, TailSize-3) {
				t.Fatalf("%d in %d: %d bytes, tail of %d", size, piece, r.Bytes, len(r.Tail))
			}
			if size <= 2*half {
				if r.Omitted != 0 || r.Text != Clean(text) || r.Spilled != 0 {
					t.Fatalf("%d in %d: %d left out", size, piece, r.Omitted)
				}
				continue
			}
			head, tail, ok := strings.Cut(r.Text, fmt.Sprintf("\n[… %d bytes left out; F has all of it …]\n", r.Omitted))
			if !ok || !bytes.HasPrefix(text, []byte(head)) || !bytes.HasSuffix(text, []byte(tail)) || int64(len(head)+len(tail))+r.Omitted != int64(size) || len(tail) < half-4 {
				t.Fatalf("%d in %d: %d+%d, %d left out", size, piece, len(head), len(tail), r.Omitted)
			}
			if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, text) {
				t.Fatalf("%d in %d: the file has %d bytes, %v", size, piece, len(b), err)
			}
		}
	}
	s := &Stream{MaxSpill: 100_000, Spill: func() (*os.File, error) { return os.Create(filepath.Join(t.TempDir(), "f")) }}
	_, _ = s.Write(whole)
	if r := s.Result(); r.Spilled != 100_000 || !strings.Contains(r.Text, "all of it but the end") {
		t.Errorf("%d bytes in the file", r.Spilled)
	}
}

func TestTape(t *testing.T) {
	t.Parallel()
	tape := &Tape{Max: 100}
	var all []byte
	for i := range 200 {
		line := fmt.Appendf(nil, "line %d\n", i)
		all = append(all, line...)
		_, _ = tape.Write(line)
		p, _ := tape.From(p0(len(all)-20), 1000)
		if string(p.Bytes) != string(all[p.From:]) || p.Next != int64(len(all)) {
			t.Fatalf("%d: %q from %d", i, p.Bytes, p.From)
		}
	}
	if p, _ := tape.From(0, 1000); p.From == 0 || !bytes.Equal(p.Bytes, all[p.From:]) || len(p.Bytes) < 100 {
		t.Errorf("what was forgotten: from %d, %d bytes", p.From, len(p.Bytes))
	}
	p, news := tape.From(int64(len(all)), 10)
	if len(p.Bytes) != 0 || p.Ended {
		t.Errorf("%+v", p)
	}
	go tape.Close()
	<-news
	if p, _ = tape.From(int64(len(all)), 10); !p.Ended {
		t.Error("its end is not known")
	}
}

func p0(n int) int64 { return int64(max(0, n)) }

// TestPump leaves a writer behind: what was written before the end is taken, who
// writes later gets no error and is not heard.
func TestPump(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &Stream{}
	p := NewPump(r, s)
	big := strings.Repeat("x", 50_000)
	if _, err := w.WriteString(big); err != nil {
		t.Fatal(err)
	}
	p.End()
	for range 100 {
		if _, err := w.WriteString(big); err != nil {
			t.Fatalf("left behind: %v", err)
		}
	}
	w.Close()
	select {
	case <-p.Over():
	case <-time.After(time.Minute):
		t.Fatal("it goes on without a writer")
	}
	if r := s.Result(); r.Bytes != int64(len(big)) {
		t.Errorf("%d bytes of %d", r.Bytes, len(big))
	}
}

// TestLive hands every piece on in order, waits for a slow listener, and leaves
// one that never returns.
func TestLive(t *testing.T) {
	t.Parallel()
	var got []byte
	s := &Stream{Live: func(p []byte) { got = append(got, p...) }}
	var want []byte
	buf := make([]byte, 10)
	for i := range 1000 {
		buf = fmt.Appendf(buf[:0], "piece %d\n", i)
		want = append(want, buf...)
		_, _ = s.Write(buf) // the same memory each time
	}
	if err := s.Close(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}

	stuck := make(chan struct{})
	defer close(stuck)
	s = &Stream{Live: func([]byte) { <-stuck }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			_, _ = s.Write([]byte("x"))
		}
		_ = s.Close()
	}()
	s.GiveUp()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a listener that does not return holds everything up")
	}
	if r := s.Result(); r.Bytes != 100 {
		t.Errorf("%d bytes of 100", r.Bytes)
	}
}
