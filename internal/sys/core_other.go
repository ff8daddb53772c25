//go:build !linux

package sys

// WithoutCore does nothing on this platform, on which nothing is lent.
func WithoutCore() error { return nil }
