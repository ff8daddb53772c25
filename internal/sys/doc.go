// Package sys is the shelf of operating-system helpers: durable files, locks,
// process identity, private folders, detached deadlines, fault points.
//
// Its limit: no domain words, nothing of ours imported, plain errors. What a
// platform cannot do is an error that matches ErrUnsupported, never a guess.
package sys

import "errors"

// ErrUnsupported says that this platform lacks the facility.
var ErrUnsupported = errors.ErrUnsupported
