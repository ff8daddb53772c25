//go:build !linux

package git

// limitMemory does nothing: this platform cannot bound another process.
func limitMemory(int, uint64) error { return nil }
