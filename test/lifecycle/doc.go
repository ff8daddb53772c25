// Package lifecycle tests how tasks begin, live and end on the real program:
// killed at every step, many at once, on broken hosts, with work of every kind.
//
// Its limit: it holds tests only, and reads of the product what a user can
// read: commands, folders and refs. CAISSON_TEST_FULL=1 raises all counts.
package lifecycle
