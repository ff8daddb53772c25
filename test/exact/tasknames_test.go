//go:build linux

package exact

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestTaskNames gives tasks names of any text: each is a task of its own, found
// by exactly that name, or refused as a misuse before anything is made.
func TestTaskNames(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		w.repo = w.Repo(t, map[string]string{"a.txt": "a\n"})
		first := w.open("--name", "first")
		taken := []string{"plain", "Fix login", "fix login", "Fix  login", "feat/foo", "feat-foo", "feat_foo", "日本語", "👩‍🚀 go", "a..b", "..", ".", "x.lock", "a~b", "a^b", "a:b", "@", "@{-1}", "HEAD", "refs/heads/main", "../../etc/passwd", "/abs", "~", "-x", "--json",
			"-", "--", "--name", "100%", "%s%n", "$(touch pwned)", "`touch pwned`", "a;b", "a'b", "a\"b", "a\\b", "*", "?", "[a]", "<a>", "|", "é", "e\u0301", first[:3], "t", "tzzzzzzzzzz", "T" + first[1:], "null", "0", "true", " lead", "trail ", strings.Repeat("n", 64), strings.Repeat("n", 100)}
		never := []string{"a\nb", "a\tb", "\x1b[2J", "\x1b]0;evil\x07", "a\rb", "\x00", "\xff\xfe", "\u202egnp.exe", "\u200bzero", "\x7f", "a\u2028b", "\u009b31m", strings.Repeat("x", 10_000), first}
		empty := []string{"", " ", "   "}
		ids := map[string]string{}
		for _, n := range slices.Concat(taken, never, empty) {
			if strings.Contains(n, "\x00") {
				continue // no command line can hold one; the control socket refuses it
			}
			r := w.do("open", "--json", "--name="+n)
			w.clear(harness.Result{Args: r.Args, Stderr: r.Stderr}) // the document is exact by its nature
			switch {
			case r.Exit == 0:
				v := harness.Decode[struct{ ID, Name string }](t, r.Stdout)
				if v.Name != n {
					t.Errorf("%q became %q", n, v.Name)
				}
				if slices.Contains(never, n) {
					t.Errorf("%q was taken", n)
				}
				for other, id := range ids {
					if id == v.ID {
						t.Errorf("%q and %q are one task", n, other)
					}
				}
				ids[n] = v.ID
				if n != "" {
					if got := harness.Decode[struct{ ID string }](t, w.ok("show", "--json", "--", n)).ID; got != v.ID {
						t.Errorf("%q shows %s, not %s", n, got, v.ID)
					}
				}
				if len(ids)%8 != 1 && n != "-" && n != ".." {
					break
				}
				if got := w.OK(t, w.repo, "exec", "--", n, "cat", "a.txt"); got != "a\n" {
					t.Errorf("exec in %q: %q", n, got)
				}
			default:
				code := "usage"
				if n == first {
					code = "conflict" // the name is the id of another task
				}
				w.refused(w.do("open", "--name="+n), code)
			}
			if r.Exit == 0 {
				w.ok("close", "--", harness.Decode[struct{ ID string }](t, r.Stdout).ID)
			}
		}
		t.Logf("taken: %d names", len(ids))
		if len(ids) < 12 {
			t.Errorf("only %d names are taken: a dead test", len(ids))
		}
		// The first one is still what its id, its beginning and its name say.
		for _, ref := range []string{first, first[:len(first)-1], "first"} {
			if got := harness.Decode[struct{ ID string }](t, w.ok("show", "--json", ref)).ID; got != first {
				t.Errorf("%s means %s", ref, got)
			}
		}
		w.clear(w.do("ls", "--all"))
		for _, bad := range []string{"", " ", "nobody", "first ", "FIRST", strings.Repeat("x", 10_000), "\x1b[2J", "a\nb"} {
			for _, verb := range []string{"show", "diff", "close", "apply"} {
				r := w.do(verb, "--", bad)
				w.refused(r, "")
				w.clear(r)
			}
		}
		w.homeUntouched()
		for _, d := range []string{w.repo, w.Dir, w.State} {
			if _, err := os.Lstat(d + "/pwned"); err == nil {
				t.Errorf("a name was executed: %s/pwned", d)
			}
		}
		if out := w.git("status", "--porcelain", "--ignored"); out != "" {
			t.Errorf("the checkout changed: %s", out)
		}
	})
}

// TestOneNameAtOnce runs commands under one name at once: those that overlap are
// refused and leave nothing, the others are tasks of their own.
func TestOneNameAtOnce(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		w.repo = w.Repo(t, map[string]string{"a.txt": "a\n"})
		var wg sync.WaitGroup
		var mu sync.Mutex
		ran, lost := 0, 0
		for n := range 20 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
				defer cancel()
				cmd := w.Command(ctx, w.repo, harness.Bin(), "run", "--name", "same", "--keep", "never", "--", "sh", "-c", fmt.Sprintf("echo %d >mine; git add mine; git commit -qm mine; cat a.txt", n))
				var out, errs strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &errs
				_ = cmd.Run()
				mu.Lock()
				defer mu.Unlock()
				switch exit := cmd.ProcessState.ExitCode(); {
				case exit == 0 && out.String() == "a\n":
					ran++
				case exit == 125 && strings.Contains(errs.String(), "(conflict)") && strings.Contains(errs.String(), "is taken by task") && out.String() == "":
					lost++
				default:
					t.Errorf("run %d: exit %d %q %s", n, exit, out.String(), errs.String())
				}
			})
		}
		wg.Wait()
		if ran == 0 || ran+lost != 20 {
			t.Errorf("%d ran, %d lost", ran, lost)
		}
		list := harness.Decode[struct{ Tasks []struct{ ID, State string } }](t, w.ok("ls", "--all", "--json")).Tasks
		refs := strings.Fields(w.git("for-each-ref", "--format=%(refname)", "refs/caisson/"))
		if len(list) != ran {
			t.Errorf("%d tasks on record, %d ran: %v", len(list), ran, list)
		}
		for _, v := range list {
			if v.State != "closed" || !slices.Contains(refs, "refs/caisson/"+v.ID+"/heads/main") {
				t.Errorf("%s is %s, refs %v", v.ID, v.State, refs)
			}
		}
		if n := len(slices.DeleteFunc(refs, func(r string) bool { return !strings.HasSuffix(r, "/heads/main") })); n != ran {
			t.Errorf("%d branches came home of %d", n, ran)
		}
	})
}
