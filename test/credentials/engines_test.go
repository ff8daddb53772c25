//go:build linux

package credentials

import (
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestOnEngines: what is lent is lent by the same gate and at sockets of the host's
// own where an engine makes the boundary. CAISSON_TEST_BACKEND runs all tests so.
func TestOnEngines(t *testing.T) {
	harness.OnEngines(t,
		harness.Test{Name: "OnlyThere", Run: TestOnlyThere, Every: true}, harness.Test{Name: "ComesBackClean", Run: TestComesBackClean}, harness.Test{Name: "AgentAttacks", Run: TestAgentAttacks, Every: true, GVisor: true},
		harness.Test{Name: "GitOverSSH", Run: TestGitOverSSH}, harness.Test{Name: "LoanKilled", Run: TestLoanKilled})
}
