// Command caisson gives every agent task its own execution boundary.
//
// Its limit: it joins the command line with the engine and nothing more.
package main

import (
	"context"
	"os"

	"github.com/caisson-dev/caisson/internal/door/cli"
	"github.com/caisson-dev/caisson/internal/version"
	"github.com/caisson-dev/caisson/internal/wire"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == wire.SuperviseArg {
		os.Exit(wire.Supervise())
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
		Engine: open,
	})
}
