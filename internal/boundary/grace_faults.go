//go:build faults

package boundary

import "time"

// grace is short in this build, for tests.
const grace = 4 * time.Second
