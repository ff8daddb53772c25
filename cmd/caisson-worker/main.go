//go:build linux

// The runtime would otherwise keep a descriptor of the cgroup's CPU limit
// open, where only the channel may be.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command caisson-worker is the program that caisson places inside a boundary.
// It is started by caisson and by itself, never by a person.
//
// Its limit: it joins the worker's inside half with the linux stage and the
// probe; it has no flags, reads no files and no environment.
package main

import (
	"os"

	"github.com/caisson-dev/caisson/internal/workerprog"
)

func main() { os.Exit(workerprog.Main(os.Args)) }
