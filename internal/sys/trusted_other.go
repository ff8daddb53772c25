//go:build !unix

package sys

import "os"

// OpenTrusted opens a folder or a file. Who may change it is said by access lists
// here, which this platform's administrator keeps; they are not judged.
func OpenTrusted(name string, owners ...int) (*os.File, error) { return os.Open(name) }
