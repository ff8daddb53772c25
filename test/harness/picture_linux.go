package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Picture is every entry of a folder as one line: kind, mode, owner, inode,
// links, changing time, extended attributes and content. A repository's
// configuration, hooks, index, refs and reflogs are files in it like any other.
// Its key is the path, "." for the folder itself.
type Picture map[string]string

// Results is what bringing a task's results into a repository may add to it:
// its refs, and packs with their objects.
const Results = `\.git/(refs/caisson(/.*)?|objects/pack(/pack-[0-9a-f]+\.(pack|idx|rev))?)`

// gitPath and gitObject are what lies in a git directory: a folder of that
// name, or one whose name ends like it.
var (
	gitPath   = regexp.MustCompile(`(?s)(^|/)[^/]*\.(git|bare)(/|$)`)
	gitObject = regexp.MustCompile(`(?s)(^|/)[^/]*\.(git|bare)/(.*/)?objects/`)
)

// TakePicture looks at a folder without following a link.
func TakePicture(t *testing.T, dir string) Picture {
	t.Helper()
	p := Picture{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		text, err := entry(path, rel, d)
		p[rel] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func entry(path, rel string, d fs.DirEntry) (string, error) {
	i, err := d.Info()
	if err != nil {
		return "", err
	}
	st := i.Sys().(*syscall.Stat_t)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d:%d", i.Mode(), st.Uid, st.Gid)
	// git refreshes the times of objects so that a gc spares them, and makes
	// and removes lock files in its folders.
	if !gitObject.MatchString(rel) && !(gitPath.MatchString(rel) && i.IsDir()) {
		fmt.Fprintf(&b, " mtime %d.%09d", st.Mtim.Sec, st.Mtim.Nsec)
	}
	if !i.IsDir() {
		fmt.Fprintf(&b, " inode %d links %d", st.Ino, st.Nlink)
	}
	switch {
	case i.Mode().IsRegular():
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, " size %d %s", i.Size(), hex.EncodeToString(sum.Sum(nil)[:12]))
	case i.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, " -> %q", to)
	}
	return b.String() + attributes(path), nil
}

func attributes(path string) string {
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buf)
	if err != nil || n == 0 {
		return ""
	}
	out := ""
	names := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
	slices.Sort(names)
	for _, name := range names {
		if n, err := unix.Lgetxattr(path, name, buf); err == nil {
			out += fmt.Sprintf(" %s=%x", name, buf[:n])
		}
	}
	return out
}

// leftover are names of what git and we hold only while we work.
var leftover = regexp.MustCompile(`(\.lock|\.keep|/tmp_[^/]*)$`)

// Changed describes what is not as it was. allow are patterns of whole paths
// that may be new, other or gone; a lock file never may.
func (p Picture) Changed(now Picture, allow ...string) []string {
	may := regexp.MustCompile(`^(?s:` + strings.Join(allow, "|") + `)$`)
	var out []string
	note := func(path, text string) {
		if len(allow) == 0 || !may.MatchString(path) || leftover.MatchString(path) {
			out = append(out, text)
		}
	}
	for k, v := range p {
		if n, ok := now[k]; !ok {
			note(k, fmt.Sprintf("gone: %q", k))
		} else if n != v {
			note(k, fmt.Sprintf("changed: %q: %s, now %s", k, v, n))
		}
	}
	for k, v := range now {
		if _, ok := p[k]; !ok {
			note(k, fmt.Sprintf("new: %q: %s", k, v))
		}
	}
	slices.Sort(out)
	return out
}
