package foreign

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/idmapped"
	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/task"
)

// Places inside.
const (
	WorkerAt = "/run/boundary/worker"
	MarkAt   = "/run/boundary/mark"
)

// SeenDir is the part of a generated folder where folders of root's are mounted as
// another user's, while a boundary is made.
const SeenDir = "seen"

// Names in a generated folder.
const (
	TokenFile = "token" // proves whose it is
	markFile  = "mark"
)

// What of /proc tells of the machine or reaches its kernel. The lists of engines and
// runtimes, which these replace, are shorter.
var (
	Masked = []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg",
		"/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/pagetypeinfo", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo", "/proc/timer_list", "/proc/timer_stats",
		"/proc/tty", "/proc/vmallocinfo", "/sys/devices/virtual/powercap", "/sys/firmware"}
	ReadOnly = []string{"/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// MarkOf is what a file of this boundary's root says. Tools can read it: it tells
// nothing of the token.
func MarkOf(s backend.Spec) string {
	sum := sha256.Sum256([]byte("mark of " + s.Token))
	return hex.EncodeToString(sum[:])
}

// Generate fills dir, which exists and is empty, with what is generated for the root
// of s, and the token that proves whose it is. uid and gid are the tools' inside.
func Generate(dir string, s backend.Spec, uid, gid int) (*rootdir.Layout, error) {
	put := func(name, text string, mode os.FileMode) error {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		return os.WriteFile(p, []byte(text), mode)
	}
	err := errors.Join(put(TokenFile, s.Token, 0o400), put("root/"+markFile, MarkOf(s), 0o444), put("root/none", "", 0o444), os.Mkdir(filepath.Join(dir, "root/empty"), 0o755),
		os.Mkdir(filepath.Join(dir, "root/bin"), 0o755), os.Mkdir(filepath.Join(dir, "root/sys"), 0o755), os.MkdirAll(filepath.Join(dir, "root/none.sys/fs/cgroup"), 0o755), os.Mkdir(filepath.Join(dir, "root/closed"), 0o700))
	if err != nil {
		return nil, err
	}
	modes := map[string]os.FileMode{}
	for _, f := range s.Files {
		name := "root/bin/" + strings.TrimPrefix(f.Target, backend.BinDir+"/")
		if err := put(name, f.Text, 0o600); err != nil {
			return nil, err
		}
		modes[filepath.Join(dir, name)] = os.FileMode(f.Mode & 0o555)
	}
	layout := &rootdir.Layout{}
	if s.Image != "" {
		for name, text := range rootdir.Identity(s, "", uid, gid) {
			if name != "passwd" && name != "group" {
				continue
			}
			if err := put("root/sys/"+name, strings.ReplaceAll(text, ":/bin/bash\n", ":/bin/sh\n"), 0o444); err != nil {
				return nil, err
			}
			layout.Binds = append(layout.Binds, backend.Mount{Source: filepath.Join(dir, "root/sys", name), Target: "/etc/" + name})
		}
		if text := rootdir.GitConfig(s); text != "" {
			if err := put("root/sys/gitconfig", text, 0o444); err != nil {
				return nil, err
			}
			layout.Binds = append(layout.Binds, backend.Mount{Source: filepath.Join(dir, "root/sys/gitconfig"), Target: "/etc/gitconfig"})
		}
	} else if layout, err = rootdir.Build(filepath.Join(dir, "root/sys"), s, uid, gid, "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"); err != nil {
		return nil, err
	}
	// Readable by everybody inside, whatever the mask was; the folder itself is
	// closed to others here.
	return layout, filepath.WalkDir(filepath.Join(dir, "root"), func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || e.Type()&fs.ModeSymlink != 0:
			return err
		case e.IsDir() && e.Name() == "closed":
			if err := os.Chmod(p, 0); err != nil {
				return err
			}
			return fs.SkipDir
		case e.IsDir():
			return os.Chmod(p, 0o755)
		case modes[p] != 0:
			return os.Chmod(p, modes[p])
		}
		return os.Chmod(p, 0o444)
	})
}

