//go:build linux

package linux

import (
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/backendtest"
)

func TestSuite(t *testing.T) {
	backendtest.Run(t, backendtest.Config{
		New: func(t *testing.T) backend.Driver { return usable(t) },
		Spec: func(t *testing.T, instance string) backend.Spec {
			s := newSpec(t)
			s.Instance = instance
			return s
		},
	})
}
