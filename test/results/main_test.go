//go:build linux

package results

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) {
	harness.Beside(5)
	os.Exit(harness.Main(m))
}

// count raises a number to what one waits for in a nightly run.
func count(short, full int) int {
	if os.Getenv("CAISSON_TEST_FULL") != "" {
		return full
	}
	return short
}

// mine shares cases out between the identities of a run started by root: each
// takes every second one, in a nightly run all.
func (p *place) mine(i int) bool {
	return os.Getuid() != 0 || count(0, 1) == 1 || (i%2 == 0) == (p.UID != 0)
}

// place is one identity with a repository, and a picture of everything that no
// task may touch.
type place struct {
	*harness.Identity
	t      *testing.T
	repo   string
	marks  string // a file here: something of a task was executed on the host
	before harness.Picture
	around map[string]harness.Picture
}

// each runs f with a place of every identity, at the same time as other tests.
func each(t *testing.T, files map[string]string, f func(*place)) {
	t.Helper()
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) { f(newPlace(t, id, files)) })
}

// user is each where the identity makes no difference to what is tested: the
// ordinary user alone, in a nightly run both.
func user(t *testing.T, files map[string]string, f func(*place)) {
	t.Helper()
	if count(0, 1) == 1 {
		each(t, files, f)
		return
	}
	t.Parallel()
	f(newPlace(t, harness.NewIdentity(t, "user", harness.UserOf()), files))
}

func newPlace(t *testing.T, id *harness.Identity, files map[string]string) *place {
	t.Helper()
	p := &place{Identity: id, t: t, marks: id.Tmp + "/marks"}
	p.repo = id.Repo(t, files)
	id.Mkdir(t, p.marks)
	id.Write(t, id.Home+"/.secret/f", secret, 0o600)
	// The user's own settings: an identity, so that plain git works as on a real host.
	id.Write(t, id.Home+"/.gitconfig", "[user]\n\tname = Tester\n\temail = t@example.org\n[safe]\n\tdirectory = *\n", 0o644)
	p.remember()
	return p
}

// secret is what a file outside of every task holds.
const secret = "S_FILE: not for a task\n"

// remember takes the picture that later ones are compared with.
func (p *place) remember() {
	p.t.Helper()
	p.before = harness.TakePicture(p.t, p.repo)
	p.around = map[string]harness.Picture{}
	for _, d := range []string{p.Home, p.Tmp, p.XDG} {
		p.around[d] = harness.TakePicture(p.t, d)
	}
}

// untouched checks that the repository is as remembered but for these
// patterns, that what lies around it is exactly as it was, and that nothing of a
// task was executed.
func (p *place) untouched(what string, allow ...string) {
	p.t.Helper()
	for _, d := range p.before.Changed(harness.TakePicture(p.t, p.repo), append(allow, harness.Results)...) {
		p.t.Errorf("%s: the user's repository: %s", what, d)
	}
	for dir, was := range p.around {
		for _, d := range was.Changed(harness.TakePicture(p.t, dir)) {
			p.t.Errorf("%s: %s: %s", what, dir, d)
		}
	}
	p.unmarked(what)
}

func (p *place) unmarked(what string) {
	p.t.Helper()
	for _, m := range p.marked() {
		p.t.Errorf("%s: EXECUTED ON THE HOST: %s", what, m)
	}
}

func (p *place) marked() (names []string) {
	p.t.Helper()
	list, err := os.ReadDir(p.marks)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// mark is a shell command that leaves a trace on the host. Inside it has no effect.
func (p *place) mark(name string) string { return "touch " + p.marks + "/" + name }

// do runs the product in the repository.
func (p *place) do(args ...string) harness.Result {
	p.t.Helper()
	return p.Caisson(p.t, p.repo, args...)
}

// ok is do that must succeed.
func (p *place) ok(args ...string) string {
	p.t.Helper()
	return p.OK(p.t, p.repo, args...)
}

// open opens a task on the repository.
func (p *place) open(flags ...string) string {
	p.t.Helper()
	return p.Open(p.t, p.repo, flags...)
}

// in runs a shell script in an open task.
func (p *place) in(id, script string) string {
	p.t.Helper()
	return p.OK(p.t, p.Dir, "exec", id, "--", "sh", "-ec", script)
}

// python runs a Python script in an open task.
func (p *place) python(id, script string) string {
	p.t.Helper()
	return p.OK(p.t, p.Dir, "exec", id, "--", "python3", "-c", script)
}

// task opens a task and runs a script in it.
func (p *place) task(script string, flags ...string) string {
	p.t.Helper()
	id := p.open(flags...)
	p.in(id, script)
	return id
}

// git runs git in the user's repository, as the user does.
func (p *place) git(args ...string) string { p.t.Helper(); return p.Git(p.t, p.repo, args...) }

// sh runs a shell script of the user's on the host and fails unless it succeeds.
func (p *place) sh(dir, script string) string {
	p.t.Helper()
	r := p.shell(dir, script)
	if r.Exit != 0 {
		p.t.Fatal(r)
	}
	return r.Stdout
}

// shell is sh whatever comes of it.
func (p *place) shell(dir, script string) harness.Result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	return harness.Run(p.t, p.Command(ctx, dir, "/bin/sh", "-ec", script))
}

// refused checks that a command failed with a typed error and a word of what is wrong.
func (p *place) refused(r harness.Result, code string) {
	p.t.Helper()
	if r.Exit == 0 || r.Exit == 7 || !strings.Contains(r.Stderr, "caisson: error: ") {
		p.t.Errorf("not refused: %v", r)
		return
	}
	if code != "" && !strings.Contains(r.Stderr, code) {
		p.t.Errorf("refused without %q: %v", code, r)
	}
	if strings.Contains(r.Stderr, "internal") && strings.Contains(r.Stderr, "bug") {
		p.t.Errorf("refused as a fault of ours: %v", r)
	}
}

// view is what these tests read of a task.
type view struct {
	ID, State, Problem string
	Results            []struct{ Kind, Name, Object string }
	Retention          *struct {
		Why, Reason string
		Until       time.Time
	}
}

func (p *place) show(id string) view {
	p.t.Helper()
	return harness.Decode[view](p.t, p.ok("show", "--json", id))
}

// report is what these tests read of the documents of diff, apply, branch and export.
type report struct {
	Schema, ID, From               string
	Tree, Branch, Object, Form, To string
	Digest                         string
	Applied, Created               bool
	DryRun                         bool `json:"dry_run"`
	Files, Commits, Already        int
	Changes                        []struct{ Status, Path, Path_base64 string }
	Risky                          []struct{ Path, Rule, Why string }
	Conflicts                      []struct{ Path, Why, Hunks string }
	Notes                          []string
}

// rep runs a command with --json and reads its document, whatever the status.
func (p *place) rep(args ...string) (report, harness.Result) {
	p.t.Helper()
	r := p.do(append(args, "--json")...)
	if strings.TrimSpace(r.Stdout) == "" {
		return report{}, r
	}
	v := harness.Decode[struct {
		report
		Error struct{ Detail *report }
	}](p.t, r.Stdout)
	if v.Error.Detail != nil { // what was found, and why it was not done
		return *v.Error.Detail, r
	}
	return v.report, r
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// control characters that act on a terminal. Colour is not among them.
var steering = regexp.MustCompile("\x1b[^\\[]|\x1b\\[[0-9;]*[^0-9;mK]|[\x00-\x06\x0b\x0c\x0e-\x1a]|\u202e")
