//go:build unix

package broker

import "io/fs"

// othersRead says whether the file's mode lets anybody but its owner have it.
func othersRead(fi fs.FileInfo) bool { return fi.Mode().Perm()&0o077 != 0 }
