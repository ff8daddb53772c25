// Package all lists the backends of this program.
//
// Its limit: it is a list; which one a task gets is decided elsewhere.
package all

import (
	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/docker"
	"github.com/caisson-dev/caisson/internal/backend/linux"
	"github.com/caisson-dev/caisson/internal/backend/oci"
)

// Config is what the backends need to know of this installation.
type Config struct {
	// Worker returns the path of the worker program; it is asked only when a
	// trial is made.
	Worker func() (string, error)
	// Readable returns the same program with a mode that lets everybody read it.
	Readable func() (string, error)
	// Engines is where backends with an engine keep what they generate.
	Engines string
	// Bundles is where backends with a runtime alone keep theirs, and Runtime where
	// runtimes keep their sockets: a short path.
	Bundles, Runtime string
	// Getenv reads the environment of the person who started the program.
	Getenv func(string) string
}

// Drivers returns every backend, the preferred one first.
func Drivers(c Config) []backend.Driver {
	ds := []backend.Driver{
		linux.New(linux.Config{Worker: c.Worker}),
		docker.New(docker.Docker, docker.Config{Worker: c.Worker, Dir: c.Engines, Getenv: c.Getenv}),
		docker.New(docker.Podman, docker.Config{Worker: c.Worker, Dir: c.Engines, Getenv: c.Getenv}),
	}
	for _, n := range oci.Names {
		ds = append(ds, oci.New(n, oci.Config{Worker: c.Worker, Readable: c.Readable, Dir: c.Bundles, Run: c.Runtime, Getenv: c.Getenv}))
	}
	return ds
}
