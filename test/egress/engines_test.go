//go:build linux

package egress

import (
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestOnEngines: the sockets inside are handed over in another way where an engine
// makes the boundary, and all that follows is the same. One test of each kind shows
// it; CAISSON_TEST_BACKEND runs all of them.
func TestOnEngines(t *testing.T) {
	harness.OnEngines(t,
		harness.Test{Name: "Attacks", Run: TestAttacks, Every: true}, harness.Test{Name: "Matrix", Run: TestMatrix, GVisor: true},
		harness.Test{Name: "TrustOfATask", Run: TestTrustOfATask, Every: true, GVisor: true}, harness.Test{Name: "Ports", Run: TestPorts}, harness.Test{Name: "OwnServers", Run: TestOwnServers},
		harness.Test{Name: "InstallKilled", Run: TestInstallKilled}, harness.Test{Name: "InstallTool", Run: TestInstallTool})
}
