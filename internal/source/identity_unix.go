//go:build unix

package source

import (
	"os"
	"syscall"

	"github.com/caisson-dev/caisson/internal/task"
)

// identity tells which folder an open one is, whatever its name.
func identity(f *os.File) (dev, ino uint64, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, 0, task.Errorf(task.CodeSource, "source.identity", "%s cannot be looked at: %v", quote(f.Name()), err)
	}
	s := st.Sys().(*syscall.Stat_t)
	return uint64(s.Dev), s.Ino, nil
}
