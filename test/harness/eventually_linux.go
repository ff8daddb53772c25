package harness

import (
	"testing"
	"time"
)

// Eventually waits until f is true. That it never is ends the test.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(Limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatal("never happened: " + what)
}
