package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// Files is what a task starts with, to be looked at before there is a task: of
// a repository the files at the base commit, as they stand in its objects; of a
// folder without git the files themselves. Nothing is checked out, no filter
// runs, no link is followed. Safe for use by several goroutines.
type Files struct {
	git    *git.Git
	gitDir string
	base   string // empty: there is no commit, and no file
	folder string // of the copy strategy, instead of a repository

	mu    sync.Mutex
	oids  map[string]string // by path, of what Each listed
	kept  map[string][]byte // small files that were read
	bytes int               // of kept
	usual bool              // usualScripts were asked for
}

// maxOne is the largest file that File reads, in bytes.
const maxOne = 512 << 10

// maxRemembered bounds what Files remembers of contents, in bytes.
const maxRemembered = 4 << 20

// Files returns the files that a task of this source starts with, without what
// --dirty adds; nil for an archive, which is not opened before it is
// unpacked, and for a repository that Reopen returned.
func (r *Repo) Files() *Files {
	if r.reopened {
		return nil
	}
	if r.git == nil {
		if r.archive != "" {
			return nil
		}
		return &Files{folder: r.Ref.Repo}
	}
	return &Files{git: r.git, gitDir: r.gitDir, base: r.Ref.Base}
}

// Each calls f for every file with git's mode until f returns false.
func (b *Files) Each(ctx context.Context, f func(path string, mode uint32) bool) error {
	if b.folder != "" {
		return b.eachInFolder(ctx, f)
	}
	if b.base == "" {
		return nil
	}
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := b.git.Run(ctx, git.Cmd{GitDir: b.gitDir, Stdout: pw, Args: []string{"ls-tree", "-r", "-z", "--full-tree", b.base}})
		pw.CloseWithError(err) // nil ends the stream
		done <- err
	}()
	in := bufio.NewReaderSize(pr, 256<<10)
	oids := map[string]string{}
	var err error
	for {
		var line []byte
		if line, err = in.ReadBytes(0); err != nil {
			break
		}
		// 100644 blob <oid>\t<path>, as one text that name and object share.
		head, name, ok := strings.Cut(string(line[:len(line)-1]), "\t")
		mode, rest, _ := strings.Cut(head, " ")
		_, oid, _ := strings.Cut(rest, " ")
		n, perr := strconv.ParseUint(mode, 8, 32)
		if !ok || perr != nil || name == "" || !git.IsOID(oid) {
			err = task.Errorf(task.CodeInternal, "source.files", "git's list of the base cannot be read")
			break
		}
		oids[name] = oid
		if !f(name, uint32(n)) {
			err = io.EOF
			break
		}
	}
	pr.CloseWithError(errStopped)
	runErr := <-done
	b.mu.Lock()
	b.oids = oids
	b.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case ctx.Err() != nil:
		return task.Errorf(task.CodeCanceled, "source.files", "the look at the base was cancelled: %w", context.Cause(ctx))
	case runErr != nil && !errors.Is(runErr, errStopped):
		return task.Errorf(task.CodeSource, "source.files", "the files of the base cannot be listed: %v", runErr).WithHint("check it with `git fsck`")
	}
	return err
}

