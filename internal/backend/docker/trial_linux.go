package docker

import (
	"context"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
)

// sweepTrials takes away what trials left whose process died in one: the worker ended
// with it, and the container is there still. What cannot be taken away now, for the
// engine does not answer, is the next one's.
func (d *Driver) sweepTrials(ctx context.Context) {
	for _, l := range foreign.LeftTrials(d.cfg.Dir, prefix, d.name) {
		if len(l.Token) < 16 {
			_ = foreign.Remove(l.Dir, "") // empty: no container was made yet
			continue
		}
		in, err := d.Attach(ctx, []backend.Resource{
			{Kind: kindFolder, Name: l.Dir, Token: l.Token, External: "folder"},
			{Kind: kindContainer, Name: filepath.Base(l.Dir), Token: l.Token},
		})
		if err == nil {
			_ = in.Destroy(ctx)
		}
	}
}
