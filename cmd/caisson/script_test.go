//go:build linux

package main

import (
	"path/filepath"
	"testing"
)

// scripts returns the scripts of a name pattern; none is a mistake.
func scripts(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "script", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts match %s (%v)", pattern, err)
	}
	return files
}
