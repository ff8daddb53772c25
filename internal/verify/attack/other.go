//go:build !linux

package attack

import (
	"fmt"
	"os"
)

// Main says that there is nothing to attack here.
func Main(_ []string, _ []string) int {
	fmt.Fprintln(os.Stderr, "there are no boundaries on this system")
	return 2
}
