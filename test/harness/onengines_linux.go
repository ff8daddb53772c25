package harness

import (
	"os"
	"testing"
)

// Test is one that is run again elsewhere.
type Test struct {
	Name string
	Run  func(*testing.T)
	// Every says that it is run with every engine. The others are run with Docker, for
	// the driver is the same, and with CAISSON_TEST_FULL=1 everywhere.
	Every bool
	// GVisor says that it is run with gVisor too, whose way out is another.
	GVisor bool
}

// sampled says that a test runs as a part of OnEngines.
const sampled = "CAISSON_TEST_SAMPLED"

// OnEngines runs tests again with each engine that the run can start, and with gVisor,
// as an ordinary user alone. CAISSON_TEST_BACKEND=docker or podman runs a whole suite so instead.
func OnEngines(t *testing.T, tests ...Test) {
	t.Helper()
	if b := Backend(); b != "linux" {
		t.Skipf("the whole suite is run with the backend %s", b)
	}
	for _, k := range []struct {
		name  string
		start func(testing.TB) *Engine
	}{{"docker", Docker}, {"podman", Podman}} {
		t.Run(k.name, func(t *testing.T) {
			k.start(t) // or this skips
			t.Setenv("CAISSON_TEST_BACKEND", k.name)
			t.Setenv(sampled, "1")
			for _, x := range tests {
				if x.Every || k.name == "docker" || os.Getenv("CAISSON_TEST_FULL") != "" {
					t.Run(x.Name, x.Run)
				}
			}
		})
	}
	t.Run("gvisor", func(t *testing.T) {
		NeedsRuntime(t, "gvisor")
		t.Setenv("CAISSON_TEST_BACKEND", "gvisor")
		t.Setenv(sampled, "1")
		for _, x := range tests {
			if x.GVisor {
				t.Run(x.Name, x.Run)
			}
		}
	})
}

// Sampled reports whether a test runs as a part of OnEngines, where one identity is
// enough.
func Sampled() bool { return os.Getenv(sampled) != "" }
