package harness

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
)

// Beside lets n tests of this program run at the same time where -parallel is
// not given: they wait for the disk and for each other more than they compute.
// It is called before Main.
func Beside(n int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(n))
	}
}

// Decode reads a JSON document; it must be one.
func Decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %.2000s", err, text)
	}
	return v
}

// Files reads a folder: path to kind, executable bit and content, .git of the
// top apart. It is what a user compares checkouts by.
func Files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case rel == ".git" && d.IsDir():
			return filepath.SkipDir
		case rel == ".git" || d.IsDir():
			return nil
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case i.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			out[rel] = "link " + to
			return err
		case i.Mode().IsRegular():
			b, err := os.ReadFile(path)
			kind := "file "
			if i.Mode()&0o100 != 0 {
				kind = "exec "
			}
			out[rel] = kind + string(b)
			return err
		}
		out[rel] = i.Mode().String()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Same fails unless two folders have the same Files.
func Same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	var bad []string
	for k, v := range want {
		if g, ok := got[k]; !ok {
			bad = append(bad, fmt.Sprintf("missing %q", k))
		} else if g != v {
			bad = append(bad, fmt.Sprintf("%q is %.80q, want %.80q", k, g, v))
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			bad = append(bad, fmt.Sprintf("too much: %q", k))
		}
	}
	slices.Sort(bad)
	if len(bad) > 12 {
		bad = append(bad[:12], fmt.Sprintf("… %d in all", len(bad)))
	}
	for _, b := range bad {
		t.Errorf("%s: %s", what, b)
	}
}
