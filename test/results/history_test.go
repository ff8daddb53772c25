//go:build linux

package results

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// projects are modules that this one is built with: real trees of files.
var projects = []string{"github.com/spf13/cobra", "github.com/rogpeppe/go-internal"}

// history turns a module of the module cache into a repository of id with a
// commit a group of files. It is skipped where the module is not at hand.
func history(t *testing.T, id *harness.Identity, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	from := strings.TrimSpace(string(out))
	if err != nil || from == "" {
		t.Skipf("%s is not in the module cache: %v", module, err)
	}
	repo := id.Repo(t, nil)
	var names []string
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		names = append(names, rel)
		id.Write(t, repo+"/"+rel, string(b), 0o644)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(names); i += 1 + len(names)/5 {
		part := names[i:min(len(names), i+1+len(names)/5)]
		id.Git(t, repo, append([]string{"add", "-f", "--"}, part...)...)
		id.Git(t, repo, "commit", "-q", "-m", fmt.Sprintf("files from %s", part[0]))
	}
	return repo
}

func shquote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// edits is a shell script of n random edits of the files in list.
func edits(r *rand.Rand, list []string, n int) string {
	var b strings.Builder
	pick := func() string { return list[r.IntN(len(list))] }
	fresh := func() string {
		name := []string{"new %d", "é%d", "-n%d", "new\nline%d", "\xff%d", "q\"%d", "x -> y %d", "b\\%d", ".h%d", "Case%d", "case%d", "build/o%d", "vendor/v%d/x", "a/b/c/d%d"}[r.IntN(14)]
		return fmt.Sprintf(name, r.IntN(40))
	}
	for range n {
		f, g := pick(), pick()
		q, w, x := shquote("./"+f), shquote("./"+g), shquote("./"+fresh())
		switch r.IntN(20) {
		case 0, 1, 2:
			fmt.Fprintf(&b, "sed -i '%ds/.*/edited %d/' %s\n", 1+r.IntN(30), r.IntN(1000), q)
		case 3, 4:
			fmt.Fprintf(&b, "echo 'appended %d' >>%s\n", r.IntN(1000), q)
		case 5:
			fmt.Fprintf(&b, "rm -f %s\n", q)
		case 6, 7:
			fmt.Fprintf(&b, "mkdir -p \"$(dirname -- %s)\"; mv -T %s %s\n", x, q, x)
		case 8:
			fmt.Fprintf(&b, "mkdir -p \"$(dirname -- %s)\"; cp -T %s %s\n", x, q, x)
		case 9, 10:
			fmt.Fprintf(&b, "mkdir -p \"$(dirname -- %s)\"; printf 'new %d\\n' >%s\n", x, r.IntN(1000), x)
		case 11:
			fmt.Fprintf(&b, "[ -d %s ] || chmod %s %s\n", q, []string{"+x", "-x", "600", "755"}[r.IntN(4)], q)
		case 12:
			fmt.Fprintf(&b, "rm -f %s; ln -s %s %s\n", q, w, q)
		case 13:
			fmt.Fprintf(&b, "rm -f %s; mkdir -p %s; echo in >%s/in\n", q, q, q)
		case 14:
			if d := filepath.Dir(f); d != "." {
				fmt.Fprintf(&b, "rm -rf %s\n", shquote("./"+d))
			}
		case 15:
			fmt.Fprintf(&b, "sed -i 's/$/\\r/' %s\n", q)
		case 16:
			fmt.Fprintf(&b, "printf '\\000\\001\\377%d' >>%s\n", r.IntN(9), q)
		case 17:
			fmt.Fprintf(&b, "true >%s\n", q)
		case 18:
			fmt.Fprintf(&b, "touch %s; mkdir -p 'empty%d'\n", q, r.IntN(5))
		case 19:
			fmt.Fprintf(&b, "git add -A; git commit -qm 'random' || :\n")
		}
	}
	// A failing edit (a name that is a folder by now) is the same on both sides.
	return "set +e\nexec 2>/dev/null\n" + b.String() + "exit 0\n"
}

// TestAgainstPlainGit runs the same random edits in a task and in a plain
// clone of real projects: change sets are equal byte by byte, and what apply
// makes of the user's checkout is what plain git apply makes of a clone.
func TestAgainstPlainGit(t *testing.T) {
	t.Parallel()
	rounds := count(5, 250)
	for i, module := range projects {
		harness.Each(t, func(t *testing.T, id *harness.Identity) {
			p := &place{Identity: id, t: t, marks: id.Tmp}
			if !p.mine(i) {
				return
			}
			p.repo = history(t, id, module)
			base := p.git("rev-parse", "HEAD")
			plain, applied := p.Dir+"/plain", p.Dir+"/applied"
			p.git("clone", "-q", "--no-hardlinks", p.repo, plain)
			p.git("clone", "-q", "--no-hardlinks", p.repo, applied)
			task := p.open()
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 1))
			t.Logf("%s: seed %d, %d rounds", module, seed, rounds)
			changes := 0
			for round := range rounds {
				if round%10 == 9 { // else little is left in the end
					again := "git reset -q --hard " + base + "; git clean -qfdx"
					p.in(task, again)
					p.sh(plain, again)
				}
				script := edits(r, slices.Collect(keys(harness.Files(t, plain))), 1+r.IntN(12))
				p.in(task, script)
				p.sh(plain, script)
				// A fresh index each time: what counts is the files, not what was added when.
				want := p.sh(plain, "export GIT_INDEX_FILE='"+p.Dir+"/index'; rm -f \"$GIT_INDEX_FILE\"; git read-tree "+base+"; git add -A; git diff --cached -M --name-status -z "+base+"; git diff --cached -M --binary --full-index "+base+" >'"+p.Dir+"/patch'")
				got := p.ok("diff", "--name-status", "-z", task)
				if got != want {
					t.Fatalf("seed %d round %d after\n%s\nthe change set is\n%q\nplain git has\n%q", seed, round, script, got, want)
				}
				changes += strings.Count(got, "\x00")
				if round%5 != 4 && round != rounds-1 {
					continue
				}
				if patch := p.ok("diff", task); patch != read(t, p.Dir+"/patch") {
					t.Fatalf("seed %d round %d: the patch is another one", seed, round)
				}
				p.sh(applied, "git reset -q --hard; git clean -qfdx; git apply --binary --allow-empty '"+p.Dir+"/patch'")
				p.ok("apply", "--yes", "--allow-risky", task)
				harness.Same(t, fmt.Sprintf("seed %d round %d: apply against git apply", seed, round), harness.Files(t, p.repo), harness.Files(t, applied))
				p.sh(p.repo, "git reset -q --hard; git clean -qfdx")
				if t.Failed() {
					return
				}
			}
			t.Logf("%d changed paths compared", changes/2)
			if changes == 0 {
				t.Error("nothing was changed: a dead test")
			}
		})
	}
}

func keys(m map[string]string) func(func(string) bool) {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list) // the same seed is the same case
	return slices.Values(list)
}
