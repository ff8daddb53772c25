// Package realwork tests the product on real projects with real toolchains:
// what a developer does all day must work inside a boundary as it does outside,
// byte for byte, and leave the user's repository and the host as they were.
//
// Its limit: it proves that work gets done; that nothing gets out is for the
// attack tests of the backend and the conformance suite.
//
// CAISSON_TEST_FULL=1 makes the heavy parts full size.
package realwork
