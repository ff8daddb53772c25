// The runtime would otherwise keep a descriptor of the cgroup's CPU limit open,
// where only the channel may be when this program plays the worker.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command caisson gives every agent task its own execution boundary.
//
// Its limit: it joins the command line with the engine and nothing more.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/caisson-dev/caisson/internal/door/cli"
	"github.com/caisson-dev/caisson/internal/verify"
	"github.com/caisson-dev/caisson/internal/verify/attack"
	"github.com/caisson-dev/caisson/internal/version"
	"github.com/caisson-dev/caisson/internal/wire"
)

func main() {
	wire.PlayRole()
	if len(os.Args) > 1 && os.Args[1] == attack.Arg {
		os.Exit(attack.Main(os.Args[1:2], os.Args[2:]))
	}
	if len(os.Args) == 2 && os.Args[1] == verify.FarArg {
		os.Exit(verify.Far())
	}
	wire.OwnFiles()
	if os.Getenv("GOGC") == "" {
		// A command is over before memory that it gave up is worth looking for. A
		// supervisor, which stays, keeps to the default.
		debug.SetGCPercent(400)
	}
	os.Exit(run(openEngine))
}

// run is the program around one way to open an engine; the tests give another.
func run(open engineFunc) int {
	dir, _ := os.Getwd() // only commands that need it will miss it
	return cli.Run(context.Background(), cli.Config{
		Args: os.Args[1:], Env: os.Environ(), Dir: dir,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Version: version.Version(), Commit: version.Commit(),
		Engine: open, MCP: serveMCP, Verify: attackBoundary, WriteVerified: verify.Write,
	})
}
