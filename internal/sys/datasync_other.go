//go:build !linux

package sys

import "os"

// Datasync makes f durable.
func Datasync(f *os.File) error { return f.Sync() }
