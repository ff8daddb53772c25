//go:build cgo

package workerprog

// Able says whether this program can play the worker: a program that is linked
// with C needs the host's loader and libraries to be started again inside.
const Able = false
