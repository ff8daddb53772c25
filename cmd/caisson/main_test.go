//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// fakeName is the program with the fake engine. A second name, because a
// process learns what it is from its arguments.
const fakeName = "fcaisson"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"caisson": main,
		fakeName:  func() { os.Exit(run(openFake)) },
	})
}

func TestCLIScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Files:               scripts(t, "cli_*.txtar"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("CAISSON_STATE_DIR", e.WorkDir+"/.state")
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
	})
}
