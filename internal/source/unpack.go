package source

import (
	"context"
	"io"
	"os"
	"path"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// unpacking puts the members of one archive into a task's folder.
type unpacking struct {
	*copier
	name    string
	kinds   map[string]tree.Kind // of every path that was made
	first   map[string]string    // the path that took a name, letters of one case
	oids    map[string]int       // of a file, its place in copier.entries
	links   []string
	n       int
	skipped bool // the last member was left out
}

// refuse says why an archive is not unpacked.
func (u *unpacking) refuse(name, format string, args ...any) error {
	return task.Errorf(task.CodeSource, "source.unpack", "the archive %s is refused: "+quoteVerb(name)+" "+format, append([]any{quote(u.name)}, args...)...).
		WithHint("unpack it yourself, look at it, and name the folder with --repo; nothing was started")
}

// quoteVerb shows a name inside a format.
func quoteVerb(name string) string { return strings.ReplaceAll(quote(name), "%", "%%") }

// unpack writes everything in the archive that a tree can hold.
func (c *copier) unpack(ctx context.Context, file, form string) error {
	if c.left > maxUnpacked {
		c.left, c.limit = maxUnpacked, maxUnpacked
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	u := &unpacking{copier: c, name: file, kinds: map[string]tree.Kind{}, first: map[string]string{}, oids: map[string]int{}}
	if form == formZip {
		err = u.zip(ctx, f)
	} else {
		err = u.tar(ctx, f, form)
	}
	if ctx.Err() != nil {
		return task.Errorf(task.CodeCanceled, "source.unpack", "unpacking was cancelled: %w", context.Cause(ctx))
	}
	if err != nil {
		if task.CodeOf(err) == task.CodeInternal {
			return task.Errorf(task.CodeSource, "source.unpack", "the archive %s cannot be unpacked: %v", quote(file), err).
				WithHint("it may be damaged or cut short; nothing was started")
		}
		return err
	}
	// Each link alone stayed inside when it was made. Together they may not.
	for _, l := range u.links {
		stays, err := c.look.Leads(l)
		if err != nil {
			return err
		}
		if !stays {
			return u.refuse(l, "is a link that leads out of the archive")
		}
	}
	return nil
}

// member is one entry of an archive.
type member struct {
	name   string
	kind   tree.Kind
	size   int64
	mode   uint32
	target string // of a link
	hard   bool
	like   tree.Info // its time
}

// clean judges a member's name and returns it as a path below the folder; the
// folder itself is "". reserved: git's own, which is left out.
func (u *unpacking) clean(name string, kind tree.Kind) (p string, reserved bool, err error) {
	if name == "" || strings.Contains(name, "\x00") {
		return "", false, u.refuse(name, "is not a name")
	}
	if name[0] == '/' {
		return "", false, u.refuse(name, "is an absolute path")
	}
	if len(name) > maxPath {
		return "", false, u.refuse(name[:100]+"…", "is longer than %d bytes", maxPath)
	}
	var parts []string
	for _, c := range strings.Split(name, "/") {
		switch {
		case c == "" || c == ".":
			continue
		case c == "..":
			return "", false, u.refuse(name, "leads out of the archive")
		case len(c) > 255:
			return "", false, u.refuse(c[:100]+"…", "is longer than a file's name can be")
		case isDotGit(c), kind == tree.Link && isDotGitmodules(c):
			reserved = true
		}
		parts = append(parts, c)
	}
	if len(parts) > tree.MaxDepth {
		return "", false, u.refuse(name[:100]+"…", "is more than %d folders deep", tree.MaxDepth)
	}
	return strings.Join(parts, "/"), reserved, nil
}

// claim takes a name for one member. Names that differ only in case would be one
// file elsewhere, and a second member of a name hides what the first showed.
func (u *unpacking) claim(p string, kind tree.Kind) (made bool, err error) {
	if have, ok := u.kinds[p]; ok {
		switch {
		case have == tree.Dir && kind == tree.Dir:
			return true, nil
		case have == tree.Link && kind == tree.Dir:
			return false, u.refuse(p, "is a link and then a folder: what follows would be written through it")
		}
		return false, u.refuse(p, "is in it twice")
	}
	folded := foldCase(p)
	if twin, ok := u.first[folded]; ok {
		return false, u.refuse(p, "differs from %s only in the case of letters", quote(twin))
	}
	if u.n++; u.n > maxMembers {
		return false, u.refuse(p, "is one of more than %d entries", maxMembers)
	}
	u.kinds[p], u.first[folded] = kind, p
	return false, nil
}

// foldCase makes names equal that some file systems hold equal.
func foldCase(s string) string {
	if f := strings.ToLower(strings.ToUpper(s)); !strings.ContainsRune(f, '\uFFFD') {
		return f
	}
	b := []byte(s) // not UTF-8: only what is ASCII has a case
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// folder makes sure that p and everything above it are folders of our making.
func (u *unpacking) folder(p string) error {
	if p == "." || p == "" {
		return nil
	}
	if have, ok := u.kinds[p]; ok && have == tree.Dir {
		return nil
	}
	if err := u.folder(path.Dir(p)); err != nil {
		return err
	}
	if made, err := u.claim(p, tree.Dir); err != nil || made {
		return err
	}
	if err := u.take(p, 0); err != nil {
		return err
	}
	return u.root.Mkdir(p, 0o700)
}

// member puts one entry into place.
func (u *unpacking) member(m member, r io.Reader) error {
	p, reserved, err := u.clean(m.name, m.kind)
	if err != nil || p == "" {
		return err
	}
	u.skipped = reserved || m.kind == tree.Special
	if u.skipped {
		// Even what is left out is read past, so it counts.
		if err := u.take(p, m.size); err != nil {
			return err
		}
		if u.n++; u.n > maxMembers {
			return u.refuse(p, "is one of more than %d entries", maxMembers)
		}
		why := outSpecial
		if reserved {
			why = outReserved
		}
		u.report(why, p)
		return nil
	}
	if m.mode&0o7000 != 0 && m.kind != tree.Link {
		u.report(outSetuid, p)
	}
	if m.kind == tree.Dir {
		if err := u.folder(p); err != nil {
			return err
		}
		u.dirs = append(u.dirs, settled{p, os.FileMode(m.mode&0o777 | 0o700)})
		return nil
	}
	if err := u.folder(path.Dir(p)); err != nil {
		return err
	}
	if _, err := u.claim(p, m.kind); err != nil {
		return err
	}
	if m.kind == tree.Link {
		return u.symlink(p, m.target)
	}
	if m.hard {
		return u.hardLink(p, m.target)
	}
	return u.regular(p, m, r)
}

// symlink makes a link that stays below the folder by its text.
func (u *unpacking) symlink(p, target string) error {
	if target == "" || len(target) > maxTarget || strings.Contains(target, "\x00") {
		return u.refuse(p, "is a link without a usable target")
	}
	depth := strings.Count(p, "/")
	out := target[0] == '/'
	for _, c := range strings.Split(target, "/") {
		switch c {
		case "", ".":
		case "..":
			depth--
		default:
			depth++
		}
		out = out || depth < 0
	}
	if out {
		return u.refuse(p, "is a link that leads out of the archive, to %s", quote(target))
	}
	if err := u.take(p, 0); err != nil {
		return err
	}
	u.links = append(u.links, p)
	return u.link(p, target)
}

// hardLink makes a second copy of a file that came before: the task's files do
// not share their content.
func (u *unpacking) hardLink(p, target string) error {
	from, _, err := u.clean(target, tree.File)
	if err != nil {
		return err
	}
	at, ok := u.oids[from]
	if !ok {
		return u.refuse(p, "is a hard link to %s, which is no file before it in the archive", quote(target))
	}
	src, i, err := u.look.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	m := member{size: i.Size, mode: i.Mode, like: i}
	if err := u.take(p, m.size); err != nil {
		return err
	}
	dst, err := u.root.OpenFile(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	if _, err := tree.Copy(dst, src, m.size); err != nil {
		return err
	}
	return u.settle(dst, p, u.entries[at].oid, m)
}

// regular writes a file of exactly the size that the archive says.
func (u *unpacking) regular(p string, m member, r io.Reader) error {
	if err := u.take(p, m.size); err != nil {
		return err
	}
	dst, err := u.root.OpenFile(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	pk, err := u.packer()
	if err != nil {
		return err
	}
	n, err := sys.CopySparse(dst, io.LimitReader(r, m.size))
	if err == nil && n != m.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if _, err := dst.Seek(0, io.SeekStart); err != nil {
		return err
	}
	oid, err := pk.blob(m.size, dst)
	if err != nil {
		return err
	}
	return u.settle(dst, p, oid, m)
}

func (u *unpacking) settle(dst *os.File, p, oid string, m member) error {
	i, err := tree.Settle(dst, m.mode&0o777, m.like)
	if err != nil {
		return err
	}
	u.oids[p] = len(u.entries)
	u.add(p, oid, i)
	return nil
}
