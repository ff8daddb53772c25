package linux

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/sys"
)

// trialInstance stands in the names of what a trial makes. A trial is in no
// inventory; its names say instead which process made it, so that a later
// trial can take away what one that was killed left behind.
const trialInstance = "trial"

// nameOf names a boundary's cgroups.
func nameOf(s backend.Spec) string {
	if s.Instance != trialInstance {
		return groupName(s.Instance, s.Task, s.Token)
	}
	id, err := sys.Self()
	if err != nil {
		return groupName(s.Instance, s.Task, s.Token)
	}
	return fmt.Sprintf("%s%s-%d-%d-%d-%s", cgroupPrefix, trialInstance, id.PID, id.Start, id.PIDNS, s.Token[:8])
}

// sweepTrials removes the empty groups of trials whose process is certainly
// dead. Their workers died with it.
func sweepTrials(hs []hierarchy) {
	self, err := sys.Self()
	if err != nil {
		return
	}
	for _, h := range hs {
		dirs, _ := filepath.Glob(filepath.Join(escapeGlob(h.parent), cgroupPrefix+trialInstance+"-*"))
		for _, dir := range dirs {
			id := self // the same boot: cgroups do not outlive one
			var token string
			name := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix+trialInstance+"-"), "-", " ")
			if n, err := fmt.Sscanf(name, "%d %d %d %s", &id.PID, &id.Start, &id.PIDNS, &token); err != nil || n != 4 || len(token) != 8 || id.PIDNS != self.PIDNS {
				continue
			}
			if sys.Look(id) == sys.Dead {
				_ = unix.Rmdir(dir) // fails when anything is in it
			}
		}
	}
}
