package source

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// maxLinkTarget is the longest target that Linux can follow.
const maxLinkTarget = 4095

// meetTree looks once at all paths of the result, for the rules that compare a
// changed path with the others: links and twins.
func (r *Result) meetTree(ctx context.Context, cs []rawChange) (*riskTree, error) {
	t := &riskTree{twins: map[string]*twinGroup{}, links: map[string]string{}}
	for i := range cs {
		if cs[i].Status == 'A' {
			t.expect(&cs[i])
		}
	}
	return t, r.listTree(ctx, t.meet)
}

// judge applies those rules.
func (t *riskTree) judge(cs []rawChange, l *riskList) {
	for _, g := range t.twins {
		if len(g.names) > 1 {
			for _, c := range g.added {
				l.add(c.Path, ruleTwin, whyOf(ruleTwin))
			}
		}
	}
	for i := range cs {
		c := &cs[i]
		if c.Status == 'D' || c.NewMode != modeLink {
			continue
		}
		if why := t.judgeLink(string(c.Path), c.target, c.targetWhole); why != "" {
			l.add(c.Path, ruleLink, why)
		}
	}
}

// riskTree is what is kept of the result's whole tree.
type riskTree struct {
	twins map[string]*twinGroup // by folded path, of added paths and their folders
	links map[string]string     // the object that holds the target, by path
	last  string                // the path met before, whose folders need no second look
}

func (t *riskTree) isLink(p string) bool { return t.links[p] != "" }

// twinGroup is all paths of one fold.
type twinGroup struct {
	added []*rawChange
	names map[string]bool // at most two are kept
}

func (t *riskTree) expect(c *rawChange) {
	for i := 1; i <= len(c.folded); i++ {
		key := strings.Join(c.folded[:i], "/")
		g := t.twins[key]
		if g == nil {
			g = &twinGroup{names: map[string]bool{}}
			t.twins[key] = g
		}
		if len(g.added) < maxRisks {
			g.added = append(g.added, c)
		}
	}
}

// meet takes one path of the tree. Paths come sorted as git sorts them, so the
// folders of one path are mostly those of the one before.
func (t *riskTree) meet(mode uint32, oid, p string) {
	if mode == modeLink {
		t.links[p] = oid
	}
	if len(t.twins) == 0 {
		return
	}
	parts := strings.Split(p, "/")
	shared := commonFolders(t.last, p)
	t.last = p
	folded := make([]string, 0, len(parts))
	at := 0
	for i, part := range parts {
		folded = append(folded, foldName(part))
		at += len(part)
		if i >= shared {
			if g := t.twins[strings.Join(folded, "/")]; g != nil && len(g.names) < 2 {
				g.names[p[:at]] = true
			}
		}
		at++
	}
}

// commonFolders counts the leading folders that two paths share.
func commonFolders(a, b string) int {
	n := 0
	for i := 0; i < len(a) && i < len(b) && a[i] == b[i]; i++ {
		if a[i] == '/' {
			n++
		}
	}
	return n
}

// judgeLink says why a link counts; empty: it stays inside.
func (t *riskTree) judgeLink(p, target string, whole bool) string {
	switch {
	case !whole || target == "" || strings.ContainsRune(target, 0):
		return "the link's target cannot be examined"
	case strings.HasPrefix(target, "/"), strings.HasPrefix(target, `\`), len(target) > 1 && target[1] == ':':
		return "the link leads to an absolute path outside the tree"
	case strings.Contains(target, `\`):
		return "the link's target has a backslash, which leads elsewhere on Windows"
	}
	at := strings.Split(path.Dir(p), "/")
	if at[0] == "." {
		at = nil
	}
	for i, part := range strings.Split(target, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return "the link leads out of the tree"
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(at, part)
		switch here := strings.Join(at, "/"); {
		case isDotGit(foldName(part)) || isDotGit(part):
			return "the link leads into the repository's own folder"
		case here == p:
			return "the link leads to itself"
		case t.isLink(here) && i < strings.Count(target, "/"):
			return "the link leads through another link"
		case t.isLink(here):
			return "the link leads to another link"
		}
	}
	return ""
}

// listTree streams the paths of the result's tree with their modes and objects.
func (r *Result) listTree(ctx context.Context, meet func(mode uint32, oid, path string)) error {
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		cmd := r.cmd("ls-tree", "-r", "-z", "--full-tree", r.Tree)
		cmd.Stdout = pw
		_, err := r.g.Run(ctx, cmd)
		pw.CloseWithError(err) // nil ends the stream
		done <- err
	}()
	in := bufio.NewReaderSize(pr, 64<<10)
	var err error
	for {
		var line string
		if line, err = in.ReadString(0); err != nil {
			break
		}
		// 100644 blob <oid>\t<path>
		head, p, ok := strings.Cut(line[:len(line)-1], "\t")
		words := strings.Split(head, " ")
		mode, perr := strconv.ParseUint(words[0], 8, 32)
		if !ok || perr != nil || p == "" || len(words) != 3 {
			err = task.Errorf(task.CodeInternal, "source.risks", "git's list of the tree cannot be read")
			break
		}
		meet(uint32(mode), words[2], p)
	}
	pr.CloseWithError(errStopped)
	runErr := <-done
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case runErr != nil && !errors.Is(runErr, errStopped):
		return task.Errorf(task.CodeSource, "source.risks", "the tree cannot be listed: %v", runErr)
	}
	return err
}
