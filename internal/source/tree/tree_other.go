//go:build !linux

package tree

import (
	"context"
	"os"
)

type handle struct{}

// Root is an open folder below which everything is untrusted.
type Root struct{}

// OpenRoot reports ErrUnsupported: boundaries on this platform keep their
// files in a machine or an engine.
func OpenRoot(string) (*Root, error) { return nil, ErrUnsupported }

// OpenUser reports ErrUnsupported.
func OpenUser(string) (*Root, error) { return nil, ErrUnsupported }

// OpenDir reports ErrUnsupported.
func (r *Root) OpenDir(string) (*Root, error) { return nil, ErrUnsupported }

// Close does nothing.
func (r *Root) Close() error { return nil }

// Stat reports ErrUnsupported.
func (r *Root) Stat(string) (Info, error) { return Info{}, ErrUnsupported }

// Open reports ErrUnsupported.
func (r *Root) Open(string) (*os.File, Info, error) { return nil, Info{}, ErrUnsupported }

// ReadFile reports ErrUnsupported.
func (r *Root) ReadFile(string, int64) ([]byte, error) { return nil, ErrUnsupported }

// Readlink reports ErrUnsupported.
func (r *Root) Readlink(string) (string, error) { return "", ErrUnsupported }

// Walk reports ErrUnsupported.
func (r *Root) Walk(context.Context, func(string, []*Entry) error) error { return ErrUnsupported }

// Move reports ErrUnsupported.
func (r *Root) Move(string, string) error { return ErrUnsupported }

// MakePoint reports ErrUnsupported.
func (r *Root) MakePoint(string, string, bool, func(string) error) error { return ErrUnsupported }

// Ident reports ErrUnsupported.
func (r *Root) Ident(string) (string, error) { return "", ErrUnsupported }

// RemovePoint reports ErrUnsupported.
func (r *Root) RemovePoint(string, string, string) (string, error) { return "", ErrUnsupported }

// Open reports ErrUnsupported.
func (e *Entry) Open() (*os.File, error) { return nil, ErrUnsupported }

// Readlink reports ErrUnsupported.
func (e *Entry) Readlink() (string, error) { return "", ErrUnsupported }

// Names reports ErrUnsupported.
func (e *Entry) Names() ([]string, error) { return nil, ErrUnsupported }

// Leads reports ErrUnsupported.
func (r *Root) Leads(string) (bool, error) { return false, ErrUnsupported }

// Copy reports ErrUnsupported.
func Copy(*os.File, *os.File, int64) (int64, error) { return 0, ErrUnsupported }

// Look reports ErrUnsupported.
func Look(*os.File) (Info, error) { return Info{}, ErrUnsupported }

// Settle reports ErrUnsupported.
func Settle(*os.File, uint32, Info) (Info, error) { return Info{}, ErrUnsupported }

// Remove reports ErrUnsupported.
func Remove(context.Context, string, string) error { return ErrUnsupported }

// RemoveSome reports ErrUnsupported.
func RemoveSome(context.Context, string, string, *int) error { return ErrUnsupported }
