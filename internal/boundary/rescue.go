package boundary

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("rescue.found", "rescue.snapshot", "rescue.published",
	"rescue.recorded", "close.ignored", "close.out", "close.source")

// rescue brings out everything that a removal would lose and decides whether
// the files are kept. A non-nil retention means: keep, remove nothing. The
// error is why something could not be brought out; then the files are kept.
func (m *Manager) rescue(ctx context.Context, l *live, t inventory.Task, o endOptions, rep *task.CloseReport) (*task.Retention, error) {
	rep.Rescued = t.View.Results
	if !t.View.Ran || o.discard || !exists(filepath.Join(l.dir, "source")) {
		return nil, nil
	}
	tell(o.tell, "looking for work to bring out")
	w, err := source.Work(ctx, l.ws)
	if err == nil {
		rep.Work = *w
		if r := wholeKept(t, w, o); r != nil {
			return r, m.found(ctx, l, w)
		}
		err = m.bringOut(ctx, l, t, w, rep)
	}
	if err != nil {
		if l.log != nil {
			_, _ = l.log.Append(ctx, evidence.RescueFailed, self, map[string]any{"error": err.Error(), "code": string(task.CodeOf(err))})
		}
		return retention(t, "work could not be brought out: "+err.Error()),
			task.Errorf(task.CodeOf(err), "close", "work of task %s could not be brought out, so its files are kept: %w", l.id, err).
				WithHint("the files are in %s; `caisson close %s` tries again, `--discard` gives them up", filepath.Join(l.dir, "source"), l.id)
	}
	mode := o.keep
	if mode == "" {
		mode = t.View.Keep
	}
	switch {
	case o.expired:
		return nil, nil
	case t.View.Asked != nil && t.View.Asked.Until.After(time.Now()):
		return t.View.Asked, nil
	case mode == task.KeepAlways:
		return retention(t, "asked for (--keep always)"), nil
	case o.lost && mode != task.KeepNever:
		return retention(t, "its supervisor ended without closing it"), nil
	case mode == task.KeepOnFailure && o.failed, mode == task.KeepAuto && o.ofRun && o.failed:
		return retention(t, "its command failed"), nil
	case mode == task.KeepAuto && o.ofRun && !rep.Work.Empty():
		return retention(t, "it changed files"), nil
	}
	return nil, nil
}

func retention(t inventory.Task, why string) *task.Retention {
	until := time.Now().Add(keepsFor(t)).UTC()
	if a := t.View.Asked; a != nil && a.Until.After(until) {
		until = a.Until
	}
	return &task.Retention{Owner: t.View.Owner, Until: until, Why: why}
}

// bringOut publishes committed and uncommitted work below refs/caisson/<id>/.
func (m *Manager) bringOut(ctx context.Context, l *live, t inventory.Task, w *task.Work, rep *task.CloseReport) error {
	if w.Empty() {
		return nil
	}
	if err := m.found(ctx, l, w); err != nil {
		return err
	}
	if err := sys.Fault("rescue.found"); err != nil {
		return err
	}
	refs, ferr := m.bringFiles(ctx, l)
	// Commits come by way of the task's own repository, which it may have
	// ruined; its files do not depend on that.
	more, cerr := m.bringCommits(ctx, l, t)
	rep.Rescued = merge(rep.Rescued, append(more, refs...))
	// Before anything is removed: who finishes this after a crash finds no files
	// that would tell what was rescued.
	if err := m.cfg.DB.Update(ctx, l.id, func(v *task.View) { v.Results = rep.Rescued }); err != nil {
		return err
	}
	if s := task.Shortage(ferr); s != "" && s == task.Shortage(cerr) {
		cerr = nil // one full disk is one error
	}
	if err := errors.Join(cerr, ferr); err != nil {
		return err
	}
	if l.log == nil {
		return nil
	}
	if _, err := l.log.Append(ctx, evidence.RescueDone, self, map[string]any{"results": rep.Rescued}); err != nil {
		return err
	}
	return sys.Fault("rescue.recorded")
}

// found puts on record what a removal would lose.
func (m *Manager) found(ctx context.Context, l *live, w *task.Work) error {
	if l.log == nil {
		return nil
	}
	_, err := l.log.Append(ctx, evidence.WorkFound, self, map[string]any{"tracked": len(w.Tracked), "untracked": len(w.Untracked),
		"ignored": len(w.Ignored), "commits": len(w.Commits), "special": len(w.Special), "truncated": w.Truncated})
	return err
}

// bringFiles publishes the task's files, committed or not.
func (m *Manager) bringFiles(ctx context.Context, l *live) ([]task.ResultRef, error) {
	snap, err := source.MakeSnapshot(ctx, l.ws)
	if err != nil {
		return nil, err
	}
	if err := sys.Fault("rescue.snapshot"); err != nil {
		return nil, err
	}
	refs, err := source.PublishSnapshot(ctx, l.ws, snap)
	if err != nil {
		return nil, err
	}
	return refs, sys.Fault("rescue.published")
}

