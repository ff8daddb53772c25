//go:build cgo

package workerprog

// Able says whether this program can play the worker: a thread-wide system call
// is not to be had in a program that is linked with C.
const Able = false
