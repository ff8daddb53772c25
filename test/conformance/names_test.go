//go:build linux

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// marker makes a shell fragment that would leave a trace if anything ran it.
func marker(id *harness.Identity) (file, shell string) {
	file = id.Tmp + "/executed"
	return file, "touch " + file
}

// hostileNames are file names that a tool could take for something else.
func hostileNames(shell string) []string {
	slash := strings.NewReplacer("/", "$'\\57'") // a name cannot hold one
	sh := slash.Replace(shell)
	return []string{
		"--upload-pack=" + sh, "--output=pwned", "-oProxyCommand=" + sh, "--exec=" + sh, "-c", "--", "-", "--git-dir=x", "-n", "@{-1}", "HEAD", "refs", "--ext-diff", "--help",
		"$(" + sh + ")", "`" + sh + "`", "; " + sh, "a\nb", "a\n--output=pwned", "a\tb", "tab\tand\nnewline", "q\"uote'", "back\\slash", "\x1b[2J", "\xff\xfe", "ä ö", "x -> y", "=>", "%s%n",
		":(top)x", ":(exclude)*", ":!x", "!x", "*", "?", "[a]", "~", "~root", "#x", " lead", "trail ", "\u202egpj.exe", "CON", strings.Repeat("n", 255), "a\rb", "{a,b}", "|" + sh, "&", "<", ">",
	}
}

// TestHostileFileNames is P48 for files: what the task calls its files reaches
// no host program as anything but a name, and comes back exact.
func TestHostileFileNames(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		trace, shell := marker(id)
		names := hostileNames(shell)
		files := map[string]string{}
		for _, n := range names {
			files["old/"+n] = "old\n"
		}
		repo := hostile(t, id, files)
		id.Write(t, repo+"/names", strings.Join(names, "\x00"), 0o644)
		id.Git(t, repo, "add", "names")
		id.Git(t, repo, "commit", "-qm", "names")
		task := id.Open(t, repo)
		script := `import os
for n in open('names','rb').read().split(b'\0'):
    os.makedirs(b'new', exist_ok=True)
    open(b'new/'+n,'wb').write(b'new\n'); open(b'old/'+n,'ab').write(b'more\n')
    try: open(n,'wb').write(b'top\n')
    except OSError: pass
`
		id.OK(t, repo, "exec", task, "--", "python3", "-c", script)
		out := id.OK(t, repo, "diff", "--name-status", "-z", task)
		fields := strings.Split(out, "\x00")
		for _, n := range names {
			for _, want := range []string{"old/" + n, "new/" + n, n} {
				if !slices.Contains(fields, want) {
					t.Errorf("%q is missing in the change set", want)
				}
			}
		}
		id.OK(t, repo, "diff", task)
		id.OK(t, repo, "diff", "--stat", task)
		id.OK(t, repo, "log", task)
		r := id.Caisson(t, repo, "close", "--json", task)
		if r.Exit != 0 && r.Exit != 7 {
			t.Error(r)
		}
		refs := id.Git(t, repo, "for-each-ref", "--format=%(refname)", "refs/caisson/"+task+"/")
		got := ""
		for _, ref := range strings.Fields(refs) {
			got += id.Git(t, repo, "ls-tree", "-r", "-z", "--name-only", ref) + "\x00"
		}
		for _, n := range names {
			if !slices.Contains(strings.Split(got, "\x00"), "new/"+n) {
				t.Errorf("%q was not rescued; refs: %q", n, refs)
			}
		}
		notExecuted(t, id, repo, trace)
	})
}

func notExecuted(t *testing.T, id *harness.Identity, repo, trace string) {
	t.Helper()
	for _, p := range []string{trace, repo + "/pwned", id.Dir + "/pwned", id.State + "/pwned"} {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is there: a name was executed or taken for an option", p)
		}
	}
	if out := id.Git(t, repo, "status", "--porcelain"); out != "" {
		t.Errorf("the user's checkout was changed: %s", out)
	}
}

