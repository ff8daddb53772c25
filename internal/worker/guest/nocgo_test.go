//go:build !cgo

package guest_test

const withCgo = false
