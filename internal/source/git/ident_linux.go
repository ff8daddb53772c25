package git

import (
	"fmt"
	"os"
	"syscall"
)

// programIdent tells a file from every other and from what it was before it
// was changed: nobody can set its changing time. Empty: it cannot be told.
func programIdent(path string) string {
	i, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%x.%x.%d.%d.%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
}
