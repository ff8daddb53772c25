package wire

import (
	"context"
	"strings"

	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/config"
	"github.com/caisson-dev/caisson/internal/detect"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
)

// govern joins what the operator, the user and the repository say about a task.
func (h *house) govern(ctx context.Context, s boundary.Subject) (policy.Governing, error) {
	ask := config.Ask{Repo: s.Repo, Agent: s.Request.Agent}
	if s.Request.Trust && s.Request.Person {
		ask.Trusted = "--trust"
	}
	l, err := h.loader().Load(ctx, ask)
	if err != nil {
		return policy.Governing{}, err
	}
	g := policy.Govern(l.Rules)
	if len(l.Changed) > 0 && !l.Rules.Trusted.Value {
		g.Unfamiliar = "it was trusted, and that ended when this changed: " + strings.Join(l.Changed, ", ")
	}
	return g, nil
}

// detect looks at the command and at the files that the task begins with.
func (h *house) detect(ctx context.Context, r *source.Repo, argv []string) (boundary.Seen, error) {
	var seen boundary.Seen
	files := r.Files()
	if len(argv) > 0 {
		var look detect.Look
		if files != nil {
			look = func(name string) []byte { return files.File(ctx, name) }
		}
		a := detect.Command(argv, look)
		seen.Command, seen.Simple = a.Facts, a.Simple
	}
	if files == nil {
		return seen, nil
	}
	found, err := h.scan(ctx, r, files)
	if err != nil {
		return seen, err
	}
	seen.Repo = found.Facts
	for _, n := range found.Notes {
		text := n.Text
		if n.Path != "" {
			text = n.Path + ": " + text
		}
		seen.Notes = append(seen.Notes, text)
	}
	return seen, nil
}
