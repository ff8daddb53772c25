// Package engines tries what is made by container engines: the product's own path
// from open to close on a Docker Engine and a Podman of this run alone, and what
// happens when somebody else takes hold of a container.
//
// Its limit: it holds nothing but tests; what every backend promises is in
// internal/backend/backendtest and in test/conformance.
package engines
