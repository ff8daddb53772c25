// Package workerprog is the program inside a boundary: it joins the worker's
// inside half with the linux stage and the probe. cmd/caisson-worker is this
// program; caisson plays it too when it was built without the small one.
//
// Its limit: it joins; it has no flags, reads no files and no environment.
package workerprog

// Arg0 is the name, as first argument, by which a program knows that it is the
// worker.
const Arg0 = "caisson-worker"
