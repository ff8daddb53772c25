package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// Unread begins the content of what is no file that was read, followed by what
// names it. No text begins so.
const Unread = "\x00"

// IsLink says whether a content of Named or Lying stands for a link.
func IsLink(content []byte) bool {
	return bytes.HasPrefix(content, []byte(Unread+linkMode)) || bytes.HasPrefix(content, []byte(Unread+linkTo))
}

// How the content of what is a link begins, at the base and in the checkout.
const (
	linkMode = "120000 "
	linkTo   = "link to "
)

// maxFound bounds how many files Named returns.
const maxFound = 500

// Named returns the files at the base that are called so or lie in a folder that
// is, by their paths. What of them is no regular file, or larger than limit, has
// a content that begins with Unread: nobody may take it for one that is not there.
// A commit does not change, so which files those are is remembered (RememberIn);
// their content, which may be a secret, is not.
func (r *Repo) Named(ctx context.Context, limit int64, names ...string) (map[string][]byte, error) {
	return r.named(ctx, limit, r.namedKey(names), func() ([]namedFile, error) { return r.listNamed(ctx, names) })
}

// NamedBelow is Named for files below the top, at any depth, that are called so.
func (r *Repo) NamedBelow(ctx context.Context, limit int64, names ...string) (map[string][]byte, error) {
	return r.named(ctx, limit, r.namedKey(append([]string{"**"}, names...)), func() ([]namedFile, error) { return r.listBelow(ctx, names) })
}

func (r *Repo) named(ctx context.Context, limit int64, key string, list func() ([]namedFile, error)) (map[string][]byte, error) {
	out := map[string][]byte{}
	if r.git == nil || r.Ref.Base == "" {
		return out, nil
	}
	files, known := recallNamed(key)
	if !known {
		var err error
		if files, err = list(); err != nil {
			return nil, err
		}
		retainNamed(key, files)
	}
	var ids []string
	var sizes []int64
	var want []int
	for i, f := range files {
		ids, sizes = append(ids, f.OID), append(sizes, f.Size)
		switch {
		case f.Mode != "100644" && f.Mode != "100755":
			out[f.Path] = []byte(Unread + f.Mode + " " + f.OID)
		case f.Size < 0 || f.Size > limit:
			out[f.Path] = []byte(Unread + f.OID)
		default:
			want = append(want, i)
		}
	}
	return out, r.Files().contents(ctx, ids, sizes, want, func(i int, content []byte) { out[files[i].Path] = slices.Clone(content) })
}

// namedFile is one file that was found by its name.
type namedFile struct {
	Path string `json:"path"`
	Mode string `json:"mode"`
	OID  string `json:"oid"`
	Size int64  `json:"size"` // -1: of no file, or of one that is missing
}

// unlisted says that the files of the base that are called so cannot be told.
func (r *Repo) unlisted(format string, args ...any) error {
	return task.Errorf(task.CodeSource, "source.named", format, args...).WithHint("look at it with `git ls-tree -r %s`", r.Ref.Base)
}

// listNamed asks git which files Named is about.
func (r *Repo) listNamed(ctx context.Context, names []string) ([]namedFile, error) {
	list, err := r.git.Run(ctx, git.Cmd{GitDir: r.gitDir, Max: 1 << 20, Args: append([]string{"ls-tree", "-r", "-z", "--full-tree", r.Ref.Base, "--"}, names...)})
	if err != nil {
		return nil, r.unlisted("the files of the base cannot be listed: %v", err)
	}
	recs, whole := git.SplitZ(list)
	if !whole || len(recs) > maxFound {
		return nil, r.unlisted("more than %d files are called %s", maxFound, strings.Join(names, ", "))
	}
	return r.found(ctx, recs)
}

// maxTree bounds the list of all files of a base, in bytes.
const maxTree = 1 << 30

// listBelow asks git which files NamedBelow is about.
func (r *Repo) listBelow(ctx context.Context, names []string) ([]namedFile, error) {
	list, err := r.git.Run(ctx, git.Cmd{GitDir: r.gitDir, Max: maxTree, Args: []string{"ls-tree", "-r", "-z", "--full-tree", r.Ref.Base}})
	if err != nil {
		return nil, r.unlisted("the files of the base cannot be listed: %v", err)
	}
	all, whole := git.SplitZ(list)
	var recs []string
	for _, rec := range all {
		if i := strings.LastIndexByte(rec, '/'); i >= 0 && slices.Contains(names, rec[i+1:]) {
			recs = append(recs, rec)
		}
	}
	if !whole || len(recs) > maxFound {
		return nil, r.unlisted("more than %d files are called %s", maxFound, strings.Join(names, ", "))
	}
	return r.found(ctx, recs)
}

