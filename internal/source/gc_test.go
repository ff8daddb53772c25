//go:build linux

package source

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// destroy deletes everything the user can delete without deleting refs of
// ours: branches, tags, reflogs, objects that nothing reaches.
func (l *lab) destroy() {
	l.t.Helper()
	l.git("checkout", "-q", "--orphan", "empty")
	l.git("rm", "-rqf", ".")
	l.git("commit", "-q", "--allow-empty", "-m", "nothing")
	for _, ref := range strings.Fields(l.git("for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags", "refs/remotes")) {
		if ref != "refs/heads/empty" {
			l.git("update-ref", "--no-deref", "-d", ref)
		}
	}
	l.git("reflog", "expire", "--expire=now", "--all")
	l.git("gc", "-q", "--prune=now")
}

func TestGarbageCollectionOfTheUser(t *testing.T) {
	for _, pinned := range []bool{true, false} {
		t.Run(fmt.Sprintf("pinned=%v", pinned), func(t *testing.T) {
			l := basic(t)
			o := l.open(Options{})
			base, side := o.r.Ref.Base, l.git("rev-parse", "side")
			if o.p.Pins != 3 { // base, side, the tag object
				t.Errorf("%d pins", o.p.Pins)
			}
			if !pinned {
				if err := Unpin(context.Background(), o.r.Ref.CommonDir, o.ws.Task); err != nil {
					t.Fatal(err)
				}
			}
			l.destroy()
			_, err := l.tryGit(o.p.Source, nil, "log", "-p", "--all")
			if !pinned {
				if err == nil {
					t.Error("control: without pins the user's gc breaks nothing, so this test proves nothing")
				}
				return
			}
			if err != nil {
				t.Fatalf("git inside is broken: %v", err)
			}
			o.in("fsck", "--full", "--strict")
			o.in("cat-file", "-e", side+"^{tree}")
			o.in("cat-file", "-e", "v1^{commit}")
			o.file("dir/a.txt", "changed\n")
			o.in("commit", "-qam", "after the gc")
			if w := o.work(); len(w.Tracked) != 1 {
				t.Errorf("work: %+v", w)
			}
			rs := o.imports(o.bundle())
			if len(rs) != 1 {
				t.Fatalf("results: %+v", rs)
			}
			if err := Unpin(context.Background(), o.r.Ref.CommonDir, o.ws.Task); err != nil {
				t.Fatal(err)
			}
			// The result now holds its own history.
			l.git("gc", "-q", "--prune=now")
			if got := l.git("rev-parse", rs[0].Name+"^"); got != base {
				t.Errorf("base of the result: %s", got)
			}
			l.git("fsck", "--full", "--strict")
		})
	}
}

