package guest

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// StartTime reads from a process's stat when it began, in ticks since boot.
func StartTime(stat string) (uint64, error) {
	b, err := os.ReadFile(stat)
	if err != nil {
		return 0, err
	}
	i := strings.LastIndexByte(string(b), ')') // a name may hold anything
	if i < 0 {
		return 0, errors.New("guest: no stat of a process")
	}
	f := strings.Fields(string(b)[i+1:])
	if len(f) < 20 {
		return 0, errors.New("guest: no stat of a process")
	}
	return strconv.ParseUint(f[19], 10, 64)
}
