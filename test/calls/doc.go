// Package calls tests tool calls on the real product: what a harness gets to
// see of them, and what nothing inside a boundary can bring about.
//
// Its limit: it holds tests only. Where the product has no command line for a
// thing, the test program itself drives the engine, as another process.
package calls
