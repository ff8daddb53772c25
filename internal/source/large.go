package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
)

// largeFile is the size in bytes from which a changed file is first looked up by
// what is in it: git compresses a file before it knows that it has it already,
// which takes many times as long as hashing it, at each look at a task again.
var largeFile int64 = 16 << 20

// largeStore are settings for a store that has to take such files: most of them
// do not get much smaller for more effort.
var largeStore = []string{"core.compression=1"}

// largeList names, a line each, the objects of large files that an earlier look
// stored. One that only the user's repository has, and that nothing there leads
// to, is none of them: storing it would also have kept it from being pruned.
const largeList = "large"

// known sorts these files in work, each large: has are those that an earlier look
// stored byte for byte, path to mode and object as update-index takes them; fresh
// are the objects that storing the others will make. Files that git would
// convert are left out, since what they become depends on more than their bytes.
// The times of a file say nothing here: a process that has it mapped changes it
// without them.
func (ws Workspace) known(ctx context.Context, g *git.Git, dir string, r recording) (has map[string]string, fresh []string, err error) {
	cmd := func(stdin string, args ...string) git.Cmd {
		return git.Cmd{
			GitDir: dir, WorkTree: r.work, Stdin: strings.NewReader(stdin), Args: args,
			Env:    []string{"GIT_INDEX_FILE=" + r.index, "GIT_OBJECT_DIRECTORY=" + ws.shadow() + "/objects"},
			Config: []string{"core.bare=false"},
		}
	}
	// With it git decides by content and index which files it converts.
	if out, err := g.Run(ctx, cmd("", "config", "--get", "core.autocrlf")); err == nil {
		if v := strings.TrimSpace(string(out)); v != "false" && v != "" {
			return nil, nil, nil
		}
	} else if git.Status(err) != 1 {
		return nil, nil, err
	}
	var paths []string
	for _, p := range r.large {
		if st, err := os.Lstat(filepath.Join(r.work, p)); err == nil && st.Mode().IsRegular() && st.Size() >= largeFile && !strings.ContainsAny(p, "\n\"\\") {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return nil, nil, nil
	}
	out, err := g.Run(ctx, cmd(joinZ(paths), "check-attr", "-z", "--stdin", "text", "crlf", "eol", "ident", "filter", "working-tree-encoding"))
	if err != nil {
		return nil, nil, err
	}
	converted := map[string]bool{}
	rec, _ := git.SplitZ(out)
	for i := 0; i+2 < len(rec); i += 3 {
		switch v := rec[i+2]; {
		case v == "unspecified":
		case v == "unset":
		default:
			converted[rec[i]] = true
		}
	}
	var plain []string
	for _, p := range paths {
		if !converted[p] {
			plain = append(plain, p)
		}
	}
	if len(plain) == 0 {
		return nil, nil, nil
	}
	if out, err = g.Run(ctx, cmd(strings.Join(plain, "\n")+"\n", "hash-object", "--no-filters", "--stdin-paths")); err != nil {
		return nil, nil, err
	}
	oids := strings.Fields(string(out))
	if len(oids) != len(plain) {
		return nil, nil, nil
	}
	if out, err = g.Run(ctx, cmd(strings.Join(oids, "\n")+"\n", "cat-file", "--batch-check=%(objecttype)")); err != nil {
		return nil, nil, err
	}
	kinds := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	list, err := os.ReadFile(filepath.Join(ws.shadow(), largeList))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	stored := map[string]bool{}
	for _, oid := range strings.Fields(string(list)) {
		stored[oid] = true
	}
	has = map[string]string{}
	for i, p := range plain {
		st, err := os.Lstat(filepath.Join(r.work, p))
		if err != nil {
			return nil, nil, err
		}
		if i >= len(kinds) || kinds[i] != "blob" || !stored[oids[i]] {
			fresh = append(fresh, oids[i])
			continue
		}
		mode := "100644"
		if st.Mode()&0o100 != 0 {
			mode = "100755"
		}
		has[p] = mode + " " + oids[i]
	}
	return has, fresh, nil
}

// stored adds to the list. Losing it costs time only.
func (ws Workspace) stored(oids []string) {
	f, err := os.OpenFile(filepath.Join(ws.shadow(), largeList), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(strings.Join(oids, "\n") + "\n")
	_ = f.Close()
}
