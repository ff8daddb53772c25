//go:build linux

package workerprog

import (
	"encoding/json"
	"syscall"

	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/worker/frame"
	"github.com/caisson-dev/caisson/internal/worker/inside"
)

// Main is the worker: it plays the role that args name and returns the exit
// status.
func Main(args []string) int { return inside.Main(args, hooks()) }

// hooks hands the stage to the worker's roles. W's hooks share the plan.
func hooks() inside.Hooks {
	var plan *stage.Plan
	devpts := -1
	return inside.Hooks{
		Build: func(fd int) (*syscall.SysProcAttr, []byte, error) {
			p, fds, err := stage.Receive(fd)
			if err != nil {
				return nil, nil, err
			}
			if devpts, err = stage.BuildRoot(p, fds); err != nil {
				return nil, nil, err
			}
			plan = p
			rest := *p
			rest.Steps = nil // done; I has its own
			b, err := json.Marshal(&rest)
			return stage.SpaceAttr(p), b, err
		},
		SealWorker: func() error { return stage.SealWorker(plan) },
		Report: func(fd, space int, err error) error {
			if err != nil {
				return stage.SendReport(fd, stage.ReportOf(err), nil)
			}
			serr := stage.SendReport(fd, stage.Report{OK: true, SpacePID: space}, []int{devpts})
			_ = syscall.Close(devpts)
			return serr
		},
		SealSpace: func(b []byte) (inside.Space, error) {
			var p stage.Plan
			if err := json.Unmarshal(b, &p); err != nil {
				return inside.Space{}, err
			}
			if err := stage.SealSpace(&p); err != nil {
				return inside.Space{}, err
			}
			s := inside.Space{Env: p.Env, Dir: p.Workdir}
			for _, r := range p.Rlimits {
				s.Rlimits = append(s.Rlimits, frame.Rlimit{Resource: r.Resource, Soft: r.Soft, Hard: r.Hard})
			}
			return s, nil
		},
		Probe: probe.Inside,
	}
}