func TestRefsThatCannotBeWritten(t *testing.T) {
	l := basic(t)
	r, err := l.inspect(Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A lock that stays makes the transaction fail, also for root.
	l.write(".git/refs/caisson", "in the way\n")
	o := l.prepare(r)
	if o.p.Ref.Shared || o.p.Pins != 0 || !strings.Contains(strings.Join(o.p.Ref.Notes, " "), "self-contained") {
		t.Errorf("%+v", o.p)
	}
	if err := os.Remove(l.repo + "/.git/refs/caisson"); err != nil {
		t.Fatal(err)
	}
	l.destroy()
	o.in("fsck", "--full", "--strict")
	o.file("x", "x\n")
	o.in("add", "x")
	o.in("commit", "-qm", "x")
	if w := o.work(); len(w.Untracked) != 1 || len(w.Commits) != 1 {
		t.Errorf("work: %+v", w)
	}
	snap, err := MakeSnapshot(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	if rs, err := PublishSnapshot(context.Background(), o.ws, snap); err != nil || len(rs) != 1 || rs[0].Kind != "bundle" || !strings.Contains(rs[0].Why, "could not be written") {
		t.Errorf("%+v %v", rs, err)
	}
	if rs := o.imports(o.bundle()); len(rs) != 1 || rs[0].Kind != "bundle" {
		t.Errorf("%+v", rs)
	}
}

func TestReadOnlyRepository(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere; run the tests as another user too")
	}
	l := basic(t)
	for _, d := range []string{".git/refs", ".git"} {
		if err := os.Chmod(l.repo+"/"+d, 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(l.repo+"/"+d, 0o755)
	}
	before := picture(t, l.repo, nil)
	o := l.open(Options{})
	if o.p.Ref.Shared || o.p.Pins != 0 || len(o.p.Objects) != 0 {
		t.Errorf("%+v", o.p)
	}
	o.file("x", "x\n")
	o.in("add", "x")
	o.in("commit", "-qm", "x")
	if rs := o.imports(o.bundle()); len(rs) != 1 || rs[0].Kind != "bundle" {
		t.Errorf("%+v", rs)
	}
	if picture(t, l.repo, nil) != before {
		t.Error("the user's repository changed")
	}
}

func TestBrokenRefOfTheUser(t *testing.T) {
	l := basic(t)
	l.write(".git/refs/heads/broken", strings.Repeat("12", 20)+"\n")
	o := l.open(Options{})
	if !o.p.Ref.Shared || !strings.Contains(strings.Join(o.p.Ref.Notes, " "), "refs/heads/broken") {
		t.Errorf("%+v", o.p)
	}
	o.in("fsck")
}

func TestManyTasksAtOnce(t *testing.T) {
	l := basic(t)
	before := picture(t, l.repo, notOurs)
	var wg sync.WaitGroup
	errs := make(chan error, 12)
	var mu sync.Mutex
	var ids []task.ID
	for range cap(errs) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r, err := l.inspect(Options{})
			if err != nil {
				errs <- err
				return
			}
			id := task.NewID()
			ws := Workspace{Task: id, Dir: l.state + "/" + string(id)}
			if err := os.Mkdir(ws.Dir, 0o700); err != nil {
				errs <- err
				return
			}
			if _, err := Prepare(context.Background(), r, ws, Inside{ObjectsDir: "/run/boundary/objects", UID: 1000, GID: 1000}); err != nil {
				errs <- err
				return
			}
			if w, err := Work(context.Background(), ws); err != nil || !w.Empty() {
				errs <- fmt.Errorf("work: %+v %v", w, err)
			}
			if err := Unpin(context.Background(), r.Ref.CommonDir, id); err != nil {
				errs <- err
			}
			mu.Lock()
			ids = append(ids, id)
			mu.Unlock()
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	if got := l.git("for-each-ref", "refs/caisson"); got != "" {
		t.Errorf("left: %s", got)
	}
	if left, err := os.ReadDir(l.repo + "/.git/refs/caisson"); err == nil && len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if after := picture(t, l.repo, notOurs); after != before {
		t.Errorf("the user's repository changed:\n%s\nwas\n%s", after, before)
	}
}

// TestGoneBetweenLookAndPin: the user deletes and collects everything after
// the repository was looked at. The task is refused; nothing half-made is used.
func TestGoneBetweenLookAndPin(t *testing.T) {
	for what, do := range map[string]func(l *lab){
		"all": func(l *lab) { l.destroy() },
		"a blob": func(l *lab) {
			oid := l.git("rev-parse", "HEAD:dir/a.txt")
			if err := os.Remove(l.repo + "/.git/objects/" + oid[:2] + "/" + oid[2:]); err != nil {
				l.t.Fatal(err)
			}
		},
		"the parent's tree": func(l *lab) {
			l.git("update-ref", "-d", "refs/heads/side")
			l.git("checkout", "-q", "--orphan", "x")
			l.git("commit", "-q", "-m", "x")
			for _, r := range []string{"refs/heads/main", "refs/tags/v1", "refs/remotes/origin/main"} {
				l.git("update-ref", "-d", r)
			}
			oid := l.git("rev-parse", "ORIG^^{tree}")
			if err := os.Remove(l.repo + "/.git/objects/" + oid[:2] + "/" + oid[2:]); err != nil {
				l.t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := basic(t)
			l.git("update-ref", "ORIG", "HEAD")
			r, err := l.inspect(Options{})
			if err != nil {
				t.Fatal(err)
			}
			do(l)
			ws := Workspace{Task: task.NewID(), Dir: l.state}
			if what == "all" {
				l.git("update-ref", "-d", "ORIG")
				l.git("gc", "-q", "--prune=now")
			}
			_, err = Prepare(context.Background(), r, ws, Inside{ObjectsDir: "/run/caisson/objects", UID: 1000, GID: 1000})
			if task.CodeOf(err) != task.CodeSource {
				t.Errorf("got %v", err)
			}
			if err := Unpin(context.Background(), r.Ref.CommonDir, ws.Task); err != nil {
				t.Error(err)
			}
		})
	}
}
