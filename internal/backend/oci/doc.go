// Package oci makes boundaries with an OCI runtime and no engine: gVisor's runsc,
// crun and runc, each started with a bundle that is made for the one boundary.
//
// Its limit: it asks the runtime for what a plan names and for nothing more, keeps no
// daemon, and signals no process that is not proven to be of its own boundary.
package oci
