//go:build !linux

package sys

// IsNetworkFS cannot tell on this platform and answers no.
func IsNetworkFS(path string) (name string, network bool, err error) { return "", false, nil }

// OwnerOnly cannot tell on this platform.
func OwnerOnly(path string) bool { return false }
