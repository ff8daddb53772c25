//go:build !linux

// Command caisson-worker runs inside a boundary, which is always Linux.
//
// Its limit: on other systems it only says so.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "caisson: error: the worker runs only inside a Linux boundary")
	os.Exit(1)
}