// bringCommits publishes what the task's refs lead to.
func (m *Manager) bringCommits(ctx context.Context, l *live, t inventory.Task) ([]task.ResultRef, error) {
	if t.View.Source.Strategy == task.StrategyWorktree {
		return source.HostCommits(ctx, l.ws)
	}
	needs, err := source.NeedsBundle(ctx, l.ws)
	if err != nil {
		return nil, err
	}
	var refs []task.ResultRef
	if needs {
		err = m.bundle(ctx, l, t, evidence.RescueIntent, func(ctx context.Context, r io.Reader) (err error) {
			refs, err = source.Import(ctx, l.ws, r, maxBundle)
			return err
		})
		if err != nil {
			return refs, err
		}
	}
	// What was amended, reset or rebased away is only in the logs of the refs.
	argv, env, stdin, err := source.PackCommand(ctx, l.ws)
	if err != nil || len(argv) == 0 {
		return refs, err
	}
	var more []task.ResultRef
	err = m.bringing(ctx, l, t, bundling{argv: argv, env: env, stdin: stdin, typ: evidence.RescueIntent, take: func(ctx context.Context, r io.Reader) (err error) {
		more, err = source.ImportPack(ctx, l.ws, r, maxBundle)
		return err
	}})
	return merge(refs, more), err
}

// merge adds results, replacing those of the same name.
func merge(have, more []task.ResultRef) []task.ResultRef {
	var out []task.ResultRef
	for _, h := range have {
		again := false
		for _, n := range more {
			again = again || n.Name == h.Name
		}
		if !again {
			out = append(out, h)
		}
	}
	return append(out, more...)
}

// remove takes the task's files and pins away. left reports that something no
// commit can hold was moved to kept/ and stays for a while.
func (m *Manager) remove(ctx context.Context, l *live, t inventory.Task, o endOptions, rep *task.CloseReport) (left bool, err error) {
	if err := m.owns(l, t); err != nil {
		return false, err
	}
	if t.View.Ran && !o.discard && !o.expired && (l.ws.Files != "" || exists(filepath.Join(l.dir, "source"))) {
		if w := rep.Work; len(w.Ignored)+len(w.Special) > 0 || w.Truncated {
			if _, err := source.KeepIgnored(ctx, l.ws); err != nil {
				return false, err
			}
		}
		if err := sys.Fault("close.ignored"); err != nil {
			return false, err
		}
		if err := m.keepOut(l); err != nil {
			return false, err
		}
		if err := sys.Fault("close.out"); err != nil {
			return false, err
		}
	}
	inRefs := slices.ContainsFunc(rep.Rescued, func(r task.ResultRef) bool { return strings.HasPrefix(r.Name, "refs/") })
	if (o.expired || withoutRepository(t) || inRefs) && !o.discard {
		// Files go when their time is over; commits never do. Where no repository
		// took them the bundle is all there is of them, so it stays at once. One
		// of an earlier attempt is no reason to keep files when refs hold it all.
		if err := m.saveBundle(l); err != nil {
			return false, err
		}
	}
	if o.discard || o.expired {
		if err := source.RemoveTree(ctx, filepath.Join(l.dir, "kept")); err != nil {
			return false, err
		}
	}
	rep.Rescued = merge(withoutFiles(rep.Rescued), m.keptFiles(l))
	left = exists(filepath.Join(l.dir, "kept"))
	if !left {
		cs := append(l.observed, strategyChanges(t.View.Source, l.id, task.Removing)...)
		if err := m.mark(ctx, l.id, append(cs, inventory.ResourceChange{Kind: kindFiles, Name: string(l.id), State: task.Removing},
			inventory.ResourceChange{Kind: kindPins, Name: pinsName(l.id), State: task.Removing})); err != nil {
			return false, err
		}
		l.observed = nil
	}
	if err := sys.Fault("close.removing"); err != nil {
		return false, err
	}
	var now *int // how many files are removed before the rest is left to another process
	if o.mayLeave && !left {
		now = new(int)
		*now = removedNow
	}
	more := false
	unpin := source.Pins(t.View.Source.CommonDir, l.id)
	defer unpin.Close()
	if now != nil { // else git might wait for long
		unpin.Ahead(ctx)
	}
	for _, sub := range []string{"source", "shadow.git", "home", "out", "deps", rootDir, "rescue-out", "attended", applyDir} {
		some, err := source.RemoveSome(ctx, filepath.Join(l.dir, sub), now)
		if err != nil {
			return false, err
		}
		more = more || some
		if sub == "source" {
			if err := sys.Fault("close.source"); err != nil {
				return false, err
			}
		}
	}
	// Of a process that was killed while it marked the folder.
	temps, _ := filepath.Glob(filepath.Join(l.dir, ".tmp-task.json-*"))
	for _, p := range temps {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, task.Errorf(task.CodeStuck, "close", "a temporary file cannot be removed: %w", err)
		}
	}
	if err := sys.Fault("close.files"); err != nil {
		return false, err
	}
	if err := m.unlink(ctx, l, t, rep); err != nil {
		return false, err
	}
	if t.View.Source.CommonDir != "" {
		if err := unpin.Finish(ctx); err != nil {
			return false, err
		}
	}
	if err := sys.Fault("close.pins"); err != nil {
		return false, err
	}
	l.observed = append(l.observed, inventory.ResourceChange{Kind: kindPins, Name: pinsName(l.id), State: task.Gone})
	if more {
		return false, errMore
	}
	if !left {
		l.observed = append(l.observed, inventory.ResourceChange{Kind: kindFiles, Name: string(l.id), State: task.Gone})
	}
	return left, nil
}