// Binds lists everything of the host that is mounted, outer places before inner
// ones. dir is the generated folder.
func Binds(dir string, l *rootdir.Layout, s backend.Spec) ([]backend.Mount, error) {
	const op = "backend.mounts"
	gen := filepath.Join(dir, "root")
	var out []backend.Mount
	at := map[string]int{}
	add := func(source, target string, writable bool) {
		m := backend.Mount{Source: source, Target: target, Writable: writable}
		if i, twice := at[target]; twice {
			out[i] = m
			return
		}
		at[target] = len(out)
		out = append(out, m)
	}
	for _, b := range l.Binds {
		add(b.Source, b.Target, false)
		if b.Target == "/etc" && s.Image == "" && s.Rootfs == "" {
			// Podman puts files of its own over these two where nobody else does.
			add(filepath.Join(b.Source, "passwd"), "/etc/passwd", false)
			add(filepath.Join(b.Source, "group"), "/etc/group", false)
		}
	}
	for _, m := range rootdir.Mounts(s) {
		if _, err := os.Stat(m.Source); err != nil {
			return nil, task.Errorf(task.CodeNotFound, op, "a folder to mount is not there: %w", err).WithHint("nothing was created")
		}
		add(m.Source, m.Target, m.Writable)
	}
	for _, m := range rootdir.Mounts(s) {
		for _, h := range m.Hide {
			if cover := coverOf(gen, m.Source, h); cover != "" {
				add(cover, filepath.Join(m.Target, h), false)
			}
		}
		for _, c := range m.Cover {
			cover := coverOf(gen, m.Source, c)
			if cover == "" {
				return nil, task.Errorf(task.CodeUnavailable, op, "%s is not there to be covered", filepath.Join(m.Source, c))
			}
			add(cover, filepath.Join(m.Target, c), false)
		}
	}
	// Who makes the root shows /sys and the groups in it, read-only; nobody inside
	// needs them.
	add(filepath.Join(gen, "none.sys"), "/sys", false)
	add(filepath.Join(gen, "closed"), "/sys/fs/cgroup", false)
	add(s.WorkerPath, WorkerAt, false)
	add(filepath.Join(gen, markFile), MarkAt, false)
	add(filepath.Join(gen, "bin"), backend.BinDir, false)
	sort.SliceStable(out, func(i, j int) bool { return strings.Count(out[i].Target, "/") < strings.Count(out[j].Target, "/") })
	return out, places(out, dir)
}

// places refuses a mount whose place would have to be made in a folder of this
// machine's that is shown: runtimes make it there, read-only as it is inside.
func places(ms []backend.Mount, dir string) error {
	for i, m := range ms {
		outer := -1
		for j, o := range ms[:i] {
			if strings.HasPrefix(m.Target, o.Target+"/") && (outer < 0 || len(o.Target) >= len(ms[outer].Target)) {
				outer = j
			}
		}
		if outer < 0 || ms[outer].Writable || strings.HasPrefix(ms[outer].Source, dir+"/") {
			continue // in memory, the task's own, or generated
		}
		o := ms[outer]
		if _, err := os.Lstat(filepath.Join(o.Source, strings.TrimPrefix(m.Target, o.Target+"/"))); err != nil {
			return task.Errorf(task.CodeUnsafePath, "backend.mounts", "the place %s cannot be made: it lies in %s, which is %s of this machine, and is not there", m.Target, o.Target, o.Source).
				WithHint("choose another place with --at DIR, or after the colon of --ro")
		}
	}
	return nil
}

// coverOf returns what covers a path below a mount; empty: nothing is there.
func coverOf(gen, source, rel string) string {
	st, err := os.Lstat(filepath.Join(source, rel))
	switch {
	case err != nil:
		return ""
	case st.IsDir():
		return filepath.Join(gen, "empty")
	}
	return filepath.Join(gen, "none")
}

// Ours reports whether a generated folder carries the token.
func Ours(dir, token string) bool {
	b, err := os.ReadFile(filepath.Join(dir, TokenFile))
	return err == nil && len(token) >= 16 && string(b) == token
}

// Remove removes a generated folder that is proven ours. One that is there without a
// token was made a moment before its maker died, and is empty.
func Remove(dir, token string) error {
	if dir == "" {
		return nil
	}
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if !Ours(dir, token) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the folder %s is not proven ours: %w", dir, err)
		}
		return nil
	}
	// First what may be mounted: behind it are files that are none of this folder's.
	if err := idmapped.Remove(filepath.Join(dir, SeenDir)); err != nil {
		return err
	}
	return removeRest(dir)
}

// removeRest removes what is in a folder of ours, and it. Where folders of a task's
// may be mounted nothing is gone into: should one be there again, it stays, and so does
// dir. The token goes last: what is left stays provable.
func removeRest(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range entries {
		if f.Name() == SeenDir {
			return fmt.Errorf("%s is there again: somebody makes the boundary", filepath.Join(dir, SeenDir))
		}
	}
	for _, f := range entries {
		if f.Name() == TokenFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, TokenFile)); err != nil {
		return err
	}
	return os.Remove(dir)
}
