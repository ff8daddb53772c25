//go:build linux

package source

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// packed runs the pack command as a throwaway boundary would; nil: there is
// nothing to bring out.
func (o *opened) packed() []byte {
	o.t.Helper()
	argv, env, stdin, err := PackCommand(context.Background(), o.ws)
	if err != nil {
		o.t.Fatal(err)
	}
	if len(argv) == 0 {
		return nil
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir, c.Env, c.Stdin = o.p.Source, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/"}, env...), strings.NewReader(stdin)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		o.t.Logf("pack: %v: %s", err, errs.String())
	}
	return out.Bytes()
}

// TestLost makes commits that no ref leads to in the end, and finds exactly the
// last ones of them; what a ref leads to is no loss.
func TestLost(t *testing.T) {
	commit := `c() { echo $1 >$1; git add $1; git commit -qm $1; }; `
	for _, c := range []struct {
		name, script string
		want         []string // revisions to be rescued from the logs
		likely       int      // how many Work names
	}{
		{"nothing", "", nil, 0},
		{"commits on a branch", "c 1; c 2; c 3; git checkout -qb y; c 4; git checkout -q main", nil, 0},
		{"user's history looked at", "git checkout -q HEAD~1; git checkout -q main; git reset -q --hard HEAD~1; git reset -q --hard HEAD@{1}", nil, 0},
		{"merge", "git checkout -qb y; c 1; git checkout -q main; c 2; git merge -q --no-edit y; git branch -qd y", nil, 1}, // the logs do not say what was merged
		{"reset", "c 1; c 2; git tag -f keep >/dev/null; git reset -q --hard HEAD~2; git update-ref refs/x keep; git tag -d keep >/dev/null; git update-ref -d refs/x", []string{"main@{1}"}, 1},
		{"amended", "c 1; git commit -q --amend -m one", []string{"main@{1}"}, 1},
		{"amended twice", "c 1; git commit -q --amend -m one; git commit -q --amend -m eins", []string{"main@{1}", "main@{2}"}, 2},
		{"rebased", "git checkout -qb y; c 1; c 2; git checkout -q main; c 3; git rebase -q main y", []string{"y@{1}"}, 1},
		{"branch deleted", "git checkout -qb y; c 1; git checkout -q main; git branch -qD y; c 2", []string{"HEAD@{2}"}, 1},
		{"lies in the log", "c 1; git reset -q --hard HEAD~1; c 2; sed -i 's/reset: moving.*/commit: no/' .git/logs/HEAD .git/logs/refs/heads/main", []string{"main@{2}"}, 0},
		{"squashed", "c 1; c 2; c 3; git reset -q --soft HEAD~3; git commit -qm all", []string{"main@{2}"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := basic(t)
			o := l.open(Options{})
			cmd := exec.Command("sh", "-ec", commit+c.script)
			cmd.Dir, cmd.Env = o.p.Source, l.env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var want []string
			for _, r := range c.want {
				want = append(want, o.in("rev-parse", r))
			}
			var named []string
			for _, w := range o.work().Commits {
				if strings.HasPrefix(w, "reflog/") {
					named = append(named, w)
				}
			}
			if len(named) != c.likely {
				t.Errorf("work names %q", named)
			}
			if need, err := NeedsBundle(context.Background(), o.ws); err != nil {
				t.Fatal(err)
			} else if need {
				o.imports(o.bundle())
			}
			var got []string
			for range 2 { // again: the same answer
				got = nil
				if b := o.packed(); b != nil {
					rs, err := ImportPack(context.Background(), o.ws, bytes.NewReader(b), 64<<20)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range rs {
						if !strings.Contains(r.Name, "/reflog/") || r.Kind != "reflog" || r.Count == 0 {
							t.Errorf("%+v", r)
						}
						got = append(got, r.Object)
					}
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("rescued %q, want %q\n%s", got, want, o.in("reflog", "--all"))
			}
			l.git("fsck", "--strict", "--full")
			for _, oid := range want {
				if got := l.git("rev-list", "--count", oid, "--not", "--branches"); got == "0" {
					t.Errorf("control: %s is on a branch of the user's", oid)
				}
			}
		})
	}
}

// TestLostHostile forges the logs: what they name that is not there is said and
// nothing is taken over; what is no commit, or no log, does no harm.
func TestLostHostile(t *testing.T) {
	missing := strings.Repeat("7", 40)
	for _, c := range []struct {
		name, script string
		code         task.Code
		refs         int
	}{
		{"garbage", `mkdir -p .git/logs; printf 'x\n\377 y\n0 1\n' >.git/logs/HEAD`, "", 0},
		{"a folder", "rm -f .git/logs/HEAD; mkdir -p .git/logs/HEAD", "", 0},
		{"a pipe", "mkdir -p .git/logs; rm -f .git/logs/HEAD; mkfifo .git/logs/HEAD", "", 0},
		{"a link", "mkdir -p .git/logs; rm -f .git/logs/HEAD; ln -s /etc/passwd .git/logs/HEAD", "", 0},
		{"a blob", "mkdir -p .git/logs; b=$(echo new | git hash-object -w --stdin); echo $b $b x >>.git/logs/HEAD", "", 1},
		{"not there", "mkdir -p .git/logs; echo " + missing + " " + missing + " x >>.git/logs/HEAD", task.CodeBadResult, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := basic(t)
			o := l.open(Options{})
			cmd := exec.Command("sh", "-ec", c.script)
			cmd.Dir, cmd.Env = o.p.Source, l.env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			before := l.git("for-each-ref")
			var rs []task.ResultRef
			var err error
			if b := o.packed(); b != nil {
				rs, err = ImportPack(context.Background(), o.ws, bytes.NewReader(b), 64<<20)
			}
			if (err == nil) != (c.code == "") || err != nil && task.CodeOf(err) != c.code || len(rs) != c.refs {
				t.Errorf("%+v %v", rs, err)
			}
			if err != nil && l.git("for-each-ref") != before {
				t.Error("refs were made")
			}
		})
	}
}
