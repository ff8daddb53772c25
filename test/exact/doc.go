// Package exact holds the tests of what is unusual in a repository: file names,
// refs and task names of any text, names that one file system takes for the
// same, attributes that convert content, very many and very large files. Plain
// git on a plain clone says what is right, byte for byte; and a picture of the
// whole host before and after says that nothing else happened.
//
// Its limit: it knows the product by its command line only. CAISSON_TEST_FULL=1
// raises all counts; figures are printed and never compared with a limit.
// CAISSON_TEST_FOLDING=DIR names a folder on a file system without case, where
// the kernel has none; CAISSON_TEST_ALONE=1 says that nothing else happens on the
// machine, so that every difference of the host counts.
package exact
