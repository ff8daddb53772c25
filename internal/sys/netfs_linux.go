package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// networkFS maps statfs types of file systems whose locks and shared memory
// other machines, or nobody, see.
var networkFS = map[int64]string{
	0x6969: "nfs", 0x517b: "smb", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x5346414f: "afs", 0x6b414653: "afs",
	0x73757245: "coda", 0x564c: "ncp", 0x01021997: "9p", 0x00c36400: "ceph", 0x7461636f: "ocfs2", 0x01161970: "gfs2",
	0x0bd00bd0: "lustre", 0x47504653: "gpfs", 0x19830326: "beegfs", 0x20030528: "orangefs", 0xaad7aaea: "panfs",
}

// remoteFUSE lists FUSE file systems that talk to another machine. Others
// (virtiofs, encrypting overlays) keep locks and shared memory local.
var remoteFUSE = []string{"sshfs", "glusterfs", "s3fs", "rclone", "davfs", "curlftpfs", "goofys", "gcsfuse", "blobfuse", "juicefs", "ceph", "grpcfuse"}

// IsNetworkFS reports whether path, or its nearest existing parent, lies on a
// file system shared with other machines, and the file system's name.
func IsNetworkFS(path string) (name string, network bool, err error) {
	var st unix.Statfs_t
	for {
		err = unix.Statfs(path, &st)
		if err != unix.ENOENT || path == filepath.Dir(path) {
			break
		}
		path = filepath.Dir(path)
	}
	if err != nil {
		return "", false, fmt.Errorf("statfs %s: %w", path, err)
	}
	typ := int64(st.Type) & 0xffffffff
	if n, ok := networkFS[typ]; ok {
		return n, true, nil
	}
	if typ != unix.FUSE_SUPER_MAGIC {
		return "", false, nil
	}
	n := mountType(path)
	for _, r := range remoteFUSE {
		if strings.Contains(n, r) {
			return n, true, nil
		}
	}
	return n, false, nil
}

// OwnerOnly reports whether path lies on a FUSE file system that answers nobody
// but the user who mounted it (it has no allow_other), not even root.
func OwnerOnly(path string) bool {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil || int64(st.Type)&0xffffffff != unix.FUSE_SUPER_MAGIC {
		return false
	}
	f := mountFields(path)
	// What the kernel itself mounts that way (virtiofs) answers everybody.
	return len(f) == 3 && strings.HasPrefix(f[0], "fuse") && !slices.Contains(strings.Split(f[2], ","), "allow_other")
}

// mountType returns the type of the mount with path's device number.
func mountType(path string) string {
	if f := mountFields(path); len(f) > 0 {
		return f[0]
	}
	return ""
}

// mountFields returns type, source and options of the file system with path's
// device number; nil when it is not mounted here.
func mountFields(path string) []string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return nil
	}
	want := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != want {
			continue
		}
		for i, w := range f {
			if w == "-" && i+1 < len(f) {
				return f[i+1:]
			}
		}
	}
	return nil
}