// found reads git's list of some files of the base.
func (r *Repo) found(ctx context.Context, recs []string) ([]namedFile, error) {
	files := []namedFile{}
	var ids []string
	for _, rec := range recs {
		head, p, _ := strings.Cut(rec, "\t")
		f := strings.Fields(head)
		if len(f) != 3 || !git.IsOID(f[2]) {
			return nil, r.unlisted("git's list of the base cannot be read")
		}
		files, ids = append(files, namedFile{p, f[0], f[2], -1}), append(ids, f[2])
	}
	if len(ids) == 0 {
		return files, nil
	}
	sizes, err := r.Files().sizes(ctx, ids)
	for i := range sizes {
		files[i].Size = sizes[i]
	}
	return files, err
}

// Lying returns what lies in the checkout under one of those names now, by path;
// a folder's files are those directly in it. What is no file has a content that
// begins with Unread, as with Named: of a link it has the content that the link
// leads to inside the checkout, and a link that leads elsewhere is never the same
// twice. No checkout has none.
func (r *Repo) Lying(limit int64, names ...string) (map[string][]byte, error) {
	if r.reopened {
		return map[string][]byte{}, nil
	}
	return r.lying(limit, names)
}

// LyingNow returns what lies in the checkout under a name now, also of a task that
// is on record; nil where nothing does, and where there is no checkout any more.
func (r *Repo) LyingNow(limit int64, name string) ([]byte, error) {
	if r.Ref.CommonDir == "" || r.Ref.Bare {
		return nil, nil
	}
	if fi, err := os.Lstat(r.Ref.Repo); err != nil || !fi.IsDir() {
		return nil, nil
	}
	now, err := r.lying(limit, []string{name})
	return now[name], err
}

func (r *Repo) lying(limit int64, names []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	if r.bare || r.Ref.Repo == "" || r.archive != "" {
		return out, nil
	}
	root, err := os.OpenRoot(r.Ref.Repo)
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.lying", "the checkout cannot be opened: %v", err).WithHint("check its permissions")
	}
	defer root.Close()
	for _, n := range names {
		todo := []string{n}
		if fi, err := root.Lstat(n); err == nil && fi.IsDir() {
			todo = nil
			if d, err := root.Open(n); err == nil {
				entries, _ := d.ReadDir(maxFound)
				d.Close()
				for _, e := range entries {
					todo = append(todo, n+"/"+e.Name())
				}
			}
		}
		for _, p := range todo {
			if b, err := lying(root, p, limit); err != nil {
				return nil, err
			} else if b != nil {
				out[p] = b
			}
		}
	}
	return out, nil
}

func lying(root *os.Root, name string, limit int64) ([]byte, error) {
	fi, err := root.Lstat(name)
	if err != nil {
		return nil, nil
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return linked(root, name, limit), nil
	}
	if !fi.Mode().IsRegular() {
		return []byte(Unread + fi.Mode().String()), nil
	}
	bad := func(err error) error {
		return task.Errorf(task.CodeSource, "source.lying", "%s cannot be read: %v", quote(name), err).WithHint("check its permissions and its size")
	}
	f, err := root.OpenFile(name, os.O_RDONLY|noWait, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, bad(err)
	}
	defer f.Close()
	if fi, err = f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return []byte(fmt.Sprintf("%s%d bytes at %d", Unread, fi.Size(), fi.ModTime().UnixNano())), nil
	}
	if err != nil {
		return nil, bad(err)
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}

// Remotes are the URLs of the repository's remotes, that of origin first. They
// stand in a file that came with the repository: a name, never a proof.
func (r *Repo) Remotes() []string { return r.remotes }

func (c *config) remotes() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(c.last)) {
		if strings.HasPrefix(k, "remote.") && strings.HasSuffix(k, ".url") {
			out = append(out, c.last[k])
		}
	}
	if o := c.last["remote.origin.url"]; o != "" {
		out = append([]string{o}, slices.DeleteFunc(out, func(s string) bool { return s == o })...)
	}
	return out
}

// RemoteHost is the host that a remote's URL names, in lower case; empty for a
// path.
func RemoteHost(remote string) string {
	if strings.Contains(remote, "://") {
		u, err := url.Parse(remote)
		if err != nil || u.Scheme == "file" {
			return ""
		}
		return strings.ToLower(u.Hostname())
	}
	host, _, ok := strings.Cut(remote, ":")
	if !ok || strings.Contains(host, "/") || filepath.IsAbs(remote) {
		return ""
	}
	if _, h, at := strings.Cut(host, "@"); at {
		host = h
	}
	return strings.ToLower(host)
}

// linked says where a link leads, and what is there now.
func linked(root *os.Root, name string, limit int64) []byte {
	to, _ := root.Readlink(name)
	unlike := []byte(fmt.Sprintf("%s%s at %d", Unread+linkTo, to, time.Now().UnixNano()))
	fi, err := root.Stat(name)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > limit {
		return unlike
	}
	f, err := root.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return unlike
	}
	defer f.Close()
	if fi, err = f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return unlike
	}
	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return unlike
	}
	return []byte(fmt.Sprintf("%s%s: %x", Unread+linkTo, to, sha256.Sum256(b)))
}
