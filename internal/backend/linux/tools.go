package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// Search says where to look for toolchains. Nothing is taken from the
// environment of the process.
type Search struct {
	Path     string              // the user's PATH
	Home     string              // the user's home folder
	Checkout string              // nothing in it is a toolchain: the task has its own copy
	Absent   []string            // host paths that must not show
	Getenv   func(string) string // asked for RUSTUP_HOME and GOPATH; may be nil
}

// Found is what Discover found.
type Found struct {
	Mounts   []backend.Mount
	Tools    []task.Tool
	Missing  []task.Finding // folders on PATH whose programs are not available inside, and why
	Findings []task.Finding // what could not be screened
}

// Bounds of one search. They make it deterministic whatever the disk holds.
const (
	maxEntries = 64   // of PATH
	maxNames   = 4096 // looked at per folder
	maxHops    = 16   // of one chain of links
	maxNesting = 3    // folders whose links lead to folders whose links …
	maxMounts  = 48
)

// Discover finds what the programs on PATH need to run elsewhere, by one rule
// instead of a list of managers: resolve the links of each entry and of the
// programs in it, take the install prefix around each where it looks like one,
// and show it read-only at its own path. Credentials, configuration and sockets
// in it are hidden. System folders are visible anyway.
func Discover(s Search) Found {
	return discover(s, nil)
}

// discover is Discover; what it looks at goes into saw, which may be nil.
func discover(s Search, saw *sights) Found {
	f := &finder{s: s, saw: saw, missing: map[string]string{}}
	if real, err := f.saw.realDir(s.Home); err == nil {
		f.home = real
	}
	for i, dir := range filepath.SplitList(s.Path) {
		if i >= maxEntries {
			f.miss(dir, fmt.Sprintf("PATH has more than %d entries", maxEntries))
			break
		}
		if filepath.IsAbs(dir) {
			f.entry(filepath.Clean(dir), "on PATH", 0)
		}
	}
	f.prune()
	return f.result()
}

func (f Found) toolchains() ([]backend.Mount, []task.Tool, []task.Finding, error) {
	return f.Mounts, f.Tools, append(f.Missing, f.Findings...), nil
}

// reconciled returns the tools of a spec without those that collide with what
// matters more: the source, folders that a person granted, host paths that must
// not show.
func reconciled(s backend.Spec) (tools []backend.Mount, dropped []task.Finding) {
	for _, m := range s.Tools {
		reason := ""
		if src := s.Source.Target; hasPrefixDir(m.Target, src) || hasPrefixDir(src, m.Target) {
			reason = "it overlaps the source " + src
		}
		for _, r := range s.RO {
			if r.Target == m.Target {
				reason = "the granted folder " + r.Source + " takes its place"
			}
		}
		for _, a := range s.Absent {
			if hasPrefixDir(m.Source, a) || hasPrefixDir(a, m.Source) {
				reason = "it overlaps caisson's own files"
			}
		}
		if reason == "" {
			tools = append(tools, m)
			continue
		}
		dropped = append(dropped, task.Finding{ID: "tool-missing", Axis: task.FS, Cap: task.MaxLevel(task.FS), Location: m.Target, Text: "programs in it are not available inside: " + reason})
	}
	return tools, dropped
}

type finder struct {
	s       Search
	saw     *sights
	home    string // resolved
	mounts  []backend.Mount
	why     []string // of each mount
	seen    []string // folders whose links were followed
	missing map[string]string
}

