package boundary

import (
	"errors"
	"testing"
)

// TestFramedOr: a source that was ready before anybody looked is as good as one
// that still copies, however often the other channel is looked at first.
func TestFramedOr(t *testing.T) {
	over, never := make(chan struct{}), make(chan struct{})
	close(over)
	broken := errors.New("broken")
	var none error
	for range 200 {
		if err := framedOr(over, over, &none); err != nil {
			t.Fatalf("framed and ended: %v", err)
		}
		if err := framedOr(never, over, &broken); !errors.Is(err, broken) {
			t.Fatalf("ended without: %v", err)
		}
	}
}
