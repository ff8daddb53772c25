package verify

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

// Config says what to attack, and from where.
type Config struct {
	Program  string // this program, a static one: it plays every part
	Version  string
	Platform string
	Environ  []string

	// One of these: a backend of caisson's, with more flags of `open`; a running
	// container of docker or podman; a command line with {} in the place of the
	// command that it is to run.
	Backend   string
	Flags     []string
	Container string
	Command   string

	// BackendVersion is what makes the boundary, for the report.
	BackendVersion string
	Lacks          []task.Feature

	// Progress is told in one line what is going on; may be nil.
	Progress func(string)
}

func (c *Config) say(line string) {
	if c.Progress != nil {
		c.Progress(line)
	}
}

// Schema names the report.
const Schema = "caisson.verify/1"

// Run attacks one boundary and reports. An error means that nothing can be said: it
// was canceled, or this machine cannot run the attacks. A boundary that could not be
// had is a report with the verdict not_tried.
func Run(ctx context.Context, c Config) (*task.VerifyReport, error) { return run(ctx, c) }

// verdict is what all probes come to.
func verdict(ps []task.VerifyProbe) task.VerifyResult {
	worst := task.VerifyNotTried
	for _, p := range ps {
		switch {
		case p.Result == task.VerifyBroken:
			return task.VerifyBroken
		case p.Result == task.VerifyHeld, p.Result == task.VerifyNotShown && worst != task.VerifyHeld:
			worst = p.Result
		}
	}
	return worst
}

// FarArg is the first argument of this program where it plays what is beyond this
// machine, and attacks tasks that have a way there.
const FarArg = "__far"

// Far plays the network that it reads about from standard input, attacks, and prints
// what came of it. It returns the exit status.
func Far() int { return playFar() }
