//go:build !cgo

package workerprog

// Able says whether this program can play the worker: it is free of C.
const Able = true
