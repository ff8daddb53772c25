//go:build linux

package rootdir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Of the host's /etc only small plain files that everybody may read are copied,
// and looking at anything else neither waits nor fails.
func TestFilesThatAreCopied(t *testing.T) {
	dir := t.TempDir()
	put := func(name, content string, mode os.FileMode) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		must(t, os.Chmod(filepath.Join(dir, name), mode)) // whatever the mask is
	}
	put("plain", "a\n", 0o644)
	put("empty", "", 0o644)
	put("longer than a buffer", strings.Repeat("0123456789", 500), 0o644)
	put("as large as may be", strings.Repeat("x", maxCopied), 0o644)
	put("too large", strings.Repeat("x", maxCopied+1), 0o644)
	put("not for everybody", "secret", 0o640)
	put("no text", "a\xffb", 0o644)
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	must(t, os.Chmod(filepath.Join(dir, "pipe"), 0o644))
	must(t, os.Symlink("plain", filepath.Join(dir, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "loose")))
	for name, want := range map[string]string{
		"plain": "a\n", "empty": "", "longer than a buffer": strings.Repeat("0123456789", 500), "as large as may be": strings.Repeat("x", maxCopied), "no text": "a?b", "link": "a\n",
	} {
		if got, ok := ReadPublic(filepath.Join(dir, name)); !ok || got != want {
			t.Errorf("%s: %v, %d bytes", name, ok, len(got))
		}
	}
	for _, name := range []string{"too large", "not for everybody", "folder", "pipe", "loose", "absent"} {
		if got, ok := ReadPublic(filepath.Join(dir, name)); ok {
			t.Errorf("%s is copied: %.20q", name, got)
		}
	}
}
