//go:build !linux

package probe

import "github.com/caisson-dev/caisson/internal/task"

func unsupported(op string) error {
	return task.Errorf(task.CodeUnsupported, op, "boundaries are measured on linux only")
}

// Inside is not available on this system.
func Inside([]byte) ([]byte, error) { return nil, unsupported("probe.inside") }

// HostKernel is not known on this system.
func HostKernel() [2]string { return [2]string{} }

// ObserveHost is not available on this system.
func ObserveHost(int) (HostView, error) { return HostView{}, unsupported("probe.observe") }

// OwnNamespaces knows none on this system.
func OwnNamespaces() map[string]uint64 { return nil }

// StartTime is not available on this system.
func StartTime(int) (uint64, error) { return 0, unsupported("probe.start") }

// Descendants finds none on this system.
func Descendants(int) []int { return nil }

// SurveyInput says whose machine to look at.
type SurveyInput struct {
	Home, RuntimeDir string
	Getenv           func(string) string
	Absent, Control  []string
}

// Survey finds nothing on this system.
func Survey(SurveyInput) Spec { return Spec{} }

// Plants are not made on this system.
type Plants struct {
	File, Socket, Abstract string
	Dial                   []string
}

// Plant is not available on this system.
func Plant(string, string) (*Plants, error) { return nil, unsupported("probe.plant") }

// Apply adds nothing.
func (*Plants) Apply(*Spec) {}

// Touched names nothing.
func (*Plants) Touched() []string { return nil }

// Close removes nothing.
func (*Plants) Close() error { return nil }
