//go:build !linux

package wire

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

func (h *house) machine(context.Context) map[string][]task.Feature { return nil }
