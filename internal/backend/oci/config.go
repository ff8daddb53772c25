package oci

import "strings"

// The words that a person types after --backend.
const (
	GVisor = "gvisor"
	Crun   = "oci:crun"
	Runc   = "oci:runc"
)

// Names are all of them, the one that keeps the most apart last.
var Names = []string{Crun, Runc, GVisor}

// programs are the runtimes' programs by backend.
var programs = map[string]string{GVisor: "runsc", Crun: "crun", Runc: "runc"}

// Variable names the environment variable that says where a backend's program is; it
// comes before PATH.
func Variable(backend string) string { return "CAISSON_" + strings.ToUpper(programs[backend]) }

// PlatformVariable chooses how gVisor runs programs: systrap, which is what it does
// without, or kvm.
const PlatformVariable = "CAISSON_RUNSC_PLATFORM"

// Config is what a driver needs to know of this installation.
type Config struct {
	// Worker returns the path of the static worker program for trials; it is asked
	// only when one is made.
	Worker func() (string, error)
	// Readable returns the same program with a mode that lets everybody read it, which
	// gVisor needs; nil: that of Worker and of specs can be read.
	Readable func() (string, error)
	// Dir is where bundles lie, a folder per boundary.
	Dir string
	// Run is where runtimes keep what they know of their boundaries, with sockets in
	// it: a short path.
	Run string
	// Getenv reads the person's environment: where their runtime is.
	Getenv func(string) string
}
