// Package results holds the tests of what comes back from a task: change sets
// against plain git, every way into and out of the user's checkout, results
// that attack the host, races and crashes.
//
// Its limit: it knows the product by its command line only. CAISSON_TEST_FULL=1
// raises all counts, and lets each identity take every case.
package results
