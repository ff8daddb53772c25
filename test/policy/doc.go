// Package policy tests with the real program what decides which boundary a task
// gets: that a first run needs no setting, that what is refused has no effect and
// is on record, that each printed way out is one, and that nobody but the operator
// and a person loosens anything.
//
// Its limit: it shows what the program says and does; the rules themselves are
// proved in internal/policy, and that a boundary holds in test/conformance.
package policy
