// Package guarantees holds docs/GUARANTEES.md and docs/comparison.md to the runs of
// `caisson verify` that they are made from, and these to the attacks that there are.
// With CAISSON_GUARANTEES=write (`make guarantees`) it makes the runs anew.
//
// Its limit: without that nothing is measured here; test/conformance and
// test/engines are what fails when a boundary breaks.
package guarantees
