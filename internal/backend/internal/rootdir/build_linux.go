package rootdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
)

// Layout is a root for a program that takes a folder and binds.
type Layout struct {
	// Links are to be made in the root, by their paths, before anything is mounted.
	Links map[string]string
	// Binds are read-only, outer places before inner ones.
	Binds []backend.Mount
}

// notShown are folders of a prepared root that a boundary has of its own.
var notShown = map[string]bool{"dev": true, "proc": true, "sys": true, "run": true, "tmp": true, "home": true, "root": true, "mnt": true, "media": true, "boot": true, "lost+found": true}

// tops are the system folders beside /usr.
var tops = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// Build makes the generated files below dir, which exists and is empty, and says
// what the root of s is. uid and gid are the tools' inside; needed are places that
// the program which makes the root mounts something at by itself. Nothing of what is
// made may be written by anybody.
func Build(dir string, s backend.Spec, uid, gid int, needed ...string) (*Layout, error) {
	b := &build{dir: dir, spec: s, needed: needed, Layout: Layout{Links: map[string]string{}}}
	var err error
	if s.Rootfs != "" {
		err = b.prepared(uid, gid)
	} else {
		err = b.system(uid, gid)
	}
	return &b.Layout, err
}

type build struct {
	Layout
	dir    string
	spec   backend.Spec
	needed []string
}

func (b *build) bind(source, target string) {
	b.Binds = append(b.Binds, backend.Mount{Source: source, Target: target})
}

// system is a root of this machine's system folders and a generated /etc.
func (b *build) system(uid, gid int) error {
	b.bind("/usr", "/usr")
	for _, name := range tops {
		st, err := os.Lstat(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return err
		case st.Mode()&os.ModeSymlink == 0:
			b.bind(name, name)
			continue
		}
		if dest, err := filepath.EvalSymlinks(name); err == nil && strings.HasPrefix(dest, "/usr/") {
			b.Links[name] = strings.TrimPrefix(dest, "/")
		}
	}
	etc := filepath.Join(b.dir, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		return err
	}
	files := Identity(b.spec, "", uid, gid)
	if text := GitConfig(b.spec); text != "" {
		files["gitconfig"] = text
	}
	for _, name := range EtcCopied {
		if text, ok := ReadPublic("/etc/" + name); ok {
			files[name] = text
		}
	}
	if b.spec.Way != nil {
		for _, dir := range BrowserPolicies {
			files[strings.TrimPrefix(dir, "/etc/")+"/caisson.json"] = BrowserPolicy
		}
	}
	for name, text := range files {
		if err := write(filepath.Join(etc, name), text, 0o444); err != nil {
			return err
		}
	}
	b.bind(etc, "/etc")
	if err := os.Symlink("/proc/self/mounts", filepath.Join(etc, "mtab")); err != nil {
		return err
	}
	if dest, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if err := b.etcPart(etc, "/etc/localtime", dest); err != nil {
			return err
		}
	}
	for _, pattern := range EtcBound {
		names, _ := filepath.Glob("/etc/" + pattern)
		for _, name := range names {
			dest, err := filepath.EvalSymlinks(name)
			if err != nil {
				continue // absent, or a link into nothing
			}
			if dest != name && !strings.HasPrefix(dest, "/usr/") {
				continue
			}
			if err := b.etcPart(etc, name, dest); err != nil {
				return err
			}
		}
	}
	return nil
}

// etcPart shows one part of this machine's /etc that dest is: by a link where it
// is in /usr, which is there, else by a bind on a place made for it.
func (b *build) etcPart(etc, name, dest string) error {
	at := filepath.Join(etc, strings.TrimPrefix(name, "/etc/"))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if strings.HasPrefix(dest, "/usr/") {
		return ignoreExisting(os.Symlink(dest, at))
	}
	st, err := os.Stat(dest)
	if err != nil {
		return nil
	}
	if st.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else {
		err = write(at, "", 0o444)
	}
	b.bind(dest, name)
	return err
}

func ignoreExisting(err error) error {
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// write makes a file that nobody writes, whatever the mask is.
func write(path, text string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// prepared is a root of a folder that a person chose.
func (b *build) prepared(uid, gid int) error {
	s := b.spec
	entries, err := os.ReadDir(s.Rootfs)
	if err != nil {
		return err
	}
	needed := append([]string{"/var/tmp", s.Home}, b.needed...)
	for _, m := range Mounts(s) {
		needed = append(needed, m.Target)
	}
	files := Identity(s, s.Rootfs, uid, gid)
	for name := range files {
		if wanted(s, name) {
			needed = append(needed, "/etc/"+name)
		}
	}
	for _, e := range entries {
		if notShown[e.Name()] {
			continue
		}
		if err := b.tree(filepath.Join(s.Rootfs, e.Name()), "/"+e.Name(), needed, 0); err != nil {
			return err
		}
	}
	for name, text := range files {
		// A file that the root has is covered by ours; none can be added to a folder
		// that is read-only.
		if st, err := os.Lstat(filepath.Join(s.Rootfs, "etc", name)); (err != nil || !st.Mode().IsRegular()) && !(errors.Is(err, os.ErrNotExist) && wanted(s, name)) {
			continue
		}
		own := filepath.Join(b.dir, "over", name)
		if err := write(own, text, 0o444); err != nil {
			return err
		}
		b.bind(own, "/etc/"+name)
	}
	return nil
}

// wanted reports whether a file of /etc has to be there, though a prepared root may
// have none: names would not be found without it, or hosts of SSH not known.
func wanted(s backend.Spec, name string) bool {
	return s.Way != nil && (name == "resolv.conf" || name == "nsswitch.conf") || name == "ssh/ssh_known_hosts"
}

// tree binds src, or its children one by one where a place that is needed below it
// does not exist in it.
func (b *build) tree(src, target string, needed []string, depth int) error {
	st, err := os.Lstat(src)
	if err != nil {
		return err
	}
	if st.Mode()&os.ModeSymlink != 0 {
		dest, err := os.Readlink(src)
		if err == nil {
			b.Links[target] = dest
		}
		return err
	}
	if !st.IsDir() && !st.Mode().IsRegular() {
		return nil
	}
	split := false
	for _, n := range needed {
		if rel, ok := strings.CutPrefix(n, target+"/"); ok && st.IsDir() {
			if _, err := os.Lstat(filepath.Join(src, rel)); err != nil {
				split = true
			}
		}
	}
	if !split {
		b.bind(src, target)
		return nil
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	if depth > 3 || len(entries) > 200 {
		return fmt.Errorf("a mount point below %s is missing in the root file system and cannot be added", target)
	}
	for _, e := range entries {
		if err := b.tree(filepath.Join(src, e.Name()), filepath.Join(target, e.Name()), needed, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Mounts lists every mount that s names, in the order of their importance: of two
// at one place the later one is seen.
func Mounts(s backend.Spec) []backend.Mount {
	var all, out []backend.Mount
	all = append(all, s.Tools...)
	all = append(all, s.RO...)
	all = append(all, s.Source, s.Out)
	all = append(all, s.Write...)
	all = append(all, s.Objects...)
	for _, m := range all {
		if m.Source != "" {
			out = append(out, m)
		}
	}
	return out
}
