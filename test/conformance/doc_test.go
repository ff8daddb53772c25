// Package conformance attacks the product through its own command line: a
// hostile program is content of a task and tries what the boundary must
// refuse, while everything it could reach stands planted on the host. The same
// program runs outside as the control. Property numbers (P01, P12, …) are those
// of the conformance table; docs/THREAT-MODEL.md says what they protect.
//
// Its limit: isolation only. Crashes and long loops belong to test/lifecycle,
// and what one machine cannot show is said in the test's output.
package conformance
