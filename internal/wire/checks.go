package wire

import (
	"context"

	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// checks are doctor's trials of what is not a backend.
func (h *house) checks(ctx context.Context) []task.Feature {
	var fs []task.Feature
	add := func(name, detail, fix string, err error) {
		f := task.Feature{Name: name, OK: err == nil, Detail: detail}
		if err != nil {
			f.Detail, f.Fix = err.Error(), fix
		}
		fs = append(fs, f)
	}
	add("state directory", h.dirs.State, "make it writable, or set CAISSON_STATE_DIR", sys.Writable(h.dirs.State))
	add("runtime directory", h.dirs.Runtime, "make it writable, or set CAISSON_RUNTIME_DIR", sys.Writable(h.dirs.Runtime))
	v, err := source.GitVersion(ctx)
	add("git", v, "install git 2.31 or later", err)
	path, err := h.worker()
	add("worker program", path, "build with `make build`", err)
	return fs
}

func usage(ctx context.Context, dir string) (int64, error) { return source.Usage(ctx, dir) }
