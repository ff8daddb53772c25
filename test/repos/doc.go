// Package repos holds the tests of every kind of repository that people have:
// each is made by real git, and a task on it either works in every way or is
// refused before it has any effect, with the next step. The table that the
// tests run is also docs/repositories.md.
//
// Its limit: it knows the product by its command line only. CAISSON_TEST_FULL=1
// lets each identity take every kind, and makes the large ones larger.
package repos
