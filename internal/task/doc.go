// Package task is the vocabulary every room of caisson understands: plain
// values with closed sets of names.
//
// Its limit: no I/O, no goroutines, nothing imported beyond the standard
// library. Zero values deny, enforce nothing and show nothing.
package task
