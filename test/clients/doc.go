// Package clients drives `caisson mcp` with programs that other people wrote: the
// protocol's own conformance runner, its inspector, and agent clients whose model
// is a script.
//
// Its limit: the programs come from npm, from the lockfiles beside it, and run
// without a network; where they cannot be had the tests say so and skip.
package clients
