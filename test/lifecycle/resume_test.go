//go:build linux

package lifecycle

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// contents lists every file of a folder with its mode and bytes.
func contents(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", strings.TrimPrefix(p, dir), i.Mode())
		switch {
		case i.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(b))
		case i.Mode()&os.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			line += " -> " + to
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// chain checks a task's evidence against the head that the inventory recorded,
// as docs/evidence.md says, and returns the types of its events.
func (w *world) chain(id string) []string {
	w.t.Helper()
	b, err := os.ReadFile(w.State + "/tasks/" + id + "/evidence/events.jsonl")
	if err != nil {
		w.t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+w.State+"/state.db?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	var head int
	var hash string
	if err := db.QueryRow(`SELECT seq, hash FROM heads WHERE task = ?`, id).Scan(&head, &hash); err != nil {
		w.t.Fatal(err)
	}
	var types []string
	prev := strings.Repeat("0", 64)
	for n, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		var e struct {
			Seq  int
			Prev string
			Type string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != n+1 || e.Prev != prev {
			w.t.Fatalf("line %d of the evidence of %s breaks the chain: %s", n+1, id, line)
		}
		sum := sha256.Sum256([]byte("\x00" + line))
		prev = hex.EncodeToString(sum[:])
		if e.Seq == head && prev != hash {
			w.t.Fatalf("the recorded head of %s is not line %d", id, head)
		}
		types = append(types, e.Type)
	}
	if head == 0 || len(types) < head {
		w.t.Fatalf("the evidence of %s has %d lines, the recorded head is %d", id, len(types), head)
	}
	return types
}

// TestKeepAndResume goes through several lives of one task.
func TestKeepAndResume(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		task := id.Open(t, w.repo, "--keep", "never", "--memory", "512m", "--env", "MODE=firstsecretvalue", "--grant", "ptrace", "life")
		w.ok("exec", "life", "--", "sh", "-c", job)
		w.ok("keep", "life", "--for", "2d", "--reason", "for a look")
		if v := w.show(task); v.State != "ready" || v.Retention != nil {
			t.Errorf("keep of an open task: %+v", v)
		}
		for round := range 3 {
			if r := w.do(nil, "close", "life"); r.Exit != 7 {
				t.Fatalf("close of a task to be kept: %v", r)
			}
			v := w.show(task)
			if v.State != "kept" || v.Retention == nil || v.Retention.Why != "for a look" || time.Until(v.Retention.Until) < 40*time.Hour {
				t.Fatalf("not kept as asked: %+v", v)
			}
			// Longer, and shorter again.
			w.ok("keep", task, "--for", "1w", "--reason", "longer")
			if k := w.show(task).Retention; k == nil || k.Why != "longer" || !k.Until.After(v.Retention.Until) {
				t.Errorf("not extended: %+v", k)
			}
			w.ok("keep", task, "--for", "50h", "--reason", "for a look")
			if k := w.show(task).Retention; k == nil || time.Until(k.Until) > 51*time.Hour {
				t.Errorf("not shortened: %+v", k)
			}
			if r := w.reap(); len(r.Actions)+len(r.Orphans) > 0 || w.show(task).State != "kept" {
				t.Errorf("reap does not honour the retention: %+v", r)
			}
			before := contents(t, w.State+"/tasks/"+task+"/source")
			r := w.do(nil, "resume", "life", "--env", "MODE=nextsecretvalue")
			if r.Exit != 0 || strings.TrimSpace(r.Stdout) != task {
				t.Fatal(r)
			}
			if after := contents(t, w.State+"/tasks/"+task+"/source"); !slices.Equal(before, after) {
				t.Errorf("resume changed files of the task:\n%s\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			v = w.show(task)
			if v.State != "ready" || v.Name != "life" || v.Retention != nil {
				t.Errorf("after resume: %+v", v)
			}
			if !strings.Contains(w.ok("show", task), "memory 512 MiB") || !strings.Contains(w.ok("show", task), "ptrace") {
				t.Error("limits or grants were not taken over")
			}
			if got := w.ok("exec", "life", "--", "sh", "-c", `cat a.txt c.txt u.txt i.ignored; echo $MODE; git log -1 --format=%s; echo `+fmt.Sprint(round)+` >r.txt; git add r.txt; git commit -qm round`); !strings.HasPrefix(got, "changed\ncommitted\nuncommitted\nignored\nnextsecretvalue\n") {
				t.Errorf("inside after resume: %q", got)
			}
			for _, args := range [][]string{{"resume", "life"}, {"resume", task}} {
				if r := w.do(nil, args...); r.Exit != 1 || !strings.Contains(r.Stderr, "is open already") {
					t.Errorf("resume of an open task: %v", r)
				}
			}
			w.ok("keep", "life", "--for", "2d", "--reason", "for a look")
		}
		// The last end is without a retention: `close` of the kept task.
		w.do(nil, "close", "life")
		if r := w.do(nil, "close", "life"); r.Exit != 7 { // ignored files stay
			t.Errorf("close of a kept task with ignored files: %v", r)
		}
		if got, _ := w.has(task, "heads/main", "r.txt"); got != "2\n" {
			t.Errorf("the rescued branch was not brought up to date: %q", got)
		}
		if r := w.do(nil, "resume", task); r.Exit != 1 || !strings.Contains(r.Stderr, "are gone") {
			t.Errorf("resume without files: %v", r)
		}
		w.ok("close", "--discard", task)
		for _, args := range [][]string{{"resume", task}, {"keep", task, "--for", "1h", "--reason", "x"}} {
			if r := w.do(nil, args...); r.Exit != 1 || !strings.Contains(r.Stderr, "is closed") || !strings.Contains(r.Stderr, "refs/caisson/"+task) {
				t.Errorf("%v of a closed task: %v", args, r)
			}
		}
		types := w.chain(task)
		if n := strings.Count(strings.Join(types, " "), "resume.intent"); n != 3 {
			t.Errorf("%d resumes on record", n)
		}
		b, _ := os.ReadFile(w.State + "/tasks/" + task + "/evidence/events.jsonl")
		d, _ := os.ReadFile(w.State + "/state.db")
		for _, secret := range []string{"firstsecretvalue", "nextsecretvalue"} {
			if strings.Contains(string(b), secret) || strings.Contains(string(d), secret) {
				t.Errorf("the value %s is on record", secret)
			}
		}
		if !strings.Contains(string(b), `"MODE"`) {
			t.Error("the name of the variable is not on record: the check above proves nothing")
		}
		w.clean()
	})
}

// TestResumeRefused leaves the task kept as it was when it cannot be resumed.
func TestResumeRefused(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		w.do(nil, "run", "--name", "x", "--", "sh", "-c", job)
		task := w.tasks()[0]
		before := contents(t, w.State+"/tasks/"+task.ID+"/source")
		same := func(what string) {
			t.Helper()
			v := w.show(task.ID)
			if v.State != "kept" || v.Retention == nil || !v.Retention.Until.Equal(task.Retention.Until) || v.Retention.Why != task.Retention.Why {
				t.Errorf("%s: %+v, want it kept as before: %+v", what, v, task)
			}
			if after := contents(t, w.State+"/tasks/"+task.ID+"/source"); !slices.Equal(before, after) {
				t.Errorf("%s: files were changed", what)
			}
			for _, l := range settled(w.processes) {
				t.Errorf("%s: still runs: %s", what, l)
			}
			if r := w.reap(); len(r.Actions)+len(r.Orphans) > 0 {
				t.Errorf("%s: reap finds %+v", what, r)
			}
			w.chain(task.ID)
		}
		// The repository whose objects the task shares is somewhere else.
		if err := os.Rename(w.repo, w.repo+".away"); err != nil {
			t.Fatal(err)
		}
		r := harness.Run(t, w.Command(t.Context(), w.Dir, bin, "resume", task.ID))
		if err := os.Rename(w.repo+".away", w.repo); err != nil {
			t.Fatal(err)
		}
		if r.Exit != 1 || !strings.Contains(r.Stderr, "is gone") {
			t.Errorf("without the object store: %v", r)
		}
		same("objects gone")
		// A name that another task has by now.
		other := id.Open(t, w.repo, "x")
		if r := w.do(nil, "resume", task.ID); r.Exit != 1 || !strings.Contains(r.Stderr, "conflict") {
			t.Errorf("with the name taken: %v", r)
		}
		w.ok("close", "--discard", other)
		same("name taken")
		// A probe that does not prove what was promised, and every step that fails.
		for _, f := range []string{"probe.planted", "resume.held", "resume.intended", "resume.recorded", "linux.launched", "resume.boundary", "resume.present", "open.probed", "open.served", "open.ready"} {
			if r := w.do([]string{"CAISSON_FAULT=" + f + ":error"}, "resume", task.ID); r.Exit == 0 || !strings.Contains(r.Stderr, "error:") {
				t.Errorf("%s: %v", f, r)
			}
			same(f)
		}
		w.ok("resume", task.ID)
		w.clean()
	})
}

