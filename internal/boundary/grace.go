//go:build !faults

package boundary

import "time"

// grace is how long what runs goes on after an acceptance that it rests on is over.
const grace = 5 * time.Minute
