package linux

import (
	"strconv"
	"strings"
)

// mountEntry is one line of /proc/self/mountinfo.
type mountEntry struct {
	dev    string // "major:minor" of the file system
	root   string // the folder of the file system that is mounted
	point  string // where
	fstype string
	source string
	super  string // super block options
}

func parseMountinfo(data string) []mountEntry {
	var out []mountEntry
	for _, line := range strings.Split(data, "\n") {
		left, right, ok := strings.Cut(line, " - ")
		if !ok {
			continue
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 6 || len(r) < 3 {
			continue
		}
		out = append(out, mountEntry{dev: l[2], root: unescapeMount(l[3]), point: unescapeMount(l[4]), fstype: r[0], source: unescapeMount(r[1]), super: r[2]})
	}
	return out
}

// unescapeMount undoes the kernel's octal escapes of blanks and backslashes.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func readMounts() ([]mountEntry, error) {
	data, err := readFile("/proc/self/mountinfo")
	return parseMountinfo(string(data)), err
}
