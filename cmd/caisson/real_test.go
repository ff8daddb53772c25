//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-dev/caisson/internal/workerbin"
)

// TestRealScripts runs the program with its own engine: real git, real boundaries.
func TestRealScripts(t *testing.T) {
	if !workerbin.Present() {
		t.Log("this build carries no worker: the program plays it itself")
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts(t, "real_*.txtar"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("CAISSON_STATE_DIR", e.WorkDir+"/.state")
			e.Setenv("CAISSON_RUNTIME_DIR", e.WorkDir+"/.run")
			e.Setenv("HOME", e.WorkDir+"/.home")
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			return os.MkdirAll(e.WorkDir+"/.home", 0o755)
		},
	})
}