// TestResumeKilled kills the supervisor at every step of a resume; whatever
// comes next finds the task kept, with its retention and every byte.
func TestResumeKilled(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		open := id.Open(t, w.repo, "--keep", "never", "x")
		w.ok("exec", "x", "--", "sh", "-c", job)
		w.ok("keep", "x", "--for", "1w", "--reason", "kept by a person")
		w.do(nil, "close", "x")
		before := contents(t, w.State+"/tasks/"+open+"/source")
		targets := []string{"hold.taken", "hold.settled", "resume.held", "resume.intended", "resume.recorded", "linux.grouped", "linux.launched", "resume.boundary", "resume.present",
			"probe.planted", "open.probed", "open.served", "inventory.commit.before:kill:2", "inventory.commit.after:kill:2", "inventory.commit.after:kill:3",
			"resume.present:error,resume.failed:kill", "evidence.append.synced", "reap.locked", "reap.adopted"}
		for i, target := range targets {
			if id.Name == "user" && os.Getuid() == 0 && i%3 != 0 && !long {
				continue // by root
			}
			if !strings.Contains(target, ":") {
				target += ":kill"
			}
			if r := w.do([]string{"CAISSON_FAULT=" + target}, "resume", open); r.Exit == 0 || !strings.Contains(r.Stderr, "supervisor ended before") {
				t.Errorf("%s: was not killed: %v", target, r)
			}
			if i%2 == 0 {
				w.ok("ls")
			} else {
				w.ok("reap")
			}
			v := w.show(open)
			if v.State != "kept" || v.Retention == nil || v.Retention.Why != "kept by a person" || v.Supervisor != nil {
				t.Errorf("%s: %+v", target, v)
			}
			if after := contents(t, w.State+"/tasks/"+open+"/source"); !slices.Equal(before, after) {
				t.Errorf("%s: files were changed", target)
			}
			for _, l := range settled(w.processes) {
				t.Errorf("%s: still runs: %s", target, l)
			}
			if r := w.reap(); len(r.Actions)+len(r.Orphans) > 0 {
				t.Errorf("%s: a second look finds %+v", target, r)
			}
			w.chain(open)
			if t.Failed() {
				t.Fatal("stopping after " + target)
			}
		}
		// The words of a person are recorded before they count.
		if r := w.do([]string{"CAISSON_FAULT=keep.noted:kill"}, "keep", open, "--for", "1h", "--reason", "y"); r.Exit == 0 {
			t.Error("keep was not killed")
		}
		w.ok("ls") // takes it back
		if r := w.do([]string{"CAISSON_FAULT=hold.recorded:kill"}, "keep", open, "--for", "2w", "--reason", "z"); r.Exit == 0 {
			t.Error("keep was not killed")
		}
		w.ok("ls")
		if v := w.show(open); v.State != "kept" || v.Retention.Why != "z" || v.Supervisor != nil {
			t.Errorf("after a killed keep: %+v", v)
		}
		w.chain(open)
		w.ok("resume", open)
		if got := w.ok("exec", "x", "--", "cat", "u.txt"); got != "uncommitted\n" {
			t.Errorf("got %q", got)
		}
		w.clean()
	})
}