// Read calls f for those of the named files that exist, with their size and
// their content, which is nil above limit. Paths count that Each listed.
func (b *Files) Read(ctx context.Context, paths []string, limit int64, f func(path string, size int64, content []byte)) error {
	if b.folder != "" {
		return b.readInFolder(ctx, paths, limit, f)
	}
	b.mu.Lock()
	oids := b.oids
	b.mu.Unlock()
	var names, ids []string
	for _, p := range paths {
		if id := oids[p]; id != "" {
			names, ids = append(names, p), append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	// Sizes first: a blob may be of any size, and git would send all of it.
	sizes, err := b.sizes(ctx, ids)
	if err != nil {
		return err
	}
	var small []int
	for i, n := range sizes {
		switch {
		case n < 0: // not there, or no blob
		case n > limit:
			f(names[i], n, nil)
		default:
			small = append(small, i)
		}
	}
	return b.contents(ctx, ids, sizes, small, func(i int, content []byte) { f(names[i], sizes[i], content) })
}

// sizes asks for the sizes of blobs; -1 is one that is missing or none.
func (b *Files) sizes(ctx context.Context, ids []string) ([]int64, error) {
	out, err := b.git.Run(ctx, git.Cmd{GitDir: b.gitDir, Max: int64(len(ids))*200 + 1024, Stdin: strings.NewReader(strings.Join(ids, "\n") + "\n"),
		Args: []string{"cat-file", "--batch-check=%(objecttype) %(objectsize)"}})
	if err != nil {
		return nil, b.failed(ctx, err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(ids) {
		return nil, task.Errorf(task.CodeInternal, "source.files", "git's list of sizes cannot be read")
	}
	sizes := make([]int64, len(ids))
	for i, l := range lines {
		sizes[i] = -1
		if s, ok := strings.CutPrefix(l, "blob "); ok {
			if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
				sizes[i] = n
			}
		}
	}
	return sizes, nil
}

// contents reads the blobs of which want is the list.
func (b *Files) contents(ctx context.Context, ids []string, sizes []int64, want []int, f func(i int, content []byte)) error {
	if len(want) == 0 {
		return nil
	}
	var ask strings.Builder
	var total int64
	for _, i := range want {
		ask.WriteString(ids[i])
		ask.WriteByte('\n')
		total += sizes[i] + 128
	}
	out, err := b.git.Run(ctx, git.Cmd{GitDir: b.gitDir, Max: total + 1024, Stdin: strings.NewReader(ask.String()), Args: []string{"cat-file", "--batch=%(objecttype) %(objectsize)"}})
	if err != nil {
		return b.failed(ctx, err)
	}
	for _, i := range want {
		head, rest, ok := bytes.Cut(out, []byte{'\n'})
		n := int(sizes[i])
		if !ok || string(head) != "blob "+strconv.Itoa(n) || len(rest) < n+1 || rest[n] != '\n' {
			return task.Errorf(task.CodeInternal, "source.files", "git's answer cannot be read")
		}
		f(i, rest[:n:n])
		out = rest[n+1:]
	}
	return nil
}

// whole reads blobs in one go, without asking for their sizes first: git ends
// where they are too large together.
func (b *Files) whole(ctx context.Context, ids []string, f func(i int, content []byte)) error {
	out, err := b.git.Run(ctx, git.Cmd{GitDir: b.gitDir, Max: maxOne + 4096, Stdin: strings.NewReader(strings.Join(ids, "\n") + "\n"), Args: []string{"cat-file", "--batch=%(objecttype) %(objectsize)"}})
	if err != nil {
		return b.failed(ctx, err)
	}
	for i := range ids {
		head, rest, ok := bytes.Cut(out, []byte{'\n'})
		if !ok {
			return task.Errorf(task.CodeInternal, "source.files", "git's answer cannot be read")
		}
		kind, size, _ := strings.Cut(string(head), " ")
		n, err := strconv.Atoi(size)
		if err != nil { // it is missing
			out = rest
			continue
		}
		if n < 0 || len(rest) < n+1 || rest[n] != '\n' {
			return task.Errorf(task.CodeInternal, "source.files", "git's answer cannot be read")
		}
		if kind == "blob" {
			f(i, rest[:n:n])
		}
		out = rest[n+1:]
	}
	return nil
}

// usualScripts are the files at the top that give a command its body; a look at
// one is mostly followed by one at another.
var usualScripts = map[string]bool{
	"package.json": true, "composer.json": true, "GNUmakefile": true, "makefile": true, "Makefile": true, "justfile": true, "Justfile": true, ".justfile": true,
	"Taskfile.yml": true, "Taskfile.yaml": true, "taskfile.yml": true, "taskfile.yaml": true,
}

// askedUsual reads all of usualScripts, once. It reports whether that was done
// before, or could not be.
func (b *Files) askedUsual(ctx context.Context) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.usual {
		return true
	}
	b.usual = true
	names := slices.Sorted(maps.Keys(usualScripts))
	ids := make([]string, len(names))
	for i, n := range names {
		ids[i] = b.base + ":" + n
	}
	got := map[string][]byte{}
	if err := b.whole(ctx, ids, func(i int, content []byte) { got[names[i]] = content }); err != nil {
		return true // too large together, perhaps: one by one
	}
	if b.kept == nil {
		b.kept = map[string][]byte{}
	}
	for _, n := range names {
		b.kept[n] = got[n]
		b.bytes += len(got[n])
	}
	return false
}

func (b *Files) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return task.Errorf(task.CodeCanceled, "source.files", "the look at the base was cancelled: %w", context.Cause(ctx))
	}
	return task.Errorf(task.CodeSource, "source.files", "files of the base cannot be read: %v", err).WithHint("check it with `git fsck`")
}

// File returns the content of one file at the base, or nil: it is not there, no
// regular file, larger than 512 KiB, or it cannot be read. What was read is
// remembered.
func (b *Files) File(ctx context.Context, name string) []byte {
	if b == nil || b.base == "" && b.folder == "" || strings.ContainsAny(name, "\n\x00") || name == "" {
		return nil
	}
	b.mu.Lock()
	c, known := b.kept[name]
	id := b.oids[name]
	listed := b.oids != nil
	b.mu.Unlock()
	if known || listed && id == "" {
		return c
	}
	if b.folder == "" && id == "" && usualScripts[name] && !b.askedUsual(ctx) {
		return b.File(ctx, name) // it was among them
	}
	switch {
	case b.folder != "":
		_ = b.readInFolder(ctx, []string{name}, maxOne, func(_ string, _ int64, content []byte) { c = content })
	default:
		if id == "" {
			id = b.base + ":" + name
		}
		_ = b.whole(ctx, []string{id}, func(_ int, content []byte) { c = content })
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = map[string][]byte{}
	}
	if b.bytes += len(c); b.bytes <= maxRemembered {
		b.kept[name] = c
	}
	return c
}