// systemVisible are the folders that every boundary of this backend shows.
var systemVisible = []string{"/usr", "/etc/alternatives", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

func visible(path string) bool {
	for _, d := range systemVisible {
		if hasPrefixDir(path, d) {
			return true
		}
	}
	return false
}

// entry makes the programs in dir usable.
func (f *finder) entry(dir, why string, depth int) {
	real, err := f.saw.realDir(dir)
	if err != nil {
		return // an entry that does not exist is nothing to miss
	}
	if slices.Contains(f.seen, dir) {
		return
	}
	f.seen = append(f.seen, dir)
	if !f.need(dir, why) {
		return
	}
	if visible(dir) && visible(real) && real != dir {
		// /bin is /usr/bin on most systems, and PATH often names both.
		if slices.Contains(f.seen, real) {
			return
		}
		f.seen = append(f.seen, real)
	}
	names := f.names(real)
	for _, e := range names {
		if e.Type()&os.ModeSymlink != 0 {
			f.follow(filepath.Join(real, e.Name()), depth)
		}
		if e.Name() == "rustup" {
			f.rustup(real)
		}
	}
	if f.home != "" && real == filepath.Join(f.home, ".local/bin") {
		// What `pip install --user` put there imports from here.
		libs, _ := f.saw.glob(filepath.Join(f.s.Home, ".local/lib/python3*"))
		for _, l := range libs {
			f.need(l, "packages of "+dir)
		}
	}
}

// need shows the install prefix around dir at its real path and, where links
// lead to it, at the path by which it is called.
func (f *finder) need(dir, why string) bool {
	real, err := f.saw.realDir(dir)
	if err != nil {
		return false
	}
	if visible(real) && visible(dir) {
		return true
	}
	prefix := f.prefix(real)
	if reason := f.excluded(prefix); reason != "" {
		f.miss(dir, reason)
		return false
	}
	f.add(prefix, prefix, why)
	if dir == real {
		return true
	}
	// The same number of components up from the name that was used.
	rel, _ := filepath.Rel(prefix, real)
	alias, src := dir, real
	if up, ok := strings.CutSuffix(dir, "/"+rel); ok && rel != "." {
		if r, err := f.saw.realDir(up); err == nil && r == prefix {
			alias, src = up, prefix
		}
	}
	if hasPrefixDir(alias, f.s.Home) && alias != f.s.Home || !hasPrefixDir(f.s.Home, alias) {
		f.add(src, alias, why)
	}
	return true
}

// follow makes the target of a link usable, hop by hop: every name on the way
// must exist inside too.
func (f *finder) follow(link string, depth int) {
	for hop := 0; hop < maxHops; hop++ {
		dest, err := f.saw.readlink(link)
		if err != nil {
			return // not a link any more: the program itself
		}
		if !filepath.IsAbs(dest) {
			dest = filepath.Join(filepath.Dir(link), dest)
		}
		dest = filepath.Clean(dest)
		dir := filepath.Dir(dest)
		if visible(dir) {
			link = dest
			continue
		}
		st, err := f.saw.stat(dest)
		if err != nil || st.IsDir() {
			return
		}
		if !f.covered(dir, dir) {
			if depth >= maxNesting {
				return
			}
			f.entry(dir, "linked from "+link, depth+1)
		}
		real, err := f.saw.realDir(dir)
		if err != nil {
			return
		}
		link = filepath.Join(real, filepath.Base(dest))
	}
}

// rustup's programs look for their toolchains elsewhere.
func (f *finder) rustup(dir string) {
	home := ""
	if f.s.Getenv != nil {
		home = f.s.Getenv("RUSTUP_HOME")
	}
	if home == "" {
		home = filepath.Join(f.s.Home, ".rustup")
	}
	if real, err := f.saw.realDir(home); err == nil && !visible(real) {
		if reason := f.excluded(real); reason != "" {
			f.miss(home, reason)
			return
		}
		f.add(real, real, "toolchains of "+filepath.Join(dir, "rustup"))
		if real != home {
			f.add(real, home, "toolchains of "+filepath.Join(dir, "rustup"))
		}
	}
}

// prefix returns the folder around dir that looks like an installation, or dir.
func (f *finder) prefix(dir string) string {
	if hasPrefixDir(dir, "/nix/store") {
		return "/nix/store"
	}
	switch filepath.Base(dir) {
	case "bin", "sbin", "shims", "scripts", "libexec":
	default:
		return dir
	}
	up := filepath.Dir(dir)
	if f.personal(up) || strings.Count(up, "/") < 2 {
		return dir
	}
	for _, sign := range []string{"lib", "lib64", "libexec", "versions", "toolchains", "installs", "share", "candidates", "Cellar", "tools"} {
		if st, err := f.saw.stat(filepath.Join(up, sign)); err == nil && st.IsDir() {
			return up
		}
	}
	return dir
}

// personal reports whether a folder holds more than programs.
func (f *finder) personal(dir string) bool {
	if hasPrefixDir(f.home, dir) || hasPrefixDir(f.s.Home, dir) {
		return true
	}
	for _, d := range []string{".local", ".config", ".cargo", ".cache", "go", ".ssh", "snap", ".npm", ".yarn"} {
		if dir == filepath.Join(f.home, d) {
			return true
		}
	}
	if f.s.Getenv != nil {
		for _, g := range filepath.SplitList(f.s.Getenv("GOPATH")) {
			if dir == filepath.Clean(g) {
				return true
			}
		}
	}
	return false
}

// excluded says why a folder is never shown, "" when it may be.
func (f *finder) excluded(dir string) string {
	if f.personal(dir) {
		return "it holds personal files, not only programs"
	}
	if f.home != "" {
		for _, d := range []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config", ".password-store"} {
			if hasPrefixDir(dir, filepath.Join(f.home, d)) {
				return "it lies among configuration and credentials"
			}
		}
	}
	for _, d := range []string{"/proc", "/sys", "/dev", "/run", "/etc", "/boot", "/var/run"} {
		if hasPrefixDir(dir, d) {
			return "it lies in the system folder " + d
		}
	}
	if hasPrefixDir(dir, "/snap") {
		return "snap programs only start through a service of the host"
	}
	if c := f.s.Checkout; c != "" && (hasPrefixDir(dir, c) || hasPrefixDir(c, dir)) {
		return "it overlaps the checkout, of which the task has its own copy"
	}
	for _, a := range f.s.Absent {
		if hasPrefixDir(dir, a) || hasPrefixDir(a, dir) {
			return "it overlaps caisson's own files"
		}
	}
	return ""
}

