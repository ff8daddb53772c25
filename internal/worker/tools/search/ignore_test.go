package search

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// newRand returns a generator whose seed is printed when the test fails;
// CAISSON_TEST_SEED repeats one.
func newRand(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	if s := os.Getenv("CAISSON_TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("CAISSON_TEST_SEED=%d repeats this", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// rounds returns few, or many where CAISSON_TEST_FULL is set.
func rounds(few, many int) int {
	if os.Getenv("CAISSON_TEST_FULL") != "" {
		return many
	}
	return few
}

// gitIn runs git on a repository that the test made, blind to the machine's configuration.
func gitIn(t *testing.T, dir string, stdin []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "git", append([]string{"-C", dir, "-c", "safe.directory=*", "-c", "core.excludesFile=/dev/null"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C"}
	cmd.Stdin = bytes.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); err != nil && (code != 1 || args[0] != "check-ignore") {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return out
}

// chainTo is the chain of rules for the folder that path is in, built from files.
func chainTo(root, dir string) *ruleChain {
	c := &ruleChain{repo: true}
	read := func(c *ruleChain, kind int, name string) {
		if b, err := os.ReadFile(name); err == nil {
			c.files[kind] = parseIgnore(string(b))
		}
	}
	read(c, gitInfo, filepath.Join(root, ".git/info/exclude"))
	read(c, gitRules, filepath.Join(root, ".gitignore"))
	base := ""
	for _, part := range strings.Split(dir, "/") {
		if part == "" || part == "." {
			continue
		}
		base += part + "/"
		c = &ruleChain{up: c, base: base}
		read(c, gitRules, filepath.Join(root, base, ".gitignore"))
	}
	return c
}

// checkIgnored says what git would: a path is ignored when it or a parent is.
func checkIgnored(root, path string, dir bool) bool {
	for i := 0; i < len(path); i++ {
		if path[i] == '/' && chainTo(root, filepath.Dir(path[:i])).verdict(path[:i], true) == ignored {
			return true
		}
	}
	return chainTo(root, filepath.Dir(path)).verdict(path, dir) == ignored
}

// Rules and paths from a small alphabet, so that they meet often; every special
// of the language occurs.
var rulePieces = []string{
	"a", "b", "ab", "c", "foo", "A", ".", "a.b", "*", "*", "**", "?", "/", "/", "/", "**/", "/**", "/**/", "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[[:alpha:]]",
	"[[:bad:]]", "[", "]", `\`, `\*`, `\a`, " ", `\ `, "!", "#", "***", "-", "[b-]", "[a-]", "[!]]", "é", "{a,b}", "[[:]", "[/]",
}

var pathPieces = []string{"a", "b", "ab", "c", "foo", "A", "a.b", ".a", "*", "é", "a b", "a ", "!a", "#a", "]", "-", "x", "ba", "abc", "{a,b}", "[", `\`, "bb"}

func randomRule(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(6) == 0 {
		b.WriteByte('!')
	}
	for range 1 + r.IntN(5) {
		b.WriteString(rulePieces[r.IntN(len(rulePieces))])
	}
	if r.IntN(5) == 0 {
		b.WriteByte('/')
	}
	switch r.IntN(12) {
	case 0:
		b.WriteByte('\r')
	case 1:
		b.WriteString("  ")
	}
	return b.String()
}

func randomRules(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(10) == 0 {
		b.WriteString("\xef\xbb\xbf")
	}
	for range 1 + r.IntN(6) {
		b.WriteString(randomRule(r))
		b.WriteByte('\n')
	}
	if r.IntN(3) == 0 {
		b.WriteString(randomRule(r)) // without an end
	}
	return b.String()
}

func TestIgnoreLikeGit(t *testing.T) {
	t.Parallel()
	r := newRand(t)
	for round := range rounds(60, 2000) {
		root := t.TempDir()
		gitIn(t, root, nil, "init", "-q", ".")
		paths := map[string]bool{} // to: is a folder
		for range 40 {
			dir := ""
			for range r.IntN(4) {
				dir = filepath.Join(dir, pathPieces[r.IntN(len(pathPieces))])
				if _, err := os.Lstat(filepath.Join(root, dir)); err != nil {
					if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				if fi, err := os.Lstat(filepath.Join(root, dir)); err != nil || !fi.IsDir() {
					dir = filepath.Dir(dir)
					break
				}
				paths[dir] = true
			}
			f := filepath.Join(dir, pathPieces[r.IntN(len(pathPieces))])
			if _, err := os.Lstat(filepath.Join(root, f)); err == nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(root, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			paths[f] = false
		}
		delete(paths, ".")
		rules := map[string]string{".gitignore": randomRules(r), ".git/info/exclude": randomRules(r)}
		for p, dir := range paths {
			if dir && r.IntN(4) == 0 {
				rules[p+"/.gitignore"] = randomRules(r)
			}
		}
		for name, text := range rules {
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var ask bytes.Buffer
		for p := range paths {
			ask.WriteString("./" + p + "\x00") // else a path that begins with ':' or such means more
		}
		got := map[string]bool{}
		for _, f := range bytes.Split(gitIn(t, root, ask.Bytes(), "check-ignore", "-z", "--no-index", "--stdin"), []byte{0}) {
			if len(f) > 0 {
				got[strings.TrimPrefix(string(f), "./")] = true
			}
		}
		for p, dir := range paths {
			if mine := checkIgnored(root, p, dir); mine != got[p] {
				names := make([]string, 0, len(rules))
				for n, text := range rules {
					names = append(names, fmt.Sprintf("%s: %q", n, text))
				}
				sort.Strings(names)
				v := gitIn(t, root, []byte("./"+p+"\x00"), "check-ignore", "-z", "--no-index", "-v", "-n", "--stdin")
				t.Fatalf("round %d: %q (folder: %v): ignored %v, git says %v (%q)\n%s", round, p, dir, mine, got[p], v, strings.Join(names, "\n"))
			}
		}
	}
}
