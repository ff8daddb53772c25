//go:build linux

package workerprog

import (
	"syscall"

	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/worker/frame"
	"github.com/caisson-dev/caisson/internal/worker/inside"
)

// Main is the worker: it plays the role that args name and returns the exit
// status.
func Main(args []string) int { return inside.Main(args, hooks()) }

// sendCrossings makes the sockets that are the host's and hands them over, at
// once: what W becomes has no part in them.
func sendCrossings(fd int, p *stage.Plan) error {
	fds, err := stage.Crossings(p)
	if err != nil {
		return err
	}
	err = stage.SendReport(fd, stage.Report{OK: true}, fds)
	for _, f := range fds {
		_ = syscall.Close(f)
	}
	return err
}

// hooks hands the stage to the worker's roles.
func hooks() inside.Hooks {
	return inside.Hooks{
		Build: func(fd int) (inside.Built, error) {
			p, fds, err := stage.Receive(fd)
			if err != nil {
				return inside.Built{}, err
			}
			devpts, err := stage.BuildRoot(p, fds)
			if err == nil && (p.Way != nil || p.Inward > 0 || len(p.Local) > 0) {
				err = sendCrossings(fd, p)
			}
			return inside.Built{Attr: stage.SpaceAttr(p), File: devpts, Tell: func(fd int) error { return stage.SendSpace(fd, p) }}, err
		},
		DropWorker: stage.DropWorker,
		SealWorker: func(fd int) (string, error) {
			r, err := stage.ReceiveRest(fd)
			if err != nil {
				return "", err
			}
			return r.Workdir, stage.SealWorker(r)
		},
		DropSpace: func(fd int) (inside.Scores, error) {
			p, fds, err := stage.Receive(fd)
			if err != nil {
				return inside.Scores{}, err
			}
			for _, f := range fds {
				_ = syscall.Close(f) // none is sent
			}
			own, tree, err := stage.DropSpace(p)
			return inside.Scores{Own: own, Tree: tree}, err
		},
		SealSpace: func(fd int) (inside.Space, error) {
			r, err := stage.ReceiveRest(fd)
			if err != nil {
				return inside.Space{}, err
			}
			s := inside.Space{Env: r.Env, Dir: r.Workdir}
			for _, l := range r.Rlimits {
				s.Rlimits = append(s.Rlimits, frame.Rlimit{Resource: l.Resource, Soft: l.Soft, Hard: l.Hard})
			}
			return s, stage.VerifySpace(r.Userns)
		},
		Report: func(fd, space, file int, err error) error {
			if err != nil {
				return stage.SendReport(fd, stage.ReportOf(err), nil)
			}
			return stage.SendReport(fd, stage.Report{OK: true, SpacePID: space}, []int{file})
		},
		Probe: probe.Inside,
	}
}