func (f *finder) names(dir string) []os.DirEntry {
	f.saw.lists(dir)
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	es, _ := d.ReadDir(maxNames + 1)
	if len(es) > maxNames {
		f.miss(dir, fmt.Sprintf("it has more than %d entries; links among the others were not followed", maxNames))
		es = es[:maxNames]
	}
	sort.Slice(es, func(i, j int) bool { return es[i].Name() < es[j].Name() })
	return es
}

// covered reports whether src already appears at target.
func (f *finder) covered(src, target string) bool {
	for _, m := range f.mounts {
		if hasPrefixDir(target, m.Target) && src == filepath.Join(m.Source, strings.TrimPrefix(target, m.Target)) {
			return true
		}
	}
	return false
}

func (f *finder) add(src, target, why string) {
	if visible(target) || f.covered(src, target) {
		return
	}
	if len(f.mounts) >= maxMounts {
		f.miss(target, fmt.Sprintf("more than %d toolchain folders", maxMounts))
		return
	}
	f.mounts = append(f.mounts, backend.Mount{Source: src, Target: target})
	f.why = append(f.why, why)
}

func (f *finder) miss(dir, reason string) { f.missing[dir] = reason }

// prune drops mounts that a later, wider one shows too, and what would stand
// in a wider one at a place that does not exist there.
func (f *finder) prune() {
	all, why := f.mounts, f.why
	f.mounts, f.why = nil, nil
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return len(all[order[a]].Target) < len(all[order[b]].Target) })
	for _, i := range order {
		m := all[i]
		if f.covered(m.Source, m.Target) {
			continue
		}
		if outer := f.around(m.Target); outer != nil {
			if _, err := f.saw.stat(filepath.Join(outer.Source, strings.TrimPrefix(m.Target, outer.Target))); err != nil {
				f.miss(m.Target, "its place lies in the read-only "+outer.Target)
				continue
			}
			if _, err := f.saw.readlink(filepath.Join(outer.Source, strings.TrimPrefix(m.Target, outer.Target))); err == nil {
				continue // the link itself is there and leads to what is shown
			}
		}
		f.mounts, f.why = append(f.mounts, m), append(f.why, why[i])
	}
}

func (f *finder) around(target string) *backend.Mount {
	for i := range f.mounts {
		if f.mounts[i].Target != target && hasPrefixDir(target, f.mounts[i].Target) {
			return &f.mounts[i]
		}
	}
	return nil
}

func (f *finder) result() Found {
	var t Found
	for i, m := range f.mounts {
		sm, finding := screen(m, toolScreen, f.saw)
		if finding != nil {
			t.Findings = append(t.Findings, *finding)
		}
		t.Mounts = append(t.Mounts, sm)
		t.Tools = append(t.Tools, task.Tool{Path: m.Target, Why: f.why[i], Hide: sm.Hide})
	}
	for dir, reason := range f.missing {
		t.Missing = append(t.Missing, task.Finding{ID: "tool-missing", Axis: task.FS, Cap: task.MaxLevel(task.FS), Location: dir,
			Text: "programs in it are not available inside: " + reason, Fix: "--ro " + dir})
	}
	sort.Slice(t.Missing, func(i, j int) bool { return t.Missing[i].Location < t.Missing[j].Location })
	return t
}
