//go:build cgo

package guest_test

// withCgo: a program with C in it cannot make a system call on all of its threads,
// which the worker does when it gives its capabilities up. The product has none.
const withCgo = true
