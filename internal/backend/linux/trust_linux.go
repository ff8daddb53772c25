package linux

import (
	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
)

// trust has programs inside trust the boundary's own certificates beside those of
// the system.
func (pl *planner) trust() {
	text, over := rootdir.Trust(pl.spec)
	if text == "" {
		return
	}
	pl.add(stage.Step{Op: "file", Target: backend.TrustFile, Mode: 0o444, Data: text})
	for _, name := range over {
		pl.add(stage.Step{Op: "over", Source: backend.TrustFile, Target: name})
	}
}
