package sys

import (
	"math"

	"golang.org/x/sys/unix"
)

// Space returns what is free in the file system at path: bytes, those reserved
// for root included, and inodes, 0 where it has no fixed number of them. What is
// written and not yet on disk counts as taken.
func Space(path string) (bytes, inodes int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, err
	}
	return int64(min(st.Bfree, math.MaxInt64>>20)) * max(int64(st.Bsize), 1), int64(min(st.Ffree, math.MaxInt64>>20)), nil
}
