//go:build !linux

package cli

import (
	"bufio"
	"context"
	"os"
)

// dropTyped does nothing here: no boundary is made that could ask.
func dropTyped(*os.File) {}

// givesUp says that typedLine cannot.
const givesUp = false

// typedLine reads one line of a terminal.
func typedLine(_ context.Context, f *os.File) (line string, ok bool) {
	line, _ = bufio.NewReader(f).ReadString('\n')
	return line, true
}
