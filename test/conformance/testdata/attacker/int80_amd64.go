//go:build linux

package main

// int80 makes a system call by the gate of 32-bit programs, whose numbers and
// filters are others. It returns the kernel's answer: negative is an error.
func int80(nr, a, b, c, d, e uint32) int32

const x32 = 0x40000000
