package backendtest

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// twins are backends that break one promise each, and the part of the suite that
// must find it.
var twins = []struct{ broken, found string }{
	{"a level off its chain", "probe leaves nothing behind"},
	{"a promise without how", "probe leaves nothing behind"},
	{"no feature told", "probe leaves nothing behind"},
	{"usable only at times", "probe leaves nothing behind"},
	{"another name each time", "resources are named before they exist"},
	{"naming makes", "resources are named before they exist"},
	{"names without the token", "resources are named before they exist"},
	{"made without an identity", "resources are named before they exist"},
	{"says it made something else", "resources are named before they exist"},
	{"finds what is not there", "resources are named before they exist"},
	{"dead from the start", "lifecycle"},
	{"alive after its end", "lifecycle"},
	{"nothing observed", "lifecycle"},
	{"ends only once", "lifecycle"},
	{"says gone and is not", "lifecycle"},
	{"a channel for everybody", "the channel can be taken once"},
	{"finds nothing again", "another process can find and destroy"},
	{"a channel for the finder", "another process can find and destroy"},
	{"created though cancelled", "a cancelled create leaves nothing"},
	{"mounts what is not there", "a create that fails leaves nothing"},
	{"leaves what failed", "a create that fails leaves nothing"},
	{"errors without a code", "a create that fails leaves nothing"},
	{"takes a name for proof", "what is not ours is not touched"},
	{"makes one only", "several at once"},
}

// TestTwins: each broken twin of the fake makes the suite fail, in the part that is
// about what it breaks. A part that no twin breaks would prove nothing.
func TestTwins(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	failed := regexp.MustCompile(`(?m)^    --- FAIL: TestFake/(\S+)`)
	parts := map[string]bool{}
	for _, w := range twins {
		parts[w.found] = true
		t.Run(w.broken, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self, "-test.run=^TestFake$", "-test.count=1")
			cmd.Env = append(os.Environ(), "BACKENDTEST_TWIN="+w.broken)
			out, err := cmd.CombinedOutput()
			var names []string
			for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
				names = append(names, strings.ReplaceAll(m[1], "_", " "))
			}
			if err == nil || !slices.Contains(names, w.found) {
				t.Errorf("not found in %q, but in %q: %v\n%s", w.found, names, err, out)
			}
		})
	}
	for _, p := range suite {
		if !parts[p.name] {
			t.Errorf("no twin breaks %q", p.name)
		}
	}
}