// keepOut keeps what the task put into its output store.
func (m *Manager) keepOut(l *live) error {
	l.dropSpills()
	out := filepath.Join(l.dir, "out")
	names, err := os.ReadDir(out)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(names) == 0 {
		return nil
	}
	if errors.Is(err, os.ErrPermission) {
		err = nil // the task closed it to its owner: keep it unseen
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(l.dir, "kept"), 0o700)
	}
	if err == nil {
		err = sys.Rename(out, filepath.Join(l.dir, "kept", "out"))
	}
	if err != nil {
		return task.Errorf(task.CodeStuck, "close", "the output store cannot be kept: %w", err)
	}
	return nil
}

// bundleName is the file in kept/ that source writes where the user's
// repository cannot be written.
const bundleName = "work.bundle"

// keptFiles lists what is kept of a task as files. It looks, because the
// process that moved them may have been killed before it could record it.
func (m *Manager) keptFiles(l *live) []task.ResultRef {
	var out []task.ResultRef
	for _, k := range []struct{ kind, path string }{
		{"ignored", filepath.Join(l.dir, "kept", "files")}, {"output", filepath.Join(l.dir, "kept", "out")},
	} {
		if exists(k.path) {
			names, _ := os.ReadDir(k.path)
			out = append(out, task.ResultRef{Kind: k.kind, Name: k.path, Count: len(names)})
		}
	}
	for _, p := range []string{filepath.Join(l.dir, "kept", bundleName), filepath.Join(l.dir, bundleName)} {
		if exists(p) {
			out = append(out, task.ResultRef{Kind: "bundle", Name: p})
		}
	}
	return out
}

// saveBundle moves a bundle of rescued commits beside the evidence, where it
// stays.
func (m *Manager) saveBundle(l *live) error {
	kept := filepath.Join(l.dir, "kept")
	if from := filepath.Join(kept, bundleName); exists(from) {
		if err := sys.Rename(from, filepath.Join(l.dir, bundleName)); err != nil {
			return task.Errorf(task.CodeStuck, "close", "the bundle of the task's commits cannot be kept: %w", err)
		}
	}
	_ = os.Remove(kept) // when nothing else is in it
	return nil
}

// withoutFiles drops results that were files of the task's folder.
func withoutFiles(rs []task.ResultRef) []task.ResultRef {
	var out []task.ResultRef
	for _, r := range rs {
		if !filepath.IsAbs(r.Name) {
			out = append(out, r)
		}
	}
	return out
}

// owns proves that the folder is the one the inventory means, or holds nothing
// that could be somebody else's.
func (m *Manager) owns(l *live, t inventory.Task) error {
	if !exists(l.dir) {
		return nil
	}
	var want string
	for _, r := range t.View.Resources {
		if r.Kind == kindFiles {
			want = r.Token
		}
	}
	if want == "" {
		want = l.token
	}
	b, err := os.ReadFile(filepath.Join(l.dir, "task.json"))
	if errors.Is(err, os.ErrNotExist) {
		for _, sub := range []string{"source", "shadow.git", "home", "out", "deps", rootDir, "kept"} {
			if exists(filepath.Join(l.dir, sub)) {
				return task.Errorf(task.CodeStuck, "close", "%s has no task.json, so it cannot be proven to be caisson's", l.dir).
					WithHint("look at it and remove it yourself if it is of no use")
			}
		}
		return nil
	}
	var mk marker
	if err == nil {
		err = json.Unmarshal(b, &mk)
	}
	if err != nil || want == "" || mk.Token != want || mk.ID != l.id {
		return task.Errorf(task.CodeStuck, "close", "%s does not carry the mark that is on record, so it is not removed", l.dir).
			WithHint("look at it and remove it yourself if it is of no use")
	}
	return nil
}
