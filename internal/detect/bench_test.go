package detect

import (
	"context"
	"fmt"
	"testing"
)

// bigTree is a repository of 50,000 files in the order that git lists them.
type bigTree struct {
	names []string
	files files
}

func (t *bigTree) Each(_ context.Context, f func(string, uint32) bool) error {
	for _, n := range t.names {
		if !f(n, 0o100644) {
			break
		}
	}
	return nil
}

func (t *bigTree) Read(ctx context.Context, paths []string, limit int64, f func(string, int64, []byte)) error {
	return t.files.Read(ctx, paths, limit, f)
}

func newBigTree() *bigTree {
	t := &bigTree{files: files{}}
	for i := range 40 {
		n := fmt.Sprintf("apps/a%d/package.json", i)
		t.names = append(t.names, n)
		t.files[n] = `{"scripts":{"dev":"next dev","test":"jest --ci && tsc -p ."},"dependencies":{"pg":"1"}}`
	}
	for i := range 50_000 {
		t.names = append(t.names, fmt.Sprintf("src/services/pkg%d/sub%d/file_%d.go", i/500, i/50, i))
	}
	return t
}

func BenchmarkScan(b *testing.B) {
	t := newBigTree()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Scan(context.Background(), t); err != nil {
			b.Fatal(err)
		}
	}
}
