//go:build !linux

package sys

import (
	"context"
	"fmt"
	"os"
)

func noIdent() error {
	return fmt.Errorf("process identity: %w on this platform", ErrUnsupported)
}

// BootID is not available here.
func BootID() (string, error) { return "", noIdent() }

// Self is not available here.
func Self() (Ident, error) { return Ident{}, noIdent() }

// Identify is not available here.
func Identify(pid int) (Ident, error) { return Ident{}, noIdent() }

// Look cannot tell here.
func Look(id Ident) Liveness { return Unknown }

// Stopped cannot tell here.
func Stopped(id Ident) bool { return false }

// Process is a hold on one process; it cannot be had here.
type Process struct{}

// OpenProcess is not available here.
func OpenProcess(id Ident) (*Process, error) { return nil, noIdent() }

// Ident returns what was opened.
func (p *Process) Ident() Ident { return Ident{} }

// Signal is not available here.
func (p *Process) Signal(s os.Signal) error { return noIdent() }

// Wait is not available here.
func (p *Process) Wait(ctx context.Context) error { return noIdent() }

// Close does nothing.
func (p *Process) Close() error { return nil }

// Children is not available here.
func Children(pid int) ([]int, error) { return nil, noIdent() }
