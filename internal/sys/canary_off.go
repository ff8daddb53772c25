//go:build !(canary && linux)

package sys

// Canary says that this build mirrors what goes over the worker's channel and
// may leave protections out, for the tests that prove each of them. It is false
// in every program but those: the compiler drops what asks.
const Canary = false

// Without reports whether this build leaves the protection called name out.
func Without(name string) bool { return false }

// Expose does nothing in this build.
func Expose() {}

// Mirror tells the test what this process sends or takes: what, and which.
func Mirror(what string, parts ...[]byte) {}

// MirrorStream says that another process's lines begin, or are at their end.
func MirrorStream(delta int32) {}

// Mirrored hands on what another process of this build mirrored.
func Mirrored(b []byte) {}
