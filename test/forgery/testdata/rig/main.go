//go:build linux && canary

// The runtime would otherwise keep a descriptor open where only the channel may
// be: this program is the worker too.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command rig is the host of the forgery suite and, under the name
// caisson-worker, the worker inside. Both mirror what they send and take; the
// linker says which protections this build goes without. It runs the hostile
// program in real boundaries and prints what became of each probe as JSON.
//
// Its limit: it counts and compares; what a figure should be is the test's.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/workerprog"
)

// order is what the test asks for.
type order struct {
	Attacker string // its program
	Dir      string // an empty folder of this user's
	Probes   []string
	Spawns   int  // of F8
	Crashes  int  // of F18
	Grants   bool // boundaries with every grant
	LateMS   int  // how late what the processes inside say is read
}

// result is one probe.
type result struct {
	Probe    string
	Attempts int
	Denied   map[string]int // layer → attempts
	Possible []string       // attempts that should have been denied
	Done     int            // attempts that nothing denies
	Forged   int            // messages taken that nobody sent
	Leaked   []string       // what a tool read of the channel
	Lost     []string       // operations that ended otherwise than they did, or vanished
	Poisoned bool           // the channel was given up and the boundary destroyed
	Unknown  int            // operations that were told to be of unknown outcome
	Silent   string         // why nothing could be attempted
}

type report struct {
	Without []string
	UID     int
	Kernel  string
	Honest  int // operations of the traffic beside the probes
	Frames  int // sent by W and taken by the host
	Results []result
}

func main() {
	if os.Args[0] == workerprog.Arg0 {
		os.Exit(workerprog.Main(os.Args))
	}
	debug.SetTraceback("all")
	var o order
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	r, err := newRig(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
		os.Exit(1)
	}
	rep := report{UID: os.Getuid(), Kernel: kernel(), Results: []result{}}
	for _, p := range sys.Protections {
		if sys.Without(p) {
			rep.Without = append(rep.Without, p)
		}
	}
	for _, p := range o.Probes {
		t := time.Now()
		res := r.probe(p)
		rep.Results = append(rep.Results, res)
		for _, l := range res.Lost {
			fmt.Fprintf(os.Stderr, "%s: %s\n", p, l)
		}
		fmt.Fprintf(os.Stderr, "%s: %d attempts, %d possible, %d forged, %d lost, poisoned %v (%s)\n", p, res.Attempts, len(res.Possible), res.Forged, len(res.Lost), res.Poisoned, time.Since(t).Round(time.Millisecond))
	}
	if err := r.close(); err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
		os.Exit(1)
	}
	rep.Honest, rep.Frames = r.honest, r.book.total()
	_ = json.NewEncoder(os.Stdout).Encode(rep)
}

var background = context.Background()
