// Package oci tries what is made by runtimes without an engine: the product's own path
// from open to close with gVisor, crun and runc, and what happens when somebody else
// takes hold of a boundary.
//
// Its limit: it holds nothing but tests; what every backend promises is in
// internal/backend/backendtest and in test/conformance.
package oci
