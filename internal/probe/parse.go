package probe

import "strings"

func lines(b []byte) []string {
	s := strings.TrimRight(string(b), "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// fieldLines returns the lines with blanks squeezed.
func fieldLines(b []byte) []string {
	out := lines(b)
	for i, l := range out {
		out[i] = strings.Join(strings.Fields(l), " ")
	}
	return out
}

func cutLast(s string, sep byte) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// parseInterfaces reads /proc/net/dev.
func parseInterfaces(b []byte) []string {
	var out []string
	for i, l := range lines(b) {
		if name, _, ok := strings.Cut(l, ":"); ok && i >= 2 {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

// parseMounts reads a mountinfo file. A line of another form is kept with an
// empty type, which nothing takes for harmless.
func parseMounts(b []byte) []Mount {
	var out []Mount
	for _, l := range lines(b) {
		left, right, ok := strings.Cut(l, " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 6 || len(g) < 1 {
			out = append(out, Mount{Point: l, Options: "rw"})
			continue
		}
		out = append(out, Mount{Dev: f[2], Root: unescape(f[3]), Point: unescape(f[4]), Options: f[5], Type: g[0]})
	}
	return out
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] <= '3' && s[i+1] >= '0' && isOctal(s[i+2]) && isOctal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

// writable reports whether the mount's own options let it be written.
func (m *Mount) writable() bool {
	for _, o := range strings.Split(m.Options, ",") {
		if o == "ro" {
			return false
		}
	}
	return true
}

// kernelFS are file systems that hold no files of anybody.
var kernelFS = map[string]bool{"proc": true, "devpts": true, "mqueue": true, "tmpfs": true, "ramfs": true, "cgroup": true, "cgroup2": true, "sysfs": true,
	"dev": true} // the last: devices of gVisor's kernel

// below reports whether path is dir or below it.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// strayMounts returns the mounts that can be written, hold real files and are not
// planned by s. A device node bound from the host is not a place to write to.
func strayMounts(s *Spec, ms []Mount) []string {
	var out []string
	for i := range ms {
		m := &ms[i]
		if !m.writable() || kernelFS[m.Type] || isDeviceNode(m.Point) || coversProc(m) {
			continue
		}
		planned := false
		for _, w := range s.Writable {
			planned = planned || below(m.Point, w)
		}
		if !planned {
			out = append(out, m.Point+" ("+m.Type+")")
		}
	}
	return out
}

// coversProc reports whether a mount is an empty device by which engines cover a
// file of /proc. Whatever is written there is gone; a file elsewhere that had that
// name would be nobody's either, below /proc.
func coversProc(m *Mount) bool {
	return m.Root == "/null" && (m.Type == "devtmpfs" || m.Type == "tmpfs") && strings.HasPrefix(m.Point, "/proc/")
}

// isDeviceNode names the places below /dev at which a node of the host is bound
// where nodes cannot be made. Their number is the minimal set of P32.dev.
func isDeviceNode(point string) bool {
	name, ok := strings.CutPrefix(point, "/dev/")
	return ok && minimalDev[name] && name != "shm" && name != "pts" && name != "mqueue"
}

// minimalDev is what /dev may hold.
var minimalDev = map[string]bool{"null": true, "zero": true, "full": true, "random": true, "urandom": true, "tty": true, "console": true, "ptmx": true,
	"pts": true, "shm": true, "mqueue": true, "fd": true, "stdin": true, "stdout": true, "stderr": true, "core": true}