// TestResumeRaces has several processes resume one task at once.
func TestResumeRaces(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.do(nil, "run", "--name", "x", "--", "sh", "-c", job)
		var wg sync.WaitGroup
		results := make([]harness.Result, 4)
		for i := range results {
			wg.Go(func() { results[i] = harness.Run(t, w.Command(t.Context(), w.repo, w.bin, "resume", "x")) })
		}
		wg.Wait()
		won := 0
		for _, r := range results {
			if r.Exit == 0 {
				won++
			} else if r.Exit != 1 || !strings.Contains(r.Stderr, "wrong_state") {
				t.Error(r)
			}
		}
		if won != 1 {
			t.Errorf("%d of %d won: %v", won, len(results), results)
		}
		if got := w.ok("exec", "x", "--", "cat", "u.txt"); got != "uncommitted\n" {
			t.Errorf("got %q", got)
		}
		// Closing and resuming at once: one of them has its way, nothing is lost.
		for range count(4, 20) {
			var a, b harness.Result
			wg.Go(func() { a = harness.Run(t, w.Command(t.Context(), w.repo, w.bin, "close", "--keep", "always", "x")) })
			wg.Go(func() { b = harness.Run(t, w.Command(t.Context(), w.repo, w.bin, "resume", "x")) })
			wg.Wait()
			v := w.tasks()[0]
			if v.State != "kept" && v.State != "ready" || a.Exit != 7 {
				t.Fatalf("%+v after %v and %v", v, a, b)
			}
			if v.State == "kept" {
				w.ok("resume", "x")
			}
			if got := w.ok("exec", "x", "--", "cat", "u.txt"); got != "uncommitted\n" {
				t.Fatalf("got %q", got)
			}
		}
		w.clean()
	})
}