// TestHostileArguments is P48 for what a person or a model passes on the
// command line, and for repositories and refs with such names.
func TestHostileArguments(t *testing.T) {
	if !harness.Full() {
		harness.OnlyLinux(t, "arguments are judged before a backend hears of them; CAISSON_TEST_FULL=1 tries all of it")
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		trace, shell := marker(id)
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		bad := []string{"--upload-pack=" + shell, "-oProxyCommand=" + shell, "--output=" + repo + "/pwned", "--all", "-", "--", "$(" + shell + ")", "`" + shell + "`", "HEAD\n--output=pwned", "HEAD; " + shell,
			"ext::sh -c " + shell, "a..b", "HEAD..HEAD", "^HEAD", ":/x", "HEAD:a.txt", "HEAD^{tree}", "\x00", "\x1b[2J", strings.Repeat("x", 5000), "refs/../../x", "@{upstream}", "--exec=" + shell}
		for _, v := range bad {
			if strings.Contains(v, "\x00") {
				continue // no command line can hold one
			}
			r := id.Caisson(t, repo, "plan", "--json", "--base="+v, "--", "/bin/true")
			if r.Exit == 0 || code(r) == "" || code(r) == "internal" {
				t.Errorf("--base %q: %v", v, r)
			}
			r = id.Caisson(t, repo, "show", "--json", "--", v)
			if r.Exit == 0 || code(r) == "" || code(r) == "internal" {
				t.Errorf("show %q: %v", v, r)
			}
			r = id.Caisson(t, repo, "plan", "--json", "--repo="+v, "--", "/bin/true")
			if r.Exit == 0 || code(r) == "" || code(r) == "internal" {
				t.Errorf("--repo %q: %v", v, r)
			}
		}
		for _, v := range append(bad, "../../x", "a/b", ".git", "..", ".", "x.lock", " ", "a\nb", "a b\t", "\u202ex") {
			if strings.Contains(v, "\x00") {
				continue
			}
			r := id.Caisson(t, repo, "run", "--json", "--name="+v, "--keep=never", "--", "/bin/true")
			if r.Exit != 0 && (code(r) == "" || code(r) == "internal") {
				t.Errorf("--name %q: %v", v, r)
			}
			if r.Exit == 0 && strings.ContainsAny(v, "\n\x1b/\t") {
				t.Errorf("--name %q was taken", v)
			}
		}
		for _, v := range []string{"LD_PRELOAD\n=x", "=x", "A B=x", "--=x", "HOME=/x", "CAISSON_TASK=x", "$(x)=y"} {
			if r := id.Caisson(t, repo, "run", "--json", "--env="+v, "--", "/bin/true"); r.Exit != 125 || code(r) == "" {
				t.Errorf("--env %q: %v", v, r)
			}
		}

		// Refs that git takes and tools trip over.
		head := id.Git(t, repo, "rev-parse", "HEAD")
		branches := []string{"--upload-pack=x", "-oProxyCommand=x", "$(touch${IFS}executed)", "`x`", "a;b", "x&y", "é", "a'b", "a\"b", "refs/heads/main", "HEAD", "@"}
		made := []string{}
		for _, b := range branches {
			// By file: the command refuses some of them.
			name := filepath.Join(repo, ".git/refs/heads", b)
			id.Write(t, name, head+"\n", 0o644)
			made = append(made, b)
		}
		for _, b := range made {
			r := id.Caisson(t, repo, "run", "--json", "--keep=never", "--base=refs/heads/"+b, "--", "git", "rev-parse", "HEAD")
			if r.Exit == 0 && strings.TrimSpace(r.Stdout) != head || r.Exit != 0 && (code(r) == "" || code(r) == "internal") {
				t.Errorf("--base refs/heads/%q: %v", b, r)
			}
		}
		// The task makes such refs and commits on them; the host takes the commits.
		task := id.Open(t, repo)
		script := fmt.Sprintf(`set -e; echo more >>a.txt; git commit -qam "$(printf 'subject\n--output=pwned\n\nfrom hostile')" --author="--exec=x <%s>"
for b in '--upload-pack=x' '-oProxyCommand=x' '$(touch${IFS}executed)' 'HEAD' 'refs/heads/x' 'a;b'; do mkdir -p ".git/refs/heads/$(dirname -- "$b")"; git rev-parse HEAD >".git/refs/heads/$b"; done
git rev-parse HEAD >.git/refs/heads/x.lock; echo 'ref: refs/heads/--upload-pack=x' >.git/HEAD; git rev-parse HEAD`, "--exec@x")
		commit := strings.TrimSpace(id.OK(t, repo, "exec", task, "--", "sh", "-c", script))
		r := id.Caisson(t, repo, "close", "--json", task)
		if r.Exit != 0 && r.Exit != 7 {
			t.Error(r)
		}
		refs := id.Git(t, repo, "for-each-ref", "--format=%(objectname) %(refname)", "refs/caisson/"+task+"/")
		if !strings.Contains(refs, commit) {
			t.Errorf("the commit %s was not rescued: %s\n%v", commit, refs, r)
		}
		for line := range strings.Lines(id.Git(t, repo, "for-each-ref", "--format=%(refname)")) {
			ref := strings.TrimSpace(line)
			known := strings.HasPrefix(ref, "refs/caisson/") || ref == "refs/heads/main" || slices.Contains(branches, strings.TrimPrefix(ref, "refs/heads/"))
			if !known {
				t.Errorf("a ref that does not belong there: %q", ref)
			}
		}
		notExecuted(t, id, repo, trace)

		// A repository whose own path looks like options.
		for _, n := range []string{"--upload-pack=x", "-oProxyCommand=x", "$(touch executed)", "a b", "it's \"q\"", "new\nline", "ü:semi;colon"} {
			dir := filepath.Join(id.Dir, "odd", n)
			id.Mkdir(t, dir)
			id.Git(t, dir, "init", "-q", "-b", "main")
			id.Write(t, dir+"/f", "f\n", 0o644)
			id.Git(t, dir, "add", "f")
			id.Git(t, dir, "commit", "-qm", "one")
			r := id.Caisson(t, dir, "run", "--json", "--keep=never", "--", "sh", "-c", "git status --porcelain && cat f")
			if r.Exit == 0 && r.Stdout != "f\n" || r.Exit != 0 && (code(r) == "" || code(r) == "internal") {
				t.Errorf("repository %q: %v", n, r)
			}
			t.Logf("repository %q: exit %d %s", n, r.Exit, code(r))
		}
		notExecuted(t, id, repo, trace)
	})
}
