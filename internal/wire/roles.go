package wire

import (
	"os"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/workerprog"
)

// Role plays the part that a program is started for by caisson itself, when its
// arguments name one: the worker, a supervisor, a remover. It returns the exit
// status, and false when the program is on its own.
func Role(args []string) (status int, is bool) {
	switch {
	case len(args) == 0:
		return 0, false
	case args[0] == workerprog.Arg0:
		return workerprog.Main(args), true
	case len(args) == 2 && args[1] == SuperviseArg:
		return Supervise(), true
	case len(args) == 3 && args[1] == SuperviseArg:
		return SuperviseOn(args[2]), true
	case len(args) == 3 && args[1] == RemoveArg:
		return Remove(args[2]), true
	}
	return 0, false
}

// PlayRole ends the program when it was started to play a part.
func PlayRole() {
	if status, is := Role(os.Args); is {
		os.Exit(status)
	}
}

// OwnFiles is for a program that is nothing but caisson, before it opens an
// engine: with a umask that shuts out the user's own process the folder of a task
// could neither be used nor removed.
func OwnFiles() { sys.OwnerUmask() }
