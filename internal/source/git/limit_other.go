//go:build !linux

package git

import "os/exec"

// limitMemory does nothing: this platform cannot bound another process.
func limitMemory(int, uint64) error { return nil }

// limitItself changes nothing here.
func limitItself(*exec.Cmd, uint64) bool { return false }
