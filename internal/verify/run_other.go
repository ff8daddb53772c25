//go:build !linux

package verify

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

func run(context.Context, Config) (*task.VerifyReport, error) {
	return nil, task.Errorf(task.CodeUnsupported, "verify", "the attacks are made on Linux only").
		WithHint("run it on the machine on which the boundaries are")
}

func playFar() int { return 2 }
