//go:build !faults

package sys

// RegisterFaults names fault points at package level: var _ = RegisterFaults(…).
// It does nothing in this build.
func RegisterFaults(names ...string) struct{} { return struct{}{} }

// Fault is a step at which test builds (tag faults) can kill or fail the
// process. In this build it does nothing.
func Fault(name string) error { return nil }

// FaultPoints lists the registered points; none in this build.
func FaultPoints() []string { return nil }
