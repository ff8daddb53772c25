//go:build linux

package linux

// roles are what the test binary does when it is started again by a test.
var roles = map[string]func() int{}
