//go:build linux

package tools

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// BenchmarkReadFile is one small read without the channel.
func BenchmarkReadFile(b *testing.B) {
	p := at(b)
	p.put("small", strings.Repeat("a line of forty bytes, as in a program\n", 25))
	p.put("middle", strings.Repeat("a line of forty bytes, as in a program\n", 2500))
	for _, name := range []string{"small", "middle"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			raw := []byte(`{"path":"` + name + `","limit":100000}`)
			for b.Loop() {
				c := &Call{Root: p.root, In: -1, Out: -1}
				if _, fail := Run(context.Background(), c, contract.ReadFile, raw); fail != nil {
					b.Fatal(fail)
				}
				if c.Out >= 0 {
					_ = unix.Close(c.Out)
				}
			}
		})
	}
}
