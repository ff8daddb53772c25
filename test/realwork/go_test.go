//go:build linux

package realwork

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// buildCache carries what the first identity compiled to the next one: standard
// output of one task, standard input of another.
var buildCache string

// TestGoProject works on cobra: build, vet and test offline with a read-only
// module cache, edit, commit, and the work is there when the task is gone.
func TestGoProject(t *testing.T) {
	heavy(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		id = withGo(t, id)
		mod, complete := moduleSeed(t)
		repo := project(t, id, "github.com/spf13/cobra")
		pattern := "."
		if complete && long() { // the package of its documentation compiles for minutes what shows nothing new
			pattern = "./..."
		}
		on(t, id, repo, func() {
			task := id.Open(t, repo, "--ro", mod+"/mod:/seed/mod", "--env", "GOMODCACHE=/seed/mod", "--env", "GOPROXY=off", "--env", "GOFLAGS=-mod=mod", "--env", "GOTOOLCHAIN=local")
			v := show(t, id, task)
			if !v.finding("ro-seed") {
				t.Errorf("show does not list the read-only seed as a finding: %+v", v.Findings)
			}
			contains(t, "show", id.OK(t, id.Dir, "show", task), "/seed/mod")
			cold := buildCache == ""
			if !cold {
				r := feed(t, id, repo, strings.NewReader(buildCache), "exec", task, "--", "sh", "-ec", "mkdir -p ~/.cache && tar -x -C ~/.cache")
				status(t, r, 0)
			}
			in(t, id, task, "go build "+pattern)
			in(t, id, task, "go vet "+pattern)
			contains(t, "go test", in(t, id, task, "go test "+pattern), "ok  \tgithub.com/spf13/cobra")
			t.Log(in(t, id, task, "go version; du -sh ~/.cache/go-build; df -h $HOME | tail -1"))
			if cold {
				buildCache = in(t, id, task, "tar -c -C ~/.cache go-build")
				if !strings.Contains(buildCache[:512], "go-build/") {
					t.Errorf("no archive: %q", buildCache[:512])
				}
			}
			// A seed is read-only, whoever asks.
			if r := id.Caisson(t, repo, "exec", task, "--", "sh", "-c", "touch /seed/mod/x"); r.Exit == 0 {
				t.Error("the seed can be written")
			}
			// Work: a change, seen by the compiler, committed by the user's identity.
			in(t, id, task, `printf '\n// Answer is new.\nfunc Answer() int { return 42 }\n' >>cobra.go
printf 'package cobra\nimport "testing"\nfunc TestAnswer(t *testing.T) { if Answer() != 42 { t.Fatal() } }\n' >answer_test.go
gofmt -l . | (! grep cobra.go) && go test -run TestAnswer . && git add -A && git commit -qm 'Answer' && git status --porcelain | (! grep .)`)
			stat := id.OK(t, id.Dir, "diff", "--stat", task)
			contains(t, "diff", stat, "cobra.go", "answer_test.go")
			head := strings.TrimSpace(in(t, id, task, "git rev-parse HEAD"))
			id.OK(t, id.Dir, "close", task)
			v = show(t, id, task)
			found := false
			for _, r := range v.Results {
				found = found || r.Object == head
			}
			if !found {
				t.Errorf("commit %s is not among the results: %+v", head, v.Results)
			}
			contains(t, "rescued commit", id.Git(t, repo, "show", "--stat", head), "Answer", "answer_test.go")
			if left := id.Left(); len(left) > 0 {
				t.Errorf("left: %s", strings.Join(left, "\n"))
			}
		})
	})
}

// TestGoModuleItself tests pflag, which needs no other module, by one `run`.
func TestGoModuleItself(t *testing.T) {
	heavy(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		id = withGo(t, id)
		repo := project(t, id, "github.com/spf13/pflag")
		on(t, id, repo, func() {
			args := []string{"run", "--env", "GOPROXY=off", "--", "sh", "-ec", "mkdir -p ~/.cache && tar -x -C ~/.cache; go vet . && go test ./... && git status --porcelain | (! grep .)"}
			if buildCache == "" {
				t.Log("no build cache from another test: everything is compiled")
				args[len(args)-1] = strings.Replace(args[len(args)-1], "mkdir -p ~/.cache && tar -x -C ~/.cache;", "", 1)
			}
			r := feed(t, id, filepath.Join(repo), strings.NewReader(buildCache), args...)
			status(t, r, 0)
			contains(t, "go test", r.Stdout, "ok  \tgithub.com/spf13/pflag")
			if left := id.Left(); len(left) > 0 {
				t.Errorf("left: %s", strings.Join(left, "\n"))
			}
		})
	})
}
